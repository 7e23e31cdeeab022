"""How long a user waits before anything happens: `python -m scripts.bench.startup`. The best of five new processes."""

import subprocess
import sys
import time

COMMANDS = {
    "proofhound --help": ("-m", "scripts.cli", "--help"),
    "proofhound train --help": ("-m", "scripts.cli", "train", "--help"),
    "trl --help": ("-c", "import sys; sys.argv = ['trl', '--help']; from trl.cli.main import main; main()"),
    "import configs.loader": ("-c", "import configs.loader"),
    "import inference.agent": ("-c", "import inference.agent"),
    "import training.trainer": ("-c", "import training.trainer"),
}


def seconds(arguments: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    print("| command | seconds |\n|---|---|")
    for command, arguments in COMMANDS.items():
        print(f"| {command} | {min(seconds(arguments) for _ in range(5)):.2f} |", flush=True)
