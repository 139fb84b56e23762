"""Iterators over the batches of one epoch."""

from __future__ import annotations

from typing import Iterator, NoReturn

from ._ahead import SentAhead
from ._batch import Batch
from ._job_feed import JobFeed
from .errors import Closed


class EpochIterator(Iterator[Batch]):
    """The rest of one epoch of the daemon's order.

    Raises Closed once another iterator uses the feed. For one thread at a
    time.
    """

    def __init__(self, feed: JobFeed) -> None:
        """Begins at the feed's position."""
        self._feed = feed
        self._turn = feed.turn = object()
        self.epoch = feed.position[0]
        # A sampler's epoch has its own length.
        self._is_done = not feed.num_batches

    def __iter__(self) -> "EpochIterator":
        return self

    def __next__(self) -> Batch:
        feed = self._feed
        if feed.turn is not self._turn:
            self._raise_ended()
        if self._is_done or feed.position[0] != self.epoch:
            self._is_done = True
            raise StopIteration
        batch = feed.take()
        self._is_done = feed.position[0] != self.epoch
        return batch

    def __len__(self) -> int:
        """Batches left."""
        epoch, index = self._feed.position
        if self._feed.turn is not self._turn or epoch != self.epoch:
            return 0
        return self._feed.num_batches - index

    def _raise_ended(self) -> NoReturn:
        if self._is_done:
            raise StopIteration
        self._feed.check_open()
        raise Closed(
            "a newer iterator of this loader was made; it goes on where that "
            "one is"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an iterator of a datasetd.DataLoader belongs to its process"
        )


class SamplerIterator(EpochIterator):
    """The rest of one epoch of a sampler, which decides its end."""

    def __init__(self, feed: JobFeed, ahead: SentAhead) -> None:
        super().__init__(feed)
        self._is_done = False
        self._ahead = ahead
        ahead.top_up(feed.send)

    def __next__(self) -> Batch:
        feed = self._feed
        if feed.turn is not self._turn:
            self._raise_ended()
        self._ahead.top_up(feed.send)
        if not self._ahead.has_more():
            self._is_done = True
            raise StopIteration
        # Not in a local: an error of the sampler may keep this frame.
        return feed.take()

    def __len__(self) -> int:
        """Batches left, according to the sampler."""
        epoch, index = self._feed.position
        num_passed = index if epoch == self.epoch else len(self._feed)
        return max(0, len(self._feed) - num_passed)
