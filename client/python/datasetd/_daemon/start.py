"""Starts private daemons: `datasetd --private DIR`, which sees to it that there
is one of a directory and removes it at the end."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import socket
import stat
import subprocess
from typing import Optional, Sequence, Union

from ..errors import (
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
)

PathLike = Union[str, "os.PathLike[str]"]
START_SECONDS = 60.0
_LOG_TAIL_BYTES = 2000
# The path of a Unix socket has at most 107 bytes.
_MAX_RUNTIME_BYTES = 50
# As in server/exit_codes.h.
_EXIT_FORBIDDEN = 3


def find_daemon(binary: Optional[PathLike] = None) -> str:
    """Returns the path of the daemon's program. Raises NotFound, which names
    the places searched."""
    if binary is not None:
        candidates = [os.path.expanduser(os.fspath(binary))]
    elif os.environ.get("DATASETD_DAEMON"):
        candidates = [os.environ["DATASETD_DAEMON"]]
    else:
        package = pathlib.Path(__file__).absolute().parent.parent
        # In a wheel, in a release.
        candidates = [
            str(package / "bin" / "datasetd"),
            str(package / "datasetd"),
            shutil.which("datasetd") or "",
        ]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise NotFound(
        f"no datasetd program at {', '.join(c for c in candidates if c)}: "
        "install the wheel, which has it inside, put the program on PATH, or "
        "name it by binary= or $DATASETD_DAEMON"
    )


def start_daemon(
    directory: str,
    flags: Sequence[str],
    timeout: float = START_SECONDS,
    binary: Optional[PathLike] = None,
) -> int:
    """Starts the daemon of a directory unless it runs; returns its pid once it
    serves.

    It is no child of this process: `flags` say when it ends. If this is
    interrupted, a daemon that does not serve yet ends. Raises PermissionDenied
    if the directory is not this user's alone, FailedPrecondition if the daemon
    ended, DeadlineExceeded if it did not serve in time; with what it printed.
    """
    program = find_daemon(binary)
    with subprocess.Popen(
        [program, f"--private={directory}", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            output, problem = process.communicate(timeout=max(timeout, 0.0))
        except subprocess.TimeoutExpired:
            raise DeadlineExceeded(
                f"{program} did not serve within {timeout:.3g} s: "
                f"{log_tail(directory)}"
            ) from None
        finally:
            process.kill()
    if process.returncode == 0 and output.strip().isdigit():
        return int(output)
    text = (output + problem).decode("utf-8", "replace").strip()
    if process.returncode == _EXIT_FORBIDDEN:
        raise PermissionDenied(text)
    raise FailedPrecondition(
        f"{program} ended with code {process.returncode} before it served: "
        f"{text[-_LOG_TAIL_BYTES:] or 'it printed nothing'}"
    )


def log_tail(directory: str) -> str:
    """Returns the end of a daemon's log."""
    try:
        with open(os.path.join(directory, "datasetd.log"), "rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            text = log.read(_LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return "it left no log"
    return text.strip() or "it logged nothing"


def shared_directory(key: str) -> str:
    """Returns the path of a directory for a daemon that jobs of this user
    share. Also in client/connection/address.cc."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    is_short = len(os.fsencode(runtime)) <= _MAX_RUNTIME_BYTES
    parent = runtime if runtime and is_short and is_private(runtime) else "/tmp"
    return os.path.join(parent, f"datasetd-{os.geteuid()}-{key}")


def is_private(directory: str) -> bool:
    """True if the directory is there and this user's alone."""
    try:
        info = os.lstat(directory)
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and not info.st_mode & 0o077
    )


def listens(address: str) -> bool:
    """True if a daemon listens there, whether or not this user may connect.

    Also if this user may not enter the directory: whether one listens cannot be
    seen then.
    """
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
    ) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(address)
    return error not in (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)
