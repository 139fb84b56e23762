"""The programs of a wheel, as console scripts."""

import os
import sys
from typing import NoReturn


def datasetd() -> NoReturn:
    """Becomes the daemon."""
    _become("datasetd")


def datasetctl() -> NoReturn:
    """Becomes the command line tool."""
    _become("datasetctl")


def _become(name: str) -> NoReturn:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Some commands of datasetctl are this package's.
    os.environ["DATASETD_PYTHON"] = sys.executable
    os.execv(os.path.join(package, "bin", name), [name, *sys.argv[1:]])
