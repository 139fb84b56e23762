"""A loader's sequence of batches across restarts of the daemon."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, NamedTuple, Optional

from .._batches.batch import Batch
from .._connection.connection import Connection
from .._datasets.dataset import Dataset
from .._order.sampling import Drawn
from .._order.weights import Weighted
from ..errors import (
    Closed,
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    ResourceExhausted,
)
from .feed import Feed
from .feeds import Feeds
from .order_queue import OrderQueue
from .recovery import LOST, NOT_OPENED, check_replaced, is_yet_to_come


class BatchPosition(NamedTuple):
    """Where batches continue: at a batch of an epoch.

    The epoch begins at `first_position` of the global order. `order_state` is
    the sampler's state there; None: not known. `weighted` are the weights of
    the epoch; None: the loader's.
    """

    epoch: int
    batch: int
    first_position: int = 0
    order_state: Optional[Dict[str, Any]] = None
    weighted: Optional[Weighted] = None


BEGINNING = BatchPosition(0, 0)


class ReconnectingFeed:
    """A feed that is reopened at its position after the daemon was lost.

    `position` is that of the batch after the last one taken, with the weights
    of the epoch in which that one was. For one thread at a time.
    """

    def __init__(
        self,
        feeds: Feeds,
        queue: Optional[OrderQueue],
        position: BatchPosition = BEGINNING,
    ) -> None:
        """Opens the feed at `position`, with the loader's weights. `queue`
        provides the order; None: the daemon does."""
        self._feeds = feeds
        self.queue = queue
        self.position = position._replace(weighted=feeds.weighted)
        # Those of the daemon's feed after its next seek; None: not known.
        self._coming: Optional[Weighted] = None
        # A weak reference to the iterator that takes the batches.
        self.iterator: Any = None
        # Taken by peek() and not yet by take().
        self._peeked: Optional[Batch[Any]] = None
        # Why there is no feed: the daemon was lost and not found again. A copy,
        # without the traceback, whose frames would keep the iterator alive.
        self._lost: Optional[Error] = None
        self._feed: Optional[Feed] = None
        # That of the last feed.
        self._connection: Optional[Connection] = None
        self._message = feeds.message
        feeds.add(self)
        feeds.retried(self._open)

    def _open(self) -> None:
        """Opens the feed at the position and sends the pending blocks."""
        feeds, position = self._feeds, self.position
        dataset, datasets = feeds.options.dataset, feeds.options.datasets()
        self._peeked = None
        start = {"epoch": str(position.epoch), "batch": str(position.batch)}
        try:
            feed = Feed(
                feeds, dict(self._message, start=start), position.weighted
            )
        except (InvalidArgument, OutOfRange):
            # The options may be wrong for other samples only.
            check_replaced(datasets, {})
            raise
        hashes = dict(feed.noise)
        if isinstance(dataset, Dataset):
            hashes[dataset.name] = feed.content_hash
        try:
            check_replaced(datasets, hashes)
        except FailedPrecondition:
            feed.close()
            raise
        if self.queue is not None:
            self.queue.set_limits(feed.order_capacity, feed.prefetch)
            for block in self.queue.blocks():
                feed.send(block)
        self._coming = position.weighted
        self._give_weights(feed, feeds.weighted)
        self.num_batches = feed.num_batches
        self.num_samples = feed.num_samples
        self.content_hash = feed.content_hash
        self.noise = feed.noise
        self._hashes = hashes
        self.transforms_hash = feed.transforms_hash
        self.prefetch = feed.prefetch
        self.device = feed.device
        self._feed, self._connection = feed, feed.connection
        self._lost = None
        if feeds.is_closed:  # by another thread, which did not see the feed
            self._end_feed()
            feeds.check_open()

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if a sampler does not know."""
        if self.queue is not None:
            return len(self.queue.order)
        return self.num_batches

    # -- Batches --------------------------------------------------------------

    def take(self) -> Batch[Any]:
        """Returns the next batch. Errors as Feed.take, and Closed."""
        batch = self._peeked
        if batch is None:
            batch = self._take()
        else:
            self._peeked = None
            batch._record_current()
        handle: Any = batch._handle
        epoch, index = handle.epoch, handle.index + 1
        order_state = None
        if self.queue is not None:
            epoch, index = self.queue.pass_on(epoch, handle.index)
            order_state = self.queue.state
        elif index >= self.num_batches:
            epoch, index = epoch + 1, 0
        before = self.position
        self.position = BatchPosition(
            epoch,
            index,
            before.first_position if epoch == before.epoch else 0,
            order_state,
            before.weighted,
        )
        return batch

    def peek(self) -> Batch[Any]:
        """Returns the batch that take() will return. Errors as take()."""
        if self._peeked is None:
            self._peeked = self._take()
        return self._peeked

    def _take(self) -> Batch[Any]:
        while True:
            feed = self._feed or self._found()
            try:
                batch = feed.take()
            except LOST as error:
                self._lose(error)
                continue
            options = self._feeds.options
            return batch.with_valid() if options.with_valid else batch

    def begin(self, position: BatchPosition) -> None:
        """Makes the batch at `position` the next one, under the options that
        are in force now. Its order_state is None unless it was loaded."""
        weighted = position.weighted or self._feeds.weighted
        position = position._replace(weighted=weighted)
        self._peeked = None
        if self.queue is not None:
            self.queue.begin(position.batch, position.order_state)
            position = position._replace(order_state=self.queue.state)
        if self._message is not self._feeds.message:
            self.position = position
            self.update()
            return
        feed = self._feed or self._found()
        try:
            self._give_weights(feed, weighted)
            if self.num_batches or self.queue is not None:
                feed.seek(position.epoch, position.batch)
            self.position = position
            self._give_weights(feed, self._feeds.weighted)
        except LOST as error:
            self.position = position
            self._lose(error)

    def set_weights(self, weighted: Weighted) -> None:
        """Gives the daemon the weights of the epochs that begin from now on.
        Errors as Feed.set_weights."""
        while True:
            feed = self._feed or self._found()
            try:
                self._give_weights(feed, weighted)
                return
            except LOST as error:
                self._lose(error)

    def _give_weights(self, feed: Feed, weighted: Optional[Weighted]) -> None:
        """Lets the feed draw by `weighted` after its next seek."""
        before, self._coming = self._coming, None
        if weighted is not None and not weighted.equals(before):
            try:
                feed.set_weights(weighted)
            except (InvalidArgument, ResourceExhausted):
                self._coming = before
                raise
        self._coming = weighted

    def update(self) -> None:
        """Opens the feed anew at its position if the loader's options have
        changed."""
        if self._message is self._feeds.message:
            return
        self._feeds.check_client()
        self._message = self._feeds.message
        if self._feed is None:
            return  # _found() opens it
        self._end_feed()
        self._open_anew()

    def _open_anew(self) -> None:
        """Opens the feed at its position, unless the daemon is lost and
        `reconnect` is set: then _found() waits for it."""
        try:
            self._open()
        except ResourceExhausted as error:
            raise ResourceExhausted(
                f"{error} (to open the loader's feed again: held batches of "
                "the previous feed keep its memory; drop them, for example by "
                "`del batch`, and take the batch again)"
            ) from None
        except Error as error:
            options = self._feeds.options
            if options.reconnect_seconds <= 0 or not (
                isinstance(error, (*LOST, *NOT_OPENED))
                or is_yet_to_come(options.datasets(), error, self._connection)
            ):
                raise
            self._lost = copy.copy(error)

    def send(self, block: List[Drawn]) -> None:
        """Sends more of the sampler's order; after an error from the position
        on. See OrderQueue."""
        assert self.queue is not None
        order = self.queue.order.sampled
        size = order.group_size
        if size and "group_order" not in self._message:
            # The sampler's first batch has told that there are groups.
            self._feeds.change(
                batch_size=order.batch_size * size,
                group_order={"group_size": size},
            )
            self.update()  # sends all pending
            return
        # If the daemon is lost, take() reconnects and sends all pending.
        feed = self._feed
        if feed is None:
            return
        try:
            if feed.needs_seek:
                feed.seek(self.position.epoch, self.position.batch)
            feed.send(block)
        except LOST as error:
            self._lose(error)

    # -- Life -----------------------------------------------------------------

    def is_under_way(self) -> bool:
        """True while an iterator exists that is to take more batches."""
        iterator = self.iterator and self.iterator()
        return iterator is not None and not iterator.is_done

    def check_free(self) -> None:
        """Raises Closed, or FailedPrecondition while another thread is in a
        call."""
        self._feeds.check_open()
        if self._feed is not None:
            self._feed.check_free()

    def _found(self) -> Feed:
        """Returns the feed, reopened if it was lost and not found before."""
        self._feeds.check_open()
        if self._lost is None:
            self._open_anew()  # Ctrl-C or an error came at the last attempt
        if self._lost is not None:
            lost = copy.copy(self._lost)
            self._feeds.recover(
                lost, self._connection, self._hashes, self._open
            )
        feed = self._feed
        if feed is None:
            raise Closed("the loader is closed")
        return feed

    def _lose(self, cause: Error) -> None:
        """Marks the feed as lost; raises `cause` unless `reconnect` is set."""
        if self._feeds.options.reconnect_seconds <= 0:
            raise cause
        self._lost = copy.copy(cause)
        self._end_feed()

    def _end_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """Ends the feed. REQUIRES: the loader is closed."""
        self._peeked = None
        self._end_feed()
