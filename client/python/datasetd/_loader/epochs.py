"""Iterators over the batches of one epoch."""

from __future__ import annotations

import weakref
from typing import Any, Iterator, NoReturn, Optional, Protocol

from .._batches.batch import Batch
from .._feed.reconnecting_feed import ReconnectingFeed


class Epochs(Protocol):
    """What an iterator needs of its loader."""

    def _next_feed(self) -> ReconnectingFeed:
        """Returns a feed at the next epoch, which stays the next one."""

    def _begin(self, feed: ReconnectingFeed, epoch: int) -> None:
        """`epoch`, in which the feed is, has begun."""

    def _move(self, feed: ReconnectingFeed) -> None:
        """The loader is where the feed is."""

    def _look(self, epoch: int) -> None:
        """The iterator of `epoch` was dropped after its first batch."""

    def _num_left(self) -> int:
        """Returns the batches of the next epoch, from where it begins."""


class EpochIterator(Iterator[Batch[Any]]):
    """The rest of one epoch, which begins when its first batch is taken.

    Before that the iterator changes nothing. Iterators of one loader do not
    disturb each other: each has a feed of its own until its end. For one thread
    at a time.
    """

    _feed: Optional[ReconnectingFeed] = None
    # Of the first batch taken.
    _first_index = 0
    epoch = 0
    is_done = False

    def __init__(self, loader: Epochs) -> None:
        self._loader = loader

    def __iter__(self) -> "EpochIterator":
        return self

    def __next__(self) -> Batch[Any]:
        feed = self._feed
        if self.is_done:
            raise StopIteration
        if feed is None:
            return self._first()
        if feed.queue is not None:
            feed.queue.top_up(feed.send)
            return self._of_sampler(feed)
        if feed.position.epoch != self.epoch:
            self.is_done = True
            raise StopIteration
        batch = feed.take()
        self._loader._move(feed)
        self.is_done = feed.position.epoch != self.epoch
        return batch

    def _first(self) -> Batch[Any]:
        feed = self._loader._next_feed()
        epoch, index = feed.position[:2]
        if feed.queue is not None:
            # An error that the sampler raises belongs to this epoch, too.
            self._begin(feed, epoch, index)
            return self._of_sampler(feed)
        if not feed.num_batches:
            self._begin(feed, epoch, index)
            self.is_done = True
            raise StopIteration
        batch = feed.take()
        self._begin(feed, epoch, index)
        self.is_done = feed.position.epoch != epoch
        return batch

    def _begin(self, feed: ReconnectingFeed, epoch: int, index: int) -> None:
        self.epoch, self._first_index = epoch, index
        feed.iterator = weakref.ref(self)
        self._loader._begin(feed, epoch)
        self._feed = feed

    def _of_sampler(self, feed: ReconnectingFeed) -> Batch[Any]:
        """Returns the next batch of an order that is sent, whose end a sampler
        decides."""
        assert feed.queue is not None
        if not feed.queue.has_more():
            self.is_done = True
            raise StopIteration
        batch = feed.take()
        self._loader._move(feed)
        return batch

    def __len__(self) -> int:
        """Batches left; of a sampler's, according to that."""
        feed = self._feed
        if self.is_done:
            return 0
        if feed is None:
            return self._loader._num_left()
        epoch, index = feed.position[:2]
        return max(0, len(feed) - (index if epoch == self.epoch else len(feed)))

    def __del__(self) -> None:
        feed = self._feed
        if feed is None or self.is_done:
            return
        if feed.position[:2] == (self.epoch, self._first_index + 1):
            self._loader._look(self.epoch)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an iterator of a datasetd.DataLoader belongs to its process"
        )
