"""Watch: looks at the daemon and remembers the last minutes."""

from __future__ import annotations

import collections
import json
import secrets
import threading
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from .. import errors
from .._client.client import Client
from .._connection import library

# A look per second while somebody reads, else one per _IDLE_SECONDS.
_LOOK_SECONDS = 1.0
_IDLE_SECONDS = 5.0
_READER_SECONDS = 10.0
# Looks cost at most this part of the time, however much there is to see.
_SHARE = 0.01
_MAX_PAUSE_SECONDS = 10.0
_MAX_FEEDS_PAUSE_SECONDS = 2.0

_KEPT_SECONDS = 320.0
# Looks older than _DENSE_SECONDS are thinned to one per _SPARSE_SECONDS.
_DENSE_SECONDS = 15.0
_SPARSE_SECONDS = 5.0

_CONNECT_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 3.0

Message = Dict[str, Any]


class Counters(NamedTuple):
    """A feed's counters; see message Feed."""

    num_samples: int
    num_batches: int
    job_wait: float
    daemon_wait: float
    # Number of batches by the upper bound, in nanoseconds, of the time from
    # their launch to their publication; a bound of 0 means that there is none.
    hand_over: Dict[int, int]


class Look(NamedTuple):
    """The feeds' counters at `time`, of time.monotonic()."""

    time: float
    feeds: Dict[int, Counters]


class Snapshot(NamedTuple):
    """The latest state; lists are not changed later."""

    status: Message
    feeds: List[Message]
    datasets: List[Message]
    datasets_version: str  # changes with `datasets`
    time: float
    ended: List[Message]  # feeds that have ended in the last minute


class Gone(NamedTuple):
    """There is no daemon."""

    error: str
    since: float  # time.time()


def _counters(feed: Message) -> Counters:
    return Counters(
        int(feed["num_samples"]),
        int(feed["num_batches"]),
        float(feed["client_wait_seconds"]),
        float(feed["daemon_wait_seconds"]),
        {
            int(bucket["max_nanoseconds"]): int(bucket["count"])
            for bucket in feed["hand_over"]
        },
    )


class Watch:
    """Looks at one daemon, on a thread of its own. Thread-safe.

    Connects again when the daemon was lost and is back.
    """

    def __init__(self, address: Optional[str]) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._client: Optional[Client] = None
        self._snapshot: Optional[Snapshot] = None
        self._gone = Gone("it has not answered yet", time.time())
        self._looks: Deque[Look] = collections.deque()
        self._datasets: List[Message] = []
        self._datasets_text = ""
        self._start = secrets.token_hex(4)  # of versions
        self._num_versions = 0
        self._next_datasets = 0.0
        self._ended: Deque[Tuple[float, Message]] = collections.deque()
        self._last_read = 0.0
        self._wake = threading.Event()
        self._is_closed = False
        self._has_looked = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="datasetd-web-watch", daemon=True
        )
        self._thread.start()
        # Longer only if the daemon hangs.
        self._has_looked.wait(_FIRST_LOOK_SECONDS)

    # -- Reading --------------------------------------------------------------

    def state(self) -> Tuple[Optional[Snapshot], List[Look], Gone]:
        """Returns the latest state, None if there is no daemon, with the looks
        of the last minutes, oldest first."""
        with self._lock:
            is_first = time.monotonic() - self._last_read > _READER_SECONDS
            self._last_read = time.monotonic()
            answer = self._snapshot, list(self._looks), self._gone
        if is_first:
            self._wake.set()
        return answer

    def client(self) -> Client:
        """Returns the connection. Raises DaemonGone."""
        with self._lock:
            client, gone = self._client, self._gone
        if client is None:
            raise errors.DaemonGone(gone.error)
        return client

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- Looking --------------------------------------------------------------

    def _run(self) -> None:
        # close() also ends a wait for a daemon that hangs.
        is_closed = library.WaitFunction(lambda _: int(self._is_closed))
        library.load().quick.set_thread_wait(is_closed, None)
        while not self._is_closed:
            self._look()
            self._has_looked.set()
            pause = self._pause
            if time.monotonic() - self._last_read > _READER_SECONDS:
                pause = max(pause, _IDLE_SECONDS)
            self._wake.wait(pause)
            self._wake.clear()

    def _look(self) -> None:
        self._pause = _LOOK_SECONDS
        try:
            client = self._client
            if client is None:
                client = Client(self.address, _CONNECT_SECONDS)
                with self._lock:
                    self._client = client
                    self.address = client.address
                    self._looks.clear()
                    self._ended.clear()
                    self._snapshot = None
                self._next_datasets = 0.0
            start = time.monotonic()
            status = client.status()
            feeds = client.list_feeds()
            now = time.monotonic()
            self._pause = min(
                max(_LOOK_SECONDS, (now - start) / _SHARE),
                _MAX_FEEDS_PAUSE_SECONDS,
            )
            if now >= self._next_datasets:
                self._look_at_datasets(client)
        except (errors.Error, OSError) as error:
            self._lose(error)
            return
        self._keep(status, feeds, now)

    def _look_at_datasets(self, client: Client) -> None:
        start = time.monotonic()
        datasets = client.list_datasets()
        now = time.monotonic()
        self._next_datasets = start + min(
            max(0.9 * _LOOK_SECONDS, (now - start) / _SHARE),
            _MAX_PAUSE_SECONDS,
        )
        text = json.dumps(datasets)
        if text != self._datasets_text:
            self._datasets = datasets
            self._datasets_text = text
            self._num_versions += 1

    def _keep(
        self, status: Message, feeds: List[Message], now: float
    ) -> None:
        look = Look(
            now,
            {int(feed["feed_id"]): _counters(feed) for feed in feeds},
        )
        with self._lock:
            before = self._snapshot
            for feed in before.feeds if before else ():
                if int(feed["feed_id"]) not in look.feeds:
                    self._ended.append((now, feed))
            while self._ended and now - self._ended[0][0] > 60.0:
                self._ended.popleft()
            self._looks.append(look)
            self._thin(now)
            self._snapshot = Snapshot(
                status,
                feeds,
                self._datasets,
                f"{self._start}-{self._num_versions}",
                now,
                [
                    {**feed, "ended_seconds": now - at}
                    for at, feed in self._ended
                ],
            )

    def _thin(self, now: float) -> None:
        looks = self._looks
        while looks and now - looks[0].time > _KEPT_SECONDS:
            looks.popleft()
        # The one that has just become old, if its predecessor is near enough.
        for i in range(len(looks) - 2, 0, -1):
            if now - looks[i].time > _DENSE_SECONDS:
                if looks[i].time - looks[i - 1].time < _SPARSE_SECONDS:
                    del looks[i]
                break

    def _lose(self, error: BaseException) -> None:
        with self._lock:
            client, self._client = self._client, None
            if self._snapshot is not None or client is not None:
                since = time.time()
            else:
                since = self._gone.since
            self._snapshot = None
            self._gone = Gone(str(error), since)
        if client is not None:
            client.close()


def before(looks: List[Look], seconds: float) -> Optional[Look]:
    """Returns the latest look at least `seconds` before the last one, or the
    first of all; None if there are not two."""
    if len(looks) < 2:
        return None
    for look in reversed(looks[:-1]):
        if looks[-1].time - look.time >= seconds - 0.05:
            return look
    return looks[0]
