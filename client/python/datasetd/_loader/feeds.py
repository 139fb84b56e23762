"""The feeds of one loader."""

from __future__ import annotations

import dataclasses
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
)

from .._batches.batch import Batch
from .._batches.frameworks import as_list, device_object
from .._datasets.mixture import Mixture
from .._datasets.reading import read
from .._feed.order_queue import OrderQueue
from .._feed.reconnecting_feed import Job, Position, ReconnectingFeed
from .._order.crops import ROW_FIELD
from .._order.sampling import index_array
from .._order.weights import Weighted
from ..errors import (
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    ResourceExhausted,
)
from .job_order import JobOrder
from .next_epoch import NextEpoch


class Progress(NamedTuple):
    """How far a loader is: attributes of its feed, and of its queue's order."""

    position: Position
    first_position: int
    order_state: Dict[str, Any]
    weighted: Optional[Weighted]


def _progress_of(feed: ReconnectingFeed) -> Progress:
    return Progress(
        feed.position,
        feed.first_position,
        {} if feed.queue is None else feed.queue.state,
        feed.weighted,
    )


def _drawn(queue: OrderQueue) -> Iterator[List[int]]:
    while True:
        drawn = queue.order.draw()
        if drawn is None:
            return
        yield drawn.indices.tolist()


