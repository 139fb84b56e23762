"""JobFeed: a job's sequence of batches across restarts of the daemon."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ._ahead import SentAhead
from ._batch import Batch
from ._connection import Connection
from ._dataset import Dataset
from ._feed import Feed
from ._recovery import LOST, NOT_OPENED, Recovery
from ._resume import Position
from ._sampling import Drawn
from .errors import Closed, Error


class JobFeed:
    """A feed that is reopened at its position after the daemon was lost.

    `position` is that of the batch after the last one taken. For one thread at
    a time.
    """

    def __init__(
        self,
        dataset: Dataset,
        options: Dict[str, Any],
        framework: str,
        timeout: Optional[float],
        reconnect_seconds: float,
        ahead: Optional[SentAhead],
    ) -> None:
        """Opens the feed at the first batch. `options` is a FeedOptions
        message without start. `ahead` provides the order; None: the daemon
        does."""
        self._dataset = dataset
        self._options = options
        self._framework = framework
        self._reconnect_seconds = reconnect_seconds
        self._ahead = ahead
        self.timeout = timeout
        self.position: Position = (0, 0)
        # Token of the iterator that may take batches.
        self.turn: object = None
        self._is_closed = False
        # Why there is no feed: the daemon was lost and not found again.
        self._lost: Optional[Error] = None
        self._lost_connection: Optional[Connection] = None
        self._waited_before = 0.0
        self._feed: Optional[Feed] = None
        connection = dataset._session.connection()
        try:
            self._open()
        except NOT_OPENED as error:
            if reconnect_seconds <= 0:
                raise
            Recovery(dataset, reconnect_seconds).run(
                error, connection, dataset.content_hash, self._open
            )

    def _open(self) -> None:
        """Opens the feed at the position and sends the pending blocks."""
        epoch, index = self.position
        start = {"epoch": str(epoch), "batch": str(index)}
        feed = Feed(
            self._dataset._session,
            dict(self._options, start=start),
            self._framework,
        )
        if self._ahead is not None:
            self._ahead.set_limits(feed.order_capacity, feed.prefetch)
            for block in self._ahead.blocks():
                feed.send(block, self.timeout)
        self.num_batches = feed.num_batches
        self.num_samples = feed.num_samples
        self.content_hash = feed.content_hash
        self.transforms_hash = feed.transforms_hash
        self.prefetch = feed.prefetch
        self.field_names = [field.name for field in feed.fields]
        self._feed = feed
        self._lost = self._lost_connection = None

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if a sampler does not know."""
        if self._ahead is not None:
            return len(self._ahead.order)
        return self.num_batches

    # -- Batches --------------------------------------------------------------

    def take(self) -> Batch:
        """Returns the next batch. Errors as Feed.take, and Closed."""
        while True:
            feed = self._feed or self._found()
            try:
                batch = feed.take(self.timeout)
                break
            except LOST as error:
                self._lose(error)
        handle = batch._handle
        index = handle.index + 1
        if self._ahead is not None:
            self.position = self._ahead.pass_on(handle.epoch, handle.index)
        elif index < self.num_batches:
            self.position = (handle.epoch, index)
        else:
            self.position = (handle.epoch + 1, 0)
        return batch

    def seek(self, position: Position) -> None:
        """Makes the batch at `position` the next one."""
        feed = self._feed or self._found()
        try:
            if self.num_batches or self._ahead is not None:
                feed.seek(*position)
            self.position = position
        except LOST as error:
            self.position = position
            self._lose(error)

    def send(self, block: List[Drawn]) -> None:
        """Sends more of the job's order; see SentAhead."""
        # If the daemon is lost, take() reconnects and sends all pending.
        if self._feed is None:
            return
        try:
            self._feed.send(block, self.timeout)
        except LOST as error:
            self._lose(error)

    @property
    def waited_seconds(self) -> float:
        """Seconds that take() has waited."""
        if self._feed is None:
            return self._waited_before
        return self._waited_before + self._feed.waited_seconds

    # -- Life -----------------------------------------------------------------

    def check_open(self) -> None:
        """Raises Closed after close()."""
        if self._is_closed:
            raise Closed("the loader is closed")

    def check_free(self) -> None:
        """Also raises FailedPrecondition while another thread is in a call."""
        self.check_open()
        if self._feed is not None:
            self._feed.check_free()

    def _found(self) -> Feed:
        """Returns the feed, reopened if it was lost and not found before."""
        self.check_open()
        assert self._lost is not None
        Recovery(self._dataset, self._reconnect_seconds).run(
            self._lost, self._lost_connection, self.content_hash, self._open
        )
        assert self._feed is not None
        return self._feed

    def _lose(self, cause: Error) -> None:
        """Marks the feed as lost; raises `cause` unless `reconnect` is set."""
        if self._reconnect_seconds <= 0:
            raise cause
        assert self._feed is not None
        self._lost = cause
        self._lost_connection = self._feed.connection
        self._end_feed()

    def _end_feed(self) -> None:
        if self._feed is not None:
            self._waited_before = self.waited_seconds
            feed, self._feed = self._feed, None
            feed.close()

    def close(self) -> None:
        """Ends the feed. Batches that are still held stay valid."""
        self._is_closed = True
        self.turn = None
        self._end_feed()
