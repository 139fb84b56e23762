"""Reconnects to a lost daemon and waits for the dataset."""

from __future__ import annotations

import contextlib
import time
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
)

from .._connection.connection import Connection
from .._datasets.dataset import Dataset
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


def described(datasets: Sequence[Dataset]) -> Dict[str, Dict[str, Any]]:
    """Returns the messages of the daemon's datasets of these names, as far as
    they are known. All functions here take those of one session."""
    try:
        response = datasets[0]._session.call("ListDatasets")
    except Error:
        return {}
    names = {dataset.name for dataset in datasets}
    return {
        message["name"]: dict(message)
        for message in response["datasets"]
        if message["name"] in names
    }


def check_replaced(
    datasets: Sequence[Dataset], hashes: Mapping[str, str]
) -> None:
    """Raises FailedPrecondition if the daemon's datasets have other samples
    than the Datasets, whose length, classes and indices a loader uses.
    `hashes` are by name those that a feed has; for others the daemon is
    asked."""
    is_known = all(dataset.name in hashes for dataset in datasets)
    messages = {} if is_known else described(datasets)
    for dataset in datasets:
        name, ours = dataset.name, dataset.content_hash
        found = hashes.get(name, messages.get(name, {}).get("content_hash"))
        # A Dataset that is described while it is loading has no hash yet.
        if ours and found and found != ours:
            raise FailedPrecondition(
                f"dataset '{name}' was replaced by other samples since this "
                f"Dataset was made: call get_dataset({name!r}) and make its "
                f"subsets and loaders again (content_hash {found}, was {ours})"
            )


def is_yet_to_come(
    datasets: Sequence[Dataset],
    error: Error,
    connection: Optional[Connection],
) -> bool:
    """True if no feed can be opened because another daemon than that of
    `connection`, which another loader has found, does not have a dataset yet;
    from its own it was unloaded."""
    if connection is datasets[0]._session.connection():
        return False
    if isinstance(error, FailedPrecondition):
        return any(
            message.get("state") == "DATASET_STATE_LOADING"
            for message in described(datasets).values()
        )
    return isinstance(error, NotFound)


def recover(
    datasets: Sequence[Dataset],
    seconds: float,
    check_open: Callable[[], None],
    cause: Error,
    lost: Optional[Connection],
    hashes: Mapping[str, str],
    reopen: Callable[[], T],
) -> T:
    """Implements `reconnect` of loaders: returns what `reopen` does once a
    daemon has the datasets within `seconds`.

    Retries until it raises no error of a starting or ending daemon. When the
    time is over, raises the last such error, from `cause`. Raises
    FailedPrecondition if the samples do not match `hashes`, by name, or else
    the Datasets' own, and what `check_open` raises, which ends the wait before
    its time. `lost` is the connection to the daemon that was lost.
    """
    session = datasets[0]._session
    deadline = time.monotonic() + seconds
    last = cause

    def check(name: str) -> None:
        check_open()
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(
                f"dataset '{name}' was still loading {seconds:g} s "
                "after the daemon was lost (reconnect=)"
            )

    try:
        while time.monotonic() < deadline:
            check_open()
            try:
                session.reconnect(lost)
                result = _reopen(datasets, check, hashes, reopen)
                for dataset in datasets:
                    dataset._set_found()
                return result
            except _NOT_QUITE_THERE as error:
                last = error
                # Other loaders of the client use a session that is well.
                if isinstance(error, (*LOST, *NOT_OPENED)):
                    lost = session.connection()
                time.sleep(_RETRY_SECONDS)
        raise last from (None if last is cause else cause)
    finally:
        # Their tracebacks have this frame: such a cycle would keep the
        # callers' batch until the garbage collector runs.
        del cause, last


def _reopen(
    datasets: Sequence[Dataset],
    check: Callable[[str], None],
    hashes: Mapping[str, str],
    reopen: Callable[[], T],
) -> T:
    held: List[str] = []
    try:
        for dataset in datasets:
            message = _await_dataset(dataset, check)
            held.append(dataset.name)
            content_hash = hashes.get(dataset.name, dataset.content_hash)
            if message["content_hash"] != content_hash:
                raise FailedPrecondition(
                    f"dataset '{dataset.name}' came back with "
                    "other samples: content_hash "
                    f"{message['content_hash']}, was {content_hash}"
                )
        return reopen()
    finally:
        for name in held:
            with contextlib.suppress(Error):
                datasets[0]._session.release(name)


def _await_dataset(
    dataset: Dataset, check: Callable[[str], None]
) -> Dict[str, Any]:
    """Returns the Dataset message; the caller holds the dataset. `check`
    raises what ends the wait for the dataset of a name."""
    name, session = dataset.name, dataset._session
    if dataset._load_again is not None:
        return dataset._load_again(lambda *_: check(name))
    while True:
        try:
            response = session.call("GetDataset", name=name)
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
        session.hold(name)
        state = enum_of(message["state"], "DATASET_STATE_")
        if state not in ("FAILED", "LOADING"):
            return message
        session.release(name)
        if state == "FAILED":
            raise FailedPrecondition(
                f"dataset '{name}' did not come back: {message['error']}"
            )
        check(name)
        time.sleep(_RETRY_SECONDS)