class Feeds:
    """A feed for each iterator that has not ended, and one for peek() if these
    are under way.

    Attributes: newest, the feed of the newest iterator; current, the one that
    gave a batch last.
    """

    def __init__(self, job: Job, order: JobOrder) -> None:
        """Opens the first feed."""
        self._job = job
        self._order = order
        self.newest = ReconnectingFeed(job, order.new_queue())
        self.current = self.newest
        # Where `current` was, while it is at an epoch that has not begun.
        self._left: Optional[Progress] = None
        # At the next epoch, which has not begun.
        self._peeked: Optional[ReconnectingFeed] = None

    @property
    def progress(self) -> Progress:
        """Where the loader is."""
        return self._left or _progress_of(self.current)

    def next_feed(
        self, start: NextEpoch, keep: bool = False
    ) -> ReconnectingFeed:
        """Returns a feed at the next epoch, which begin() begins. With `keep`
        no other feed leaves its place."""
        feed = self._peeked
        if feed is None or feed.position != start.position():
            left = self._left
            self._left = self.progress
            feed = self._peeked = self._at(start, keep)
            if feed is not self.current:
                self._left = left
        try:
            if feed.queue is not None:
                feed.queue.top_up(feed.send)
        except BaseException:
            self._peeked = None  # the sampler begins anew
            raise
        return feed

    def begin(self, feed: ReconnectingFeed) -> None:
        """The epoch of next_feed() has begun."""
        self.newest, self._peeked = feed, None
        self.move(feed)

    def move(self, feed: ReconnectingFeed) -> None:
        """A batch comes from `feed`."""
        self.current, self._left = feed, None

    def peek(self, start: NextEpoch) -> Batch[Any]:
        """Returns the first batch of the next epoch."""
        feed = self.next_feed(start, keep=True)
        try:
            has_more = feed.queue.has_more() if feed.queue else feed.num_batches
        except BaseException:
            # The epoch begins anew, and meets the sampler's error again.
            self._peeked = None
            raise
        if not has_more:
            raise OutOfRange("peek(): the next epoch has no batches")
        return feed.peek()

    def indices(self, start: NextEpoch) -> Iterator[List[Any]]:
        """Yields the sample indices of each batch of the next epoch; of a
        mixture counted through all datasets."""
        queue = self._order.new_queue()
        if queue is not None:
            queue.order.begin(start.position()[1], None, None, None)
            return _drawn(queue)
        return self._sent(
            start.position(),
            start.weighted or self._job.weighted,
            {
                **self._job.options,
                "first_position": str(start.first_position),
            },
        )

    def _sent(
        self,
        position: Position,
        weighted: Optional[Weighted],
        options: Dict[str, Any],
    ) -> Iterator[List[Any]]:
        """Yields those of the daemon's order, by a feed of its own that has one
        small field, if there is one."""
        dataset = self._job.dataset
        for field in dataset.fields:
            if not field.shape:
                options.update(fields={}, field_names=[field.name])
                if isinstance(dataset, Mixture):
                    options["mixture"] = dataset.message(None)
                break
        job = dataclasses.replace(
            self._job, options=options, weighted=weighted, with_valid=False
        )
        try:
            feed = ReconnectingFeed(job, None, position)
            while feed.num_batches and feed.position[0] == position[0]:
                batch = feed.take()
                indices = as_list(batch.indices)
                if isinstance(dataset, Mixture):
                    indices = dataset.positions(
                        as_list(batch.dataset_index), indices
                    )
                yield indices
        finally:
            job.close()

    def fetch(self, indices: Iterable[int], epoch: int) -> Batch[Any]:
        """Returns the samples `indices`, as the job's feeds make them."""
        job = self._job
        job.check_open()
        dataset, options = job.dataset, job.options
        if isinstance(dataset, Mixture):
            raise InvalidArgument(
                "fetch: a mixture has no indices of its own: take "
                "loader.dataset.parts[d][i], or fetch() of a DataLoader of the "
                "part"
            )
        wanted = index_array("indices", indices)
        # A window that is fetched is not a row of documents; lengths are of
        # crops.
        fields = {
            name: of_field
            for name, of_field in options["fields"].items()
            if of_field.get("row_field", ROW_FIELD) == ROW_FIELD
        }
        left_out = options["fields"].keys() - fields.keys()
        names = [
            name
            for name in options.get("field_names", ())
            if name not in left_out
        ]
        batch = job.retried(
            lambda: read(
                dataset,
                wanted,
                job.framework,
                names,
                fields,
                int(options["seed"]),
                epoch,
                job.timeout,
                window_length=options.get("window_order", {}).get(
                    "length", "0"
                ),
            )
        )
        if job.framework == "dlpack":
            return batch
        return batch.to(device_object(job.framework, self.newest.device))

    def forget_peeked(self) -> None:
        """The next epoch is another one than peek() took."""
        self._peeked = None

    def set_seed(self, seed: int) -> None:
        """Draws by `seed` in feeds that are opened, or begun, from now on.
        Raises Closed if the client is closed."""
        self._job.check_client()
        self._job.change(seed=str(seed))
        self._peeked = None

    def set_weights(self, weighted: Weighted) -> None:
        """Draws epochs that begin from now on by these weights. Errors as
        Feed.set_weights, after which nothing has changed."""
        self.newest.set_weights(weighted)
        self._job.weighted = weighted
        self._peeked = None

    def set_timeout(self, seconds: Optional[float]) -> None:
        self._job.timeout = seconds

    def divide(self, rank: int, world_size: int, **rows: Any) -> None:
        """Divides the daemon's order by these ranks; `rows` are FeedOptions of
        their number of rows."""
        self._job.change(rank=rank, world_size=world_size, **rows)
        self.newest.update()

    def _at(self, start: NextEpoch, keep: bool) -> ReconnectingFeed:
        """Returns a feed at the next position that no iterator uses; with
        `keep` one that was there, or a new one."""
        position = start.position()
        self._set_first_position(start.first_position)
        feed = self.newest
        if feed.is_under_way() or (keep and feed.position != position):
            feed = self._opened(position)
        if feed.queue is not None:
            feed.queue.sampler_epoch = self._order.sampler_epoch()
        feed.begin(position, start.order_state, start.weighted)
        return feed

    def _set_first_position(self, first: int) -> None:
        if first != int(self._job.options.get("first_position", 0)):
            self._job.check_client()
            self._job.change(first_position=str(first))

    def _opened(self, position: Position) -> ReconnectingFeed:
        if self._order.has_sampler_state():
            raise FailedPrecondition(
                "the sampler has the state of one iteration (state_dict): "
                "another iterator or peek() would change it: first iterate to "
                "the end of the epoch"
            )
        try:
            return ReconnectingFeed(
                self._job, self._order.new_queue(), position
            )
        except ResourceExhausted as error:
            raise ResourceExhausted(
                f"{error} (for another iterator or peek() of a loader, beside "
                "an iterator that has not ended: end or drop that iterator, or "
                "close other loaders)"
            ) from None

    def close(self) -> None:
        """Batches that are still held stay valid."""
        self._job.close()
