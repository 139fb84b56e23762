"""The programs beside this package."""

import os
import shutil
import signal
import sys
from typing import List, NoReturn

from .._daemon.start import find_daemon
from ..errors import NotFound


def datasetd() -> NoReturn:
    """Becomes the daemon."""
    _become("datasetd")


def datasetctl() -> NoReturn:
    """Becomes the command line tool."""
    _become("datasetctl")


def run(arguments: List[str]) -> NoReturn:
    """Becomes datasetctl, for its command `run`. Raises NotFound."""
    program = _find_datasetctl()
    # Python ignores them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv(program, [program, *arguments])


def _find_datasetctl() -> str:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    candidates = [os.path.join(package, "bin", "datasetctl")]
    try:
        daemon = find_daemon()
        for path in (daemon, os.path.realpath(daemon)):
            directory = os.path.dirname(path)
            candidates += [
                os.path.join(directory, "datasetctl"),
                # Where Bazel puts it.
                os.path.join(directory, "../client/ctl/datasetctl"),
            ]
    except NotFound:
        pass
    candidates.append(shutil.which("datasetctl") or "")
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise NotFound(
        "no datasetctl program, which runs commands, at "
        f"{', '.join(c for c in candidates if c)}: install the wheel, which "
        "has it inside, or put the program on PATH"
    )


def _become(name: str) -> NoReturn:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Some commands of datasetctl are this package's.
    os.environ["DATASETD_PYTHON"] = sys.executable
    os.execv(os.path.join(package, "bin", name), [name, *sys.argv[1:]])
