"""Reconnects to a lost daemon and waits for the dataset."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Dict, List, Optional, TypeVar, Union

from .._connection.connection import Connection
from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture
from .._descriptions import enum_of
from ..errors import (
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

T = TypeVar("T")
_RETRY_SECONDS = 0.2
# The format of pushed datasets.
_PUSHED = "push"

# The daemon was lost.
LOST = (DaemonGone, DaemonDraining)
# A feed cannot be opened because the daemon is about to end, or has ended.
NOT_OPENED = (Unavailable, DaemonDraining, Unauthenticated)
# A daemon is starting or ending: its sockets get their permissions, systemd
# listens for it and nobody answers, it does not know the dataset or the
# session, it cancels calls, or it has no capacity for many clients that return
# at once.
_NOT_QUITE_THERE = (
    Unavailable,
    DeadlineExceeded,
    Aborted,
    Cancelled,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)


def described(
    dataset: Union[Dataset, Mixture],
) -> Dict[str, Dict[str, Any]]:
    """Returns the messages of the daemon's datasets of these names, as far as
    they are known."""
    try:
        response = dataset._session.call("ListDatasets")
    except Error:
        return {}
    names = {one.name for one in dataset._datasets_in_use()}
    return {
        message["name"]: dict(message)
        for message in response["datasets"]
        if message["name"] in names
    }


def check_replaced(
    whole: Union[Dataset, Mixture], content_hash: Optional[str] = None
) -> None:
    """Raises FailedPrecondition if the daemon's datasets have other samples
    than the Datasets, whose length, classes and indices a loader uses.
    `content_hash` is that of a feed; None: the daemon is asked."""
    is_known = content_hash is not None and isinstance(whole, Dataset)
    messages = {} if is_known else described(whole)
    for dataset in whole._datasets_in_use():
        name, ours = dataset.name, dataset.content_hash
        found = messages.get(name, {}).get("content_hash", "")
        if is_known:
            found = content_hash
        # A Dataset that is described while it is loading has no hash yet.
        if ours and found and found != ours:
            raise FailedPrecondition(
                f"dataset '{name}' was replaced by other samples since this "
                f"Dataset was made: call get_dataset({name!r}) and make its "
                f"subsets and loaders again (content_hash {found}, was {ours})"
            )


def is_yet_to_come(
    dataset: Union[Dataset, Mixture],
    error: Error,
    connection: Optional[Connection],
) -> bool:
    """True if no feed can be opened because another daemon than that of
    `connection`, which another loader has found, does not have the dataset yet;
    from its own it was unloaded."""
    if connection is dataset._session.connection():
        return False
    if isinstance(error, FailedPrecondition):
        return any(
            message.get("state") == "DATASET_STATE_LOADING"
            for message in described(dataset).values()
        )
    return isinstance(error, NotFound)


class Recovery:
    """Implements `reconnect` of loaders, for at most `seconds`."""

    def __init__(
        self,
        dataset: Union[Dataset, Mixture],
        seconds: float,
        check_open: Callable[[], None],
    ) -> None:
        """`check_open` raises what ends the wait before its time."""
        self._dataset = dataset
        self._session = dataset._session
        self._seconds = seconds
        self._check_open = check_open

    def run(
        self,
        cause: Error,
        connection: Optional[Connection],
        content_hash: str,
        reopen: Callable[[], T],
    ) -> T:
        """Returns what `reopen` does once a daemon has the dataset, or all of a
        mixture.

        Retries until it raises no error of a starting or ending daemon. When
        the time is over, raises the last such error, from `cause`. Raises
        FailedPrecondition if the samples do not match `content_hash`, or those
        of a mixture's datasets theirs, and what `check_open` raises.
        """
        deadline = time.monotonic() + self._seconds
        last = cause
        lost = connection
        try:
            while time.monotonic() < deadline:
                self._check_open()
                try:
                    self._session.reconnect(lost)
                    result = self._reopen(deadline, content_hash, reopen)
                    for dataset in self._dataset._datasets_in_use():
                        dataset._set_found()
                    return result
                except _NOT_QUITE_THERE as error:
                    last = error
                    # Other loaders of the client use a session that is well.
                    if isinstance(error, (*LOST, *NOT_OPENED)):
                        lost = self._session.connection()
                    time.sleep(_RETRY_SECONDS)
            raise last from (None if last is cause else cause)
        finally:
            # Their tracebacks have this frame: such a cycle would keep the
            # callers' batch until the garbage collector runs.
            del cause, last

    def _reopen(
        self, deadline: float, content_hash: str, reopen: Callable[[], T]
    ) -> T:
        held: List[str] = []
        is_mixture = isinstance(self._dataset, Mixture)
        try:
            for dataset in self._dataset._datasets_in_use():
                message = self._await_dataset(dataset, deadline)
                held.append(dataset.name)
                wanted = dataset.content_hash if is_mixture else content_hash
                if message["content_hash"] != wanted:
                    raise FailedPrecondition(
                        f"dataset '{dataset.name}' came back with "
                        "other samples: content_hash "
                        f"{message['content_hash']}, was {wanted}"
                    )
            return reopen()
        finally:
            for name in held:
                with contextlib.suppress(Error):
                    self._session.release(name)

    def _await_dataset(
        self, dataset: Dataset, deadline: float
    ) -> Dict[str, Any]:
        """Returns the Dataset message; the caller holds the dataset."""
        name = dataset.name

        def check(*_: Any) -> None:
            self._check_open()
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"dataset '{name}' was still loading {self._seconds:g} s "
                    "after the daemon was lost (reconnect=)"
                )

        if dataset._load_again is not None:
            return dataset._load_again(check)
        while True:
            try:
                response = self._session.call("GetDataset", name=name)
            except NotFound as error:
                # Nobody else has what this client pushed.
                if dataset.format != _PUSHED:
                    raise
                raise FailedPrecondition(
                    f"dataset '{name}' was pushed, and the present daemon "
                    "does not have it: push it again. With cache and "
                    "state_directory in its configuration a daemon keeps "
                    f"pushed datasets across restarts ({error})"
                ) from None
            message: Dict[str, Any] = response["dataset"]
            self._session.hold(name)
            state = enum_of(message["state"], "DATASET_STATE_")
            if state not in ("FAILED", "LOADING"):
                return message
            self._session.release(name)
            if state == "FAILED":
                raise FailedPrecondition(
                    f"dataset '{name}' did not come back: {message['error']}"
                )
            check()
            time.sleep(_RETRY_SECONDS)
