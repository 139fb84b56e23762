"""The feeds of one loader."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

from .._batches.batch import Batch
from .._feed.epochs import EpochIterator, Place, Progress, SamplerIterator
from .._feed.fetch import Fetcher
from .._feed.reconnecting_feed import Job, Position, ReconnectingFeed
from ..errors import FailedPrecondition, OutOfRange, ResourceExhausted
from .job_order import JobOrder
from .next_epoch import NextEpoch


class Feeds:
    """A feed for each iterator that has not ended, one for peek() if these are
    under way, and the fetcher's.

    Attributes: newest, the feed of the newest iterator; current, the one that
    began or gave a batch last; progress, where the loader is.
    """

    def __init__(
        self,
        job: Job,
        order: JobOrder,
        open_fetcher: Callable[..., Fetcher],
    ) -> None:
        """Opens the first feed. `open_fetcher` is called with `seed` and
        `timeout`."""
        self._job = job
        self._order = order
        self.newest = ReconnectingFeed(job, order.new_queue())
        self._place = Place(self.newest)
        # At the beginning of the next epoch, by peek().
        self._peeked: Optional[ReconnectingFeed] = None
        self._open_fetcher = open_fetcher
        self._fetcher: Optional[Fetcher] = None

    @property
    def current(self) -> ReconnectingFeed:
        return self._place.feed

    @property
    def progress(self) -> Progress:
        return self._place.progress()

    def iterate(self, start: NextEpoch) -> EpochIterator:
        """Begins the next epoch."""
        before = self.progress
        self._place.keep(before)  # until there is an iterator
        feed, self._peeked = self._peeked_at(start), None
        if feed is None:
            feed = self._begun(start)
        self.newest = feed
        if feed.queue is None:
            return EpochIterator(feed, self._place, before)
        return SamplerIterator(feed, self._place, before, feed.queue)

    def move(self, unused: EpochIterator, epoch: int) -> None:
        """Makes the newest iterator, which is unused, begin `epoch`."""
        self._peeked = None
        self._set_first_position(0)
        self._order.set_epoch(epoch)
        self.newest.begin((epoch, 0))
        unused.epoch = epoch

    def peek(self, start: NextEpoch) -> Batch[Any]:
        """Returns the first batch of the next epoch."""
        feed = self._peeked_at(start)
        if feed is None:
            feed = self._peeked = self._begun(start, keep=True)
        try:
            if feed.queue is not None:
                feed.queue.top_up(feed.send)
            has_more = feed.queue.has_more() if feed.queue else feed.num_batches
        except BaseException:
            # So that iter() begins anew, and meets the sampler's error again.
            self._peeked = None
            raise
        if not has_more:
            raise OutOfRange("peek(): the next epoch has no batches")
        return feed.peek()

    def fetch(self, indices: Iterable[int], epoch: int) -> Batch[Any]:
        """Returns the samples `indices`, as the job's feeds make them."""
        self._job.check_open()
        if self._fetcher is None:
            seed = int(self._job.options["seed"])
            self._fetcher = self._open_fetcher(
                seed=seed, timeout=self._job.timeout
            )
        return self._fetcher.fetch(indices, epoch)

    def _peeked_at(self, start: NextEpoch) -> Optional[ReconnectingFeed]:
        """Returns peek()'s feed if it is at the next position, which an
        iterator that was dropped unused moves back."""
        feed = self._peeked
        if feed is not None and feed.position != start.position():
            return None
        return feed

    def forget_peeked(self) -> None:
        """The next epoch is another one than peek() took."""
        self._peeked = None

    def set_seed(self, seed: int) -> None:
        """Draws by `seed` in feeds that are opened, or begun, from now on.
        Raises Closed if the client is closed."""
        self._job.check_client()
        self._job.change(seed=str(seed))
        self._peeked = None
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def set_timeout(self, seconds: Optional[float]) -> None:
        self._job.timeout = seconds
        if self._fetcher is not None:
            self._fetcher.timeout = seconds

    def divide(self, rank: int, world_size: int) -> None:
        """Divides the daemon's order by these ranks."""
        self._job.change(rank=rank, world_size=world_size)
        self.newest.update()

    def set_num_draws(self, num_draws: int) -> None:
        """Sets how often feeds draw by weights in an epoch, from now on."""
        self._job.change(weighted_order={"num_draws": str(num_draws)})

    def _begun(self, start: NextEpoch, keep: bool = False) -> ReconnectingFeed:
        """Returns a feed at the next position that no iterator uses; with
        `keep` one that was there, or a new one."""
        position = start.position()
        self._set_first_position(start.first_position)
        feed = self.newest
        if feed.is_under_way() or (keep and feed.position != position):
            feed = self._opened(position)
        self._order.set_epoch(position[0])
        if feed.queue is not None:
            feed.queue.sampler_epoch = self._order.sampler_epoch()
        feed.begin(position, start.order_state)
        return feed

    def _set_first_position(self, first: int) -> None:
        if first != int(self._job.options.get("first_position", 0)):
            self._job.check_client()
            self._job.change(first_position=str(first))

    def _opened(self, position: Position) -> ReconnectingFeed:
        if self._order.has_sampler_state():
            raise FailedPrecondition(
                "the sampler has the state of one iteration (state_dict): one "
                "more iterator or peek() would change it: take the epoch to "
                "its end before"
            )
        try:
            return ReconnectingFeed(
                self._job, self._order.new_queue(), position
            )
        except ResourceExhausted as error:
            raise ResourceExhausted(
                f"{error} (for one more iterator or peek() of a loader, "
                "beside an iterator that has not ended: end or drop that, or "
                "close other loaders)"
            ) from None

    def close(self) -> None:
        """Batches that are still held stay valid."""
        if self._fetcher is not None:
            self._fetcher.close()
        self._job.close()
