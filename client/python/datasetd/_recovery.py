"""Finds a daemon that was lost, and the dataset on it."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Callable, Dict, Optional

from . import _loading
from ._connection import Connection
from ._dataset import Dataset
from .errors import (
    Aborted,
    Cancelled,
    DaemonDraining,
    DaemonGone,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)

_RETRY_SECONDS = 0.2

# A daemon that was there is not, any more.
LOST = (DaemonGone, DaemonDraining)
# A feed cannot be opened because the daemon is about to end, or has ended.
NOT_OPENED = (Unavailable, DaemonDraining, Unauthenticated)
# A daemon that starts or ends: its sockets are made and get their rights, it
# does not know the dataset or the session, it breaks off what runs, and many
# clients that come back at once may find no place.
_NOT_QUITE_THERE = (
    Unavailable,
    Aborted,
    Cancelled,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)


class Recovery:
    """What a loader does with `reconnect`, at most `seconds` long."""

    def __init__(self, dataset: Dataset, seconds: float) -> None:
        self._dataset = dataset
        self._session = dataset._session
        self._seconds = seconds

    def run(
        self,
        cause: Error,
        connection: Optional[Connection],
        content_hash: str,
        reopen: Callable[[], None],
    ) -> None:
        """Calls `reopen` when a daemon is there that has the dataset.

        Again and again, until it raises none of the errors of a daemon that is
        not quite there. Raises the last of these, from `cause`, when the time
        is over. FailedPrecondition if the samples are others than
        `content_hash` says.
        """
        deadline = time.monotonic() + self._seconds
        last = cause
        lost = connection
        while time.monotonic() < deadline:
            try:
                self._session.reconnect(lost)
                lost = self._session.connection()
                message = self._await_dataset(deadline)
                try:
                    if message["content_hash"] != content_hash:
                        raise FailedPrecondition(
                            f"dataset '{self._dataset.name}' came back with "
                            "other samples: content_hash "
                            f"{message['content_hash']}, was {content_hash}"
                        )
                    reopen()
                finally:
                    with contextlib.suppress(Error):
                        self._session.release(self._dataset.name)
                return
            except _NOT_QUITE_THERE as error:
                last = error
                time.sleep(_RETRY_SECONDS)
        raise last from (None if last is cause else cause)

    def _await_dataset(self, deadline: float) -> Dict[str, Any]:
        """The Dataset message; the caller holds the dataset."""
        name = self._dataset.name

        def check(*_: Any) -> None:
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"dataset '{name}' was still loading {self._seconds:g} s "
                    "after the daemon was lost (reconnect=)"
                )

        if self._dataset._spec is not None:
            return _loading.load(self._session, self._dataset._spec, check)
        while True:
            message: Dict[str, Any] = json.loads(
                self._session.call_text("get_dataset", name.encode())
            )
            self._session.hold(name)
            state = message["state"].replace("DATASET_STATE_", "")
            if state not in ("FAILED", "LOADING"):
                return message
            self._session.release(name)
            if state == "FAILED":
                raise FailedPrecondition(
                    f"dataset '{name}' did not come back: {message['error']}"
                )
            check()
            time.sleep(_RETRY_SECONDS)
