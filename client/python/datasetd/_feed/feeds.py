"""What the feeds of one loader have in common."""

from __future__ import annotations

import array
import weakref
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
)

from .._batches import held
from .._connection.connection import Connection
from .._datasets.dataset import Dataset
from .._datasets.mixture import Whole
from .._order.groups import ClassGroups
from .._order.weights import Weighted
from ..errors import Closed, Error
from . import recovery

T = TypeVar("T")


class Options(NamedTuple):
    """What a loader was asked for, as its feeds need it."""

    dataset: Whole
    # FeedOptions without start, as the first feed has them.
    message: Dict[str, Any]
    framework: str
    images: FrozenSet[str] = frozenset()  # names, of a batch's images
    # Of the daemon's order; None: all samples, no groups.
    subset: "Optional[array.array[int]]" = None
    groups: Optional[ClassGroups] = None
    reconnect_seconds: float = 0.0
    # Whether batches are copies while the trainer keeps many.
    copies_held: bool = True
    # Whether Batch.valid is a value of each batch.
    with_valid: bool = False
    # That the ops take noise from, without `dataset`.
    noise: Tuple[Dataset, ...] = ()

    def datasets(self) -> List[Dataset]:
        """Those of which the daemon's feed holds uses."""
        return [*self.dataset._datasets_in_use(), *self.noise]


class Feeds:
    """What is in force for all feeds of a loader, which it does not keep.

    Attributes: options; message, those FeedOptions with what has changed since,
    replaced as a whole, so that a feed keeps those that it was opened with;
    weighted, the weights of epochs that begin from now on; timeout;
    waited_seconds, for batches; is_closed.
    """

    def __init__(
        self,
        options: Options,
        timeout: Optional[float] = None,
        weighted: Optional[Weighted] = None,
    ) -> None:
        self.options = options
        self.message = options.message
        self.timeout = timeout
        self.weighted = weighted
        self.waited_seconds = 0.0
        self.is_closed = False
        self._open: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._has_warned = False

    def add(self, feed: Any) -> None:
        """Lets close() end a feed."""
        self._open.add(feed)

    def change(self, **options: Any) -> None:
        """Sets options of feeds that are opened, or begun, from now on. Raises
        Closed, and changes nothing, if the client is closed."""
        changed = {**self.message, **options}
        if changed != self.message:
            self.check_client()
            self.message = changed

    def warn_of_held(self, num_held: int, num_slots: int) -> None:
        """Says the first time that batches are copies."""
        if not self._has_warned:
            self._has_warned = True
            held.warn(self.options.dataset.name, num_held, num_slots)

    def check_open(self) -> None:
        """Raises Closed after close()."""
        if self.is_closed:
            raise Closed("the loader is closed")

    def check_client(self) -> None:
        """Raises Closed if the client is closed, so that no feed can be opened;
        those that are open go on."""
        self.options.dataset._session.connection()

    def retried(self, attempt: Callable[[], T]) -> T:
        """Returns what `attempt` does; with `reconnect`, once a daemon has the
        dataset again. Raises what `attempt` raises, and Closed."""
        dataset = self.options.dataset
        connection = dataset._session.connection()
        try:
            return attempt()
        except Error as error:
            if self.options.reconnect_seconds <= 0:
                raise
            lost: Optional[Connection] = None
            if isinstance(error, (*recovery.LOST, *recovery.NOT_OPENED)):
                lost = connection
            elif not recovery.is_yet_to_come(
                self.options.datasets(), error, dataset._found()
            ):
                raise
            return self.recover(error, lost, {}, attempt)

    def recover(
        self,
        cause: Error,
        lost: Optional[Connection],
        hashes: Mapping[str, str],
        attempt: Callable[[], T],
    ) -> T:
        """Waits for the datasets, then returns what `attempt` does. `hashes`
        are those that feeds had before, by name."""
        return recovery.recover(
            self.options.datasets(),
            self.options.reconnect_seconds,
            self.check_open,
            cause,
            lost,
            hashes,
            attempt,
        )

    def close(self) -> None:
        """Ends all feeds. Batches that are still held stay valid."""
        self.is_closed = True
        for feed in list(self._open):
            feed.close()
