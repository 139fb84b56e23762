"""A job's sequence of batches across restarts of the daemon."""

from __future__ import annotations

import array
import copy
import dataclasses
import weakref
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

from .._batches.batch import Batch
from .._batches.held import Held
from .._connection.connection import Connection
from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture
from .._order.groups import ClassGroups
from .._order.sampling import Drawn
from .._order.weights import Weighted
from ..errors import (
    Closed,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ResourceExhausted,
)
from .feed import Feed, Waited
from .order_queue import OrderQueue
from .recovery import LOST, NOT_OPENED, Recovery

Position = Tuple[int, int]  # epoch, batch within it
T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class Job:
    """What the feeds of one loader have in common.

    `options` is a FeedOptions message without start. It is replaced, not
    changed: a feed keeps those that it was opened with.
    """

    dataset: Union[Dataset, Mixture]
    options: Dict[str, Any]
    framework: str
    timeout: Optional[float]
    reconnect_seconds: float
    held: Held
    images: FrozenSet[str]  # names, of a batch's images
    # Of the daemon's order; None: all samples, not weighted, no groups.
    subset: "Optional[array.array[int]]"
    weighted: Optional[Weighted]
    groups: Optional[ClassGroups]
    # Whether Batch.valid is a value of each batch.
    with_valid: bool = False

    def __post_init__(self) -> None:
        self.waited = Waited()
        self.feeds: "weakref.WeakSet[ReconnectingFeed]" = weakref.WeakSet()
        self.is_closed = False

    def change(self, **options: Any) -> None:
        """Sets options of feeds that are opened, or begun, from now on."""
        changed = {**self.options, **options}
        if changed != self.options:
            self.options = changed

    def check_open(self) -> None:
        """Raises Closed after close()."""
        if self.is_closed:
            raise Closed("the loader is closed")

    def check_client(self) -> None:
        """Raises Closed if the client is closed, so that no feed can be opened;
        those that are open go on."""
        self.dataset._session.connection()

    def check_replaced(self, content_hash: Optional[str] = None) -> None:
        """Raises FailedPrecondition if the daemon's datasets have other samples
        than the Datasets, whose length, classes and indices the job uses.
        `content_hash` is that of a feed; None: the daemon is asked."""
        if content_hash is not None and isinstance(self.dataset, Dataset):
            self._check_hash(self.dataset, content_hash)
            return
        messages = self.described()
        for dataset in self.dataset._datasets_in_use():
            found = messages.get(dataset.name, {})
            self._check_hash(dataset, found.get("content_hash", ""))

    def _check_hash(self, dataset: Dataset, content_hash: str) -> None:
        name, ours = dataset.name, dataset.content_hash
        # A Dataset that is described while it is loading has no hash yet.
        if ours and content_hash and content_hash != ours:
            raise FailedPrecondition(
                f"dataset '{name}' was replaced by other samples since this "
                f"Dataset was made: call get_dataset({name!r}) and make its "
                f"subsets and loaders again (content_hash {content_hash}"
                f", was {ours})"
            )

    def is_yet_to_come(
        self, error: Error, connection: Optional[Connection]
    ) -> bool:
        """True if no feed can be opened because another daemon than that of
        `connection`, which another loader has found, does not have the dataset
        yet; from its own it was unloaded."""
        if connection is self.dataset._session.connection():
            return False
        if isinstance(error, FailedPrecondition):
            return any(
                message.get("state") == "DATASET_STATE_LOADING"
                for message in self.described().values()
            )
        return isinstance(error, NotFound)

    def described(self) -> Dict[str, Dict[str, Any]]:
        """Returns the messages of the daemon's datasets of these names, as far
        as they are known."""
        try:
            response = self.dataset._session.call("ListDatasets")
        except Error:
            return {}
        names = {d.name for d in self.dataset._datasets_in_use()}
        return {
            message["name"]: dict(message)
            for message in response["datasets"]
            if message["name"] in names
        }

    def retried(self, attempt: Callable[[], T]) -> T:
        """Returns what `attempt` does; with `reconnect`, once a daemon has the
        dataset again. Raises what `attempt` raises, and Closed."""
        connection = self.dataset._session.connection()
        try:
            return attempt()
        except Error as error:
            if self.reconnect_seconds <= 0:
                raise
            lost: Optional[Connection] = None
            if isinstance(error, (*LOST, *NOT_OPENED)):
                lost = connection
            elif not self.is_yet_to_come(error, self.dataset._found()):
                raise
            return self.recover(
                error, lost, self.dataset.content_hash, attempt
            )

    def recover(
        self,
        cause: Error,
        lost: Optional[Connection],
        content_hash: str,
        attempt: Callable[[], T],
    ) -> T:
        """Waits for the dataset, then returns what `attempt` does. See
        Recovery.run."""
        recovery = Recovery(
            self.dataset, self.reconnect_seconds, self.check_open
        )
        return recovery.run(cause, lost, content_hash, attempt)

    def close(self) -> None:
        """Ends all feeds. Batches that are still held stay valid."""
        self.is_closed = True
        for feed in list(self.feeds):
            feed.close()


