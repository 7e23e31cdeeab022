"""An HTTP application served on 127.0.0.1 from a thread of this process.

* It listens before the block is entered, at a port of its own unless told one, and stops when the block is left: what
  is under way has a second to finish, idle connections are closed, the port is free again.
* A port that is taken, or a server that does not start, is `InfraError`.
"""

import socket
import threading
import time
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette

from configs.errors import InfraError, boundary

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0


class LocalServer:
    """`with LocalServer(app) as server: ...`; may be entered once."""

    def __init__(self, app: Starlette, port: int = 0) -> None:
        """`port` 0: any free one."""
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=60,
        )
        self._port = port
        self._server = uvicorn.Server(config)
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="local-server", daemon=True)

    @property
    def base(self) -> str:
        """http://127.0.0.1:PORT, while the server runs."""
        if self._socket is None:
            raise InfraError("the local server does not run")
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        with boundary(InfraError, "a local server"):
            self._socket = _listen(self._port)
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._stop()
                raise InfraError("a local server did not start")
            time.sleep(0.002)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _serve(self) -> None:
        assert self._socket is not None
        self._server.run(sockets=[self._socket])

    def _stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _listen(port: int) -> socket.socket:
    # The protocol is named because asyncio turns Nagle's delay off only then; with it every answer takes 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound
