"""Where a loader is, and where its next epoch begins."""

from __future__ import annotations

import collections
from typing import Counter, Optional

from .._feed.reconnecting_feed import (
    BEGINNING,
    BatchPosition,
    ReconnectingFeed,
)
from .._warnings import warn_once


class Position:
    """Where a loader is, and where its next epoch begins: at a loaded position,
    at a requested epoch, or at the epoch after the last one begun.

    Attributes: reached, the position after the batch returned last; asked, that
    which load() or request() has set for the next epoch; last_epoch, the last
    one begun, -1 before the first; num_begun, how often each epoch was; newest,
    the feed of the newest iterator; peeked, the feed that is at the next epoch,
    None unless there is one.
    """

    def __init__(self, feed: ReconnectingFeed) -> None:
        """`feed` is the first one of the loader."""
        self.reached = BEGINNING
        self.asked: Optional[BatchPosition] = None
        self.last_epoch = -1
        self.num_begun: "Counter[int]" = collections.Counter()
        self.newest = feed
        self.peeked: Optional[ReconnectingFeed] = None
        # The epoch of an iterator that was dropped after its first batch.
        self.looked_at: Optional[int] = None
        # A framework may take one batch of each epoch on purpose.
        self.are_looks_meant = False

    @property
    def next(self) -> BatchPosition:
        """Where the next epoch begins."""
        return self.asked or BatchPosition(self.last_epoch + 1, 0)

    @property
    def present(self) -> BatchPosition:
        """What a state says: where iteration continues."""
        return self.asked or self.reached

    def load(self, position: BatchPosition) -> None:
        self.asked, self.peeked = position, None

    def request(self, epoch: int) -> None:
        """A loaded position within the same epoch is kept."""
        self.peeked = None
        if self.asked is None or self.asked.epoch != epoch:
            self.asked = BatchPosition(epoch, 0)

    def begin(self, feed: ReconnectingFeed, epoch: int) -> None:
        """`epoch`, in which the feed is, has begun."""
        self.asked, self.peeked = None, None
        self.last_epoch = epoch
        self.num_begun[epoch] += 1
        self.newest, self.reached = feed, feed.position
        looked_at, self.looked_at = self.looked_at, None
        if looked_at is not None and not self.are_looks_meant:
            warn_once(
                "look",
                f"the iterator of epoch {looked_at} was dropped after its "
                f"first batch, and epoch {epoch} begins: every iter() that "
                "returns a batch begins an epoch, as in next(iter(loader)). To "
                "look at a batch use loader.peek(), which begins none; "
                "set_epoch() sets the next epoch",
            )