class ReconnectingFeed:
    """A feed that is reopened at its position after the daemon was lost.

    `position` is that of the batch after the last one taken, and `weighted` are
    the weights of the epoch in which that one was. For one thread at a time.
    """

    def __init__(
        self,
        job: Job,
        queue: Optional[OrderQueue],
        position: Position = (0, 0),
    ) -> None:
        """Opens the feed at `position`. `queue` provides the order; None: the
        daemon does."""
        self._job = job
        self.queue = queue
        self.position = position
        self.weighted = job.weighted
        # Those of the daemon's feed after its next seek; None: not known.
        self._coming: Optional[Weighted] = None
        # The epoch that begins at the options' first_position.
        self._first_epoch = position[0]
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
        self._options = job.options
        job.feeds.add(self)
        job.retried(self._open)

    def _open(self) -> None:
        """Opens the feed at the position and sends the pending blocks."""
        epoch, index = self.position
        self._peeked = None
        start = {"epoch": str(epoch), "batch": str(index)}
        job = self._job
        try:
            feed = Feed(
                job.dataset._session,
                dict(self._options, start=start),
                job.framework,
                job.images,
                job.held,
                job.waited,
                job.subset,
                self.weighted,
                job.groups,
            )
        except (InvalidArgument, OutOfRange):
            # The options may be wrong for other samples only.
            job.check_replaced()
            raise
        try:
            job.check_replaced(feed.content_hash)
        except FailedPrecondition:
            feed.close()
            raise
        if self.queue is not None:
            self.queue.set_limits(feed.order_capacity, feed.prefetch)
            for block in self.queue.blocks():
                feed.send(block, job.timeout)
        self._coming = self.weighted
        self._give_weights(feed, job.weighted)
        self.num_batches = feed.num_batches
        self.num_samples = feed.num_samples
        self.content_hash = feed.content_hash
        self.transforms_hash = feed.transforms_hash
        self.prefetch = feed.prefetch
        self.device = feed.device
        self._feed, self._connection = feed, feed.connection
        self._lost = None
        if job.is_closed:  # by another thread, which did not see the feed
            self._end_feed()
            job.check_open()

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if a sampler does not know."""
        if self.queue is not None:
            return len(self.queue.order)
        return self.num_batches

    @property
    def first_position(self) -> int:
        """Place of the global order at which the position's epoch begins."""
        if self.position[0] != self._first_epoch:
            return 0
        return int(self._options.get("first_position", 0))

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
        index = handle.index + 1
        if self.queue is not None:
            self.position = self.queue.pass_on(handle.epoch, handle.index)
        elif index < self.num_batches:
            self.position = (handle.epoch, index)
        else:
            self.position = (handle.epoch + 1, 0)
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
                batch = feed.take(self._job.timeout)
            except LOST as error:
                self._lose(error)
                continue
            return batch.with_valid() if self._job.with_valid else batch

    def begin(
        self,
        position: Position,
        order_state: Optional[Dict[str, Any]] = None,
        weighted: Optional[Weighted] = None,
    ) -> None:
        """Makes the batch at `position` the next one, under the job's options.

        `order_state` is the state of the job's own order there, if it was
        loaded; `weighted` are the weights of that epoch, None: the job's.
        """
        weighted = weighted or self._job.weighted
        self._peeked = None
        self._first_epoch = position[0]
        if self.queue is not None:
            self.queue.begin(position[1], order_state)
        if self._options is not self._job.options:
            self.position, self.weighted = position, weighted
            self.update()
            return
        feed = self._feed or self._found()
        try:
            self._give_weights(feed, weighted)
            if self.num_batches or self.queue is not None:
                feed.seek(*position)
            self.position, self.weighted = position, weighted
            self._give_weights(feed, self._job.weighted)
        except LOST as error:
            self.position, self.weighted = position, weighted
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
                feed.set_weights(weighted, self._job.timeout)
            except (InvalidArgument, ResourceExhausted):
                self._coming = before
                raise
        self._coming = weighted

    def update(self) -> None:
        """Opens the feed anew at its position if the job's options have
        changed."""
        if self._options is self._job.options:
            return
        self._job.check_client()
        self._options = self._job.options
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
            job = self._job
            if job.reconnect_seconds <= 0 or not (
                isinstance(error, (*LOST, *NOT_OPENED))
                or job.is_yet_to_come(error, self._connection)
            ):
                raise
            self._lost = copy.copy(error)

    def send(self, block: List[Drawn]) -> None:
        """Sends more of the job's order; after an error at the position. See
        OrderQueue."""
        assert self.queue is not None
        order = self.queue.order
        size = order.grouping.size
        if size and "group_order" not in self._options:
            # The sampler's first batch has told that there are groups.
            self._job.change(
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
                feed.seek(*self.position)
            feed.send(block, self._job.timeout)
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
        self._job.check_open()
        if self._feed is not None:
            self._feed.check_free()

    def _found(self) -> Feed:
        """Returns the feed, reopened if it was lost and not found before."""
        self._job.check_open()
        if self._lost is None:
            self._open_anew()  # Ctrl-C or an error came at the last attempt
        if self._lost is not None:
            lost = copy.copy(self._lost)
            self._job.recover(
                lost, self._connection, self.content_hash, self._open
            )
        feed = self._feed
        if feed is None:
            raise Closed("the loader is closed")
        return feed

    def _lose(self, cause: Error) -> None:
        """Marks the feed as lost; raises `cause` unless `reconnect` is set."""
        if self._job.reconnect_seconds <= 0:
            raise cause
        self._lost = copy.copy(cause)
        self._end_feed()

    def _end_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """Ends the feed. REQUIRES: the job is closed."""
        self._peeked = None
        self._end_feed()
