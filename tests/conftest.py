"""Environment of every test, set before anything heavy is imported, and the option that turns skips into failures."""

import os
import signal

os.environ.update(
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_DATASETS_OFFLINE="1",
    TRANSFORMERS_VERBOSITY="error",
    WANDB_MODE="offline",
    DO_NOT_TRACK="1",
)

import pytest


def pytest_configure() -> None:
    # A job started in the background inherits an ignored SIGINT and hands it on; the tests of Ctrl-C need the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test makes the run fail")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--fail-on-skip") or reporter is None:
        return
    skipped = reporter.stats.get("skipped", [])
    if skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"{len(skipped)} skipped with --fail-on-skip: the run fails", red=True)
