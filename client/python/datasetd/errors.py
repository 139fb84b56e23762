"""Errors of datasetd: one class per status code, with some subclasses."""

from __future__ import annotations

import unicodedata
from typing import Dict, Type

__all__ = [
    "Error",
    "Cancelled",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
    "DaemonGone",
    "DaemonDraining",
    "DatasetUnloaded",
    "FeedEvicted",
    "DeviceFailed",
    "FeedFailed",
    "ContextFailed",
    "AllSlotsHeld",
    "UsedAfterFork",
    "Closed",
    "VersionMismatch",
    "LibraryNotFound",
]


class Error(RuntimeError):
    """Base class of all errors of datasetd.

    str() escapes control and format characters, because a message may quote
    text from a file or from the daemon, which must not control a terminal.
    """

    def __str__(self) -> str:
        return printable(BaseException.__str__(self))


def printable(text: str) -> str:
    """Returns the text with what drives a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _ESCAPED
        and character not in _KEPT
        else character
        for character in text
    )


# Control, format, surrogate, and separators of lines and paragraphs.
_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Newline, and the joiners that Persian, Indic scripts and emoji need.
_KEPT = "\n\u200c\u200d"


class Cancelled(Error):
    """The caller cancelled the call."""


class InvalidArgument(Error, ValueError):
    """An argument, an option or a transform is wrong; the message names it."""


class DeadlineExceeded(Error, TimeoutError):
    """The timeout has passed."""


class NotFound(Error, LookupError):
    """There is no such dataset, or the daemon finds no such path."""


class AlreadyExists(Error):
    """The name belongs to a different dataset."""


class PermissionDenied(Error, PermissionError):
    """The path is outside the data roots, or this user has no permission."""


class ResourceExhausted(Error):
    """Exceeds the memory budget or a limit; the message has both numbers."""


class FailedPrecondition(Error):
    """The call is not allowed in the current state."""


class Aborted(Error):
    """The daemon ended the request; it may be repeated."""


class OutOfRange(Error, IndexError):
    """There is no such sample or batch."""


class Unimplemented(Error, NotImplementedError):
    """This daemon or build does not support the request."""


class Internal(Error):
    """The daemon, a device or a disk failed."""


class Unavailable(Error, ConnectionError):
    """The daemon cannot be reached."""


class DataLoss(Error):
    """The source is damaged; the message names file and offset."""


class Unauthenticated(Error):
    """The session has ended."""


class DaemonGone(Unavailable):
    """No daemon is listening, or it has ended."""


class DaemonDraining(Aborted):
    """The daemon is shutting down."""


class DatasetUnloaded(FailedPrecondition):
    """The dataset was unloaded by force while the loader was open."""


class FeedEvicted(Aborted):
    """The daemon ended the feed: the client broke the protocol or a limit."""


class DeviceFailed(Internal):
    """The daemon's device failed."""


class FeedFailed(Internal):
    """The daemon's device refused the work of this feed, or its samples can no
    longer be read; other feeds continue."""


class ContextFailed(Internal):
    """The CUDA context of this process failed; restart the process."""


class AllSlotsHeld(FailedPrecondition):
    """This process holds all batches of the feed; keep clones instead."""


class UsedAfterFork(FailedPrecondition):
    """The object was created before fork() and used in the child."""


class Closed(FailedPrecondition):
    """The object is closed."""


class VersionMismatch(FailedPrecondition):
    """Daemon and client speak different versions of the protocol."""


class LibraryNotFound(Error, ImportError):
    """libdatasetd.so was not found."""


# Numbers of datasetd_code and datasetd_detail in datasetd.h.
_BY_CODE: Dict[int, Type[Error]] = {
    1: Cancelled,
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    6: AlreadyExists,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: FailedPrecondition,
    10: Aborted,
    11: OutOfRange,
    12: Unimplemented,
    13: Internal,
    14: Unavailable,
    15: DataLoss,
    16: Unauthenticated,
}
_BY_DETAIL: Dict[int, Type[Error]] = {
    1: DaemonGone,
    2: DaemonDraining,
    3: DatasetUnloaded,
    4: FeedEvicted,
    5: DeviceFailed,
    6: AllSlotsHeld,
    7: UsedAfterFork,
    8: Closed,
    9: VersionMismatch,
    11: ContextFailed,
    12: FeedFailed,
}


def make_error(code: int, detail: int, message: str) -> Error:
    """The error for a code and a detail of the C API."""
    kind = _BY_DETAIL.get(detail, _BY_CODE.get(code, Error))
    return kind(message)


def code_class(error: Error) -> Type[Error]:
    """The class of an error's status code, or Error."""
    for kind in type(error).__mro__:
        if kind in _BY_CODE.values():
            return kind
    return Error
