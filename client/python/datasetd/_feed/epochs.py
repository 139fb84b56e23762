"""Iterators over the batches of one epoch."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator, NamedTuple, NoReturn, Optional

from .._batches.batch import Batch
from .order_queue import OrderQueue
from .reconnecting_feed import Position, ReconnectingFeed


class Progress(NamedTuple):
    """How far a loader is: attributes of its feed, and of its queue's order."""

    position: Position
    first_position: int
    order_state: Dict[str, Any]


class Place:
    """Where a loader is: in `feed`, which began or gave a batch last, or where
    it was before an iterator that was dropped unused."""

    def __init__(self, feed: ReconnectingFeed) -> None:
        self.feed = feed
        # How often move() was called and not undone.
        self.num_moves = 0
        self._kept: Optional[Progress] = None

    def move(self, feed: ReconnectingFeed) -> None:
        self.feed, self._kept = feed, None
        self.num_moves += 1

    def keep(self, progress: Progress) -> None:
        """Stays at `progress`, wherever the feed goes, until move()."""
        self._kept = progress

    def undo(self, num_moves: int, before: Progress) -> None:
        """Takes back the last of `num_moves` moves, which began at `before`.
        Does nothing if there were more moves."""
        if self.num_moves == num_moves:
            self.num_moves -= 1
            self.keep(before)

    def progress(self) -> Progress:
        if self._kept is not None:
            return self._kept
        feed = self.feed
        return Progress(
            feed.position,
            feed.first_position,
            {} if feed.queue is None else feed.queue.state,
        )


class Use:
    """Whether an iterator was used."""

    def __init__(
        self, iterator: "EpochIterator", place: Place, before: Progress
    ) -> None:
        """REQUIRES: the iterator has moved the place."""
        self._iterator = weakref.ref(iterator)
        self._place = place
        self._num_moves = place.num_moves
        self._before = before
        # True once it has given a batch or has ended.
        self.has_begun = False

    def iterator(self) -> "Optional[EpochIterator]":
        """Returns the iterator while it exists."""
        return self._iterator()

    def undo(self) -> None:
        """The loader is where it was before the iterator, unless another one
        has moved it since."""
        self._place.undo(self._num_moves, self._before)


class EpochIterator(Iterator[Batch[Any]]):
    """The rest of one epoch of the daemon's order.

    Iterators of one loader do not disturb each other: each has a feed of its
    own until its end. For one thread at a time.
    """

    def __init__(
        self, feed: ReconnectingFeed, place: Place, before: Progress
    ) -> None:
        """Begins at the feed's position; `before` is where the loader was."""
        self._feed = feed
        self._place = place
        self.epoch = feed.position[0]
        # A sampler's epoch has its own length.
        self.is_done = not feed.num_batches
        feed.iterator = weakref.ref(self)
        place.move(feed)
        self.use = Use(self, place, before)

    def __iter__(self) -> "EpochIterator":
        return self

    def __next__(self) -> Batch[Any]:
        feed = self._feed
        if self.is_done or feed.position[0] != self.epoch:
            self.is_done = self.use.has_begun = True
            raise StopIteration
        batch = feed.take()
        self.use.has_begun = True
        self._place.move(feed)
        self.is_done = feed.position[0] != self.epoch
        return batch

    def __len__(self) -> int:
        """Batches left."""
        if self.is_done:
            return 0
        return self._feed.num_batches - self._feed.position[1]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an iterator of a datasetd.DataLoader belongs to its process"
        )


class SamplerIterator(EpochIterator):
    """The rest of one epoch of a sampler, which decides its end."""

    def __init__(
        self,
        feed: ReconnectingFeed,
        place: Place,
        before: Progress,
        queue: OrderQueue,
    ) -> None:
        super().__init__(feed, place, before)
        self.is_done = False
        self._queue = queue
        queue.top_up(feed.send)

    def __next__(self) -> Batch[Any]:
        if self.is_done:
            raise StopIteration
        feed = self._feed
        self._queue.top_up(feed.send)
        # An error that the sampler raises belongs to this epoch, too.
        self.use.has_begun = True
        if not self._queue.has_more():
            self.is_done = True
            raise StopIteration
        self._place.move(feed)
        return feed.take()

    def __len__(self) -> int:
        """Batches left, according to the sampler."""
        if self.is_done:
            return 0
        epoch, index = self._feed.position
        num_passed = index if epoch == self.epoch else len(self._feed)
        return max(0, len(self._feed) - num_passed)
