"""What the commands share: errors of the command line, numbers, output."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type

from .. import errors
from .._order.windows import parse_windows

# As absl::ErrnoToStatusCode, which the daemon and datasetctl use.
_ERRNOS: Dict[Type[errors.Error], Sequence[int]] = {
    errors.AlreadyExists: [errno.EEXIST],
    errors.FailedPrecondition: [errno.EISDIR, errno.ENOTDIR, errno.EBUSY],
    errors.InvalidArgument: [errno.EINVAL, errno.E2BIG, errno.ENAMETOOLONG],
    errors.NotFound: [errno.ENOENT],
    errors.PermissionDenied: [errno.EACCES, errno.EPERM, errno.EROFS],
    errors.ResourceExhausted: [
        errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC
    ],
}  # fmt: skip

# Names such as "--samples,--rows", or "name" of a positional argument; type;
# default, None if it is required; help.
Option = Tuple[str, Callable[[str], Any], Any, str]


class UsageError(Exception):
    """The command line is wrong."""


# Of seeds, epochs and indices.
MAX_UINT64 = 2**64 - 1
# The help of --windows.
WINDOWS = (
    "windows= of the job's loader: a length, blocks(500, stride=250), "
    "random_windows(500) or crops(16000, random)"
)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Returns the `type` of an option that is an integer."""

    def number_of(text: str) -> int:
        if re.fullmatch(r"-?[0-9]+", text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"'{text}': expected a whole number from {least} to {most}"
        )

    return number_of


def windows_of(text: str) -> Any:
    """The `type` of --windows."""
    try:
        return parse_windows(text)
    except errors.InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_options(
    parser: argparse.ArgumentParser, options: Sequence[Option]
) -> None:
    """Adds what datasetctl declares in python_commands.cc, too."""
    for names, kind, default, text in options:
        more: Dict[str, Any] = {}
        if names.startswith("-"):
            more = {"default": default, "required": default is None}
        if default not in (None, ""):
            text += f"; default: {default}"
        parser.add_argument(*names.split(","), type=kind, help=text, **more)


def os_error(text: str, error: OSError) -> errors.Error:
    """Returns the error of a system call, about `text`."""
    kinds = [kind for kind in _ERRNOS if error.errno in _ERRNOS[kind]]
    return (kinds or [errors.Error])[0](f"{text}: {error.strerror}")


def write(text: str) -> None:
    """Writes to standard output. Raises Unavailable if that fails."""
    # As other programs do: a reader that has gone ends this one.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Not through a buffer: what it could not write would fail again at exit,
    # and change the exit code.
    data = text.encode("utf-8", "surrogateescape")
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        raise errors.Unavailable("standard output cannot be written") from None


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with columns; those of numbers are aligned to the right.
    The first row is the head."""
    columns: List[List[str]] = []
    for column in zip(*rows):
        cells = [errors.printable(c).replace("\n", "\\n") for c in column]
        are_numbers = all(cell[:1].isdigit() for cell in cells[1:])
        justify = str.rjust if are_numbers else str.ljust
        columns.append([justify(c, max(map(len, cells))) for c in cells])
    return "".join("  ".join(row).rstrip() + "\n" for row in zip(*columns))
