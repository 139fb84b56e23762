"""JobLoader: iterates over the epochs of a loader."""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    TypeVar,
)

from .._arguments import checked_int, loader_timeout
from .._attributes import Fixed
from .._batches.batch import ArrayT, Batch
from .._feed.feeds import Feeds
from .._feed.reconnecting_feed import BatchPosition, ReconnectingFeed
from .._order.weights import Weights
from ..errors import FailedPrecondition, InvalidArgument
from . import accelerate, benchmark, collective, torch_loader
from .epochs import EpochIterator
from .feeds import fetch, indices, next_feed, peek
from .order import Order
from .position import Position
from .resume import (
    ORDER_KEYS,
    VERSION,
    check_state,
    checked_order_state,
    checked_position,
)
from .samplers import LoaderBatchSampler, LoaderSampler

if TYPE_CHECKING:
    import torch

_Self = TypeVar("_Self", bound="JobLoader[Any]")


def _make_no_batch(_: Any) -> NoReturn:
    """A loader's `collate_fn`. Called if somebody, such as Accelerate's
    skip_first_batches, makes a torch DataLoader of a loader's dataset and
    samplers: its batches would be samples without transforms."""
    raise InvalidArgument(
        "collate_fn: a datasetd.DataLoader has none, and a torch DataLoader "
        "that is made of its dataset and samplers has no transforms and no "
        "ranks: pass loader.as_torch() to the code that makes one (Trainer of "
        "transformers, accelerate.skip_first_batches, "
        "Accelerator.prepare_data_loader)"
    )


class JobLoader(Fixed, Generic[ArrayT]):
    """Implements DataLoader, whose documentation also applies here."""

    # As in torch's DataLoader, for what looks there: there are no workers.
    num_workers = 0
    persistent_workers = False
    prefetch_factor = None
    pin_memory = False
    pin_memory_device = ""
    in_order = True
    worker_init_fn = None
    multiprocessing_context = None
    collate_fn = staticmethod(_make_no_batch)

    def __init__(self, feeds: Feeds, order: Order, generator: Any) -> None:
        """`generator` is that of the seed."""
        self.generator = generator
        self.batch_size = order.batch_size
        self.shuffle = order.shuffle
        self.drop_last = order.drop_last
        self._feeds = feeds
        self._order = order
        self._position = Position(ReconnectingFeed(feeds, order.new_queue()))
        collective.warn_of_share(order, self._newest.num_samples)
        self._is_made = True

    @property
    def _newest(self) -> ReconnectingFeed:
        return self._position.newest

    # -- Iterating ------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the batches per epoch of this rank.

        Raises TypeError if a sampler does not know its length.
        """
        self._follow()
        order = self._order
        if order.partition is not None:
            return order.num_batches(
                order.partition.num_rows * order.ranks.world_size
            )
        if order.given is not None:
            return len(self._newest)
        return order.num_batches(self._num_positions())

    def _num_positions(self) -> int:
        """Returns the samples of the daemon's order in an epoch, or groups."""
        return self._order.num_positions(self._newest.num_samples)

    def __iter__(self) -> Iterator[Batch[ArrayT]]:
        self._newest.check_free()
        batches = EpochIterator(self)
        return accelerate.watch(self, benchmark.watch(self, batches))

    def _follow(self) -> None:
        """Takes the ranks of the job until they are fixed."""
        collective.follow(self._order, self._feeds, self._position)

    def _settle(self) -> None:
        """Determines the next epoch."""
        self._newest.check_free()
        collective.settle(self._order, self._feeds, self._position)

    # See Epochs.

    def _next_feed(self) -> ReconnectingFeed:
        self._settle()
        identity = self._identity()
        if not self._order.pad:
            identity["pad"] = False
        weighted = self._position.next.weighted
        if weighted is not None:
            identity["weights"] = weighted.hash
        collective.check(self._order, self._position, identity)
        return next_feed(self._feeds, self._order, self._position)

    def _begin(self, feed: ReconnectingFeed, epoch: int) -> None:
        self._position.begin(feed, epoch)
        collective.compare_samples(self._order, feed)

    def _move(self, feed: ReconnectingFeed) -> None:
        self._position.reached = feed.position

    def _num_left(self) -> int:
        start = self._position.next
        if not self._order.is_global:
            return len(self) - start.batch
        num_left = self._num_positions() - start.first_position
        return self._order.num_batches(num_left) - start.batch

    def _look(self, epoch: int) -> None:
        self._position.looked_at = epoch

    def peek(self) -> Batch[ArrayT]:
        """Returns the first batch of the next epoch.

        The next epoch returns the same Batch object again. Nothing else
        changes: running iterators continue, and state_dict() and the epoch stay
        the same. After set_epoch() or load_state_dict() peek() returns the
        first batch of the new position. A sampler is iterated for the epoch
        immediately. Raises OutOfRange if the next epoch has no batches.
        """
        self._settle()
        return peek(self._feeds, self._order, self._position)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next one.

        A loaded position within the same epoch is kept.
        """
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._position.looked_at = None
        self._order.tell_sampler(number)
        self._position.request(number)

    def _follow_epoch(self, epoch: int) -> None:
        """Like set_epoch(), for a framework that may count from the start of
        its process: only moves the loader forward."""
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._position.looked_at = None
        if number > self._position.next.epoch:
            self.set_epoch(number)

    def set_weights(self, weights: Weights) -> None:
        """Draws by other weights from the next epoch on.

        `weights` is what the argument `weights` of the loader may be. The
        epoch that is running, or whose rest load_state_dict() has set, keeps
        its weights. An epoch begun afterwards has the order of a loader that
        was made with these weights. The last call before an epoch counts.
        All ranks must set the same weights before the same epoch: they compare
        them at its first batch, as at that of the loader.

        A state says by which weights its epoch is drawn, and in next_weights
        by which the next one. To resume from a state whose two differ, make
        the loader with the weights of the epoch, call set_weights() with those
        of the next one, and then load_state_dict().

        Raises InvalidArgument if a weight is wrong, and ResourceExhausted if
        the memory budget has no room for one more table of weights: the loader
        has those before. FailedPrecondition if it was made without weights, or
        with partition.
        """
        self._newest.check_free()
        if self._order.weighted is None:
            raise FailedPrecondition(
                "set_weights: this loader does not draw by weights: pass "
                "weights= when it is made (equal ones are allowed)"
            )
        if self._order.node is not None:
            raise FailedPrecondition(
                "set_weights: with partition= the nodes agree on the weights "
                "once: make another loader"
            )
        weighted = self._order.weights_of(weights)
        self._newest.set_weights(weighted)
        self._feeds.weighted = weighted
        self._position.peeked = None
        self._order.weigh(weighted)

    def fetch(
        self, indices: Iterable[int], epoch: Optional[int] = None
    ) -> Batch[ArrayT]:
        """Returns a batch of the given samples, in this order.

        The loader's transforms are applied with the random parameters of the
        daemon's order in `epoch` (None: the last one begun). The batch is a
        copy in the framework's own memory, on the loader's device (with
        framework="dlpack" in host memory). The loader's position does not
        change.
        """
        if epoch is None:
            epoch = max(self._position.last_epoch, 0)
        return fetch(self._feeds, self._newest.device, indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position: the batch after the last one that any
        iterator returned.

        Contains plain values, the same for all ranks.
        """
        self._follow()
        order, position = self._order, self._position.present
        # The keys are those of every state of the job: torch.distributed.
        # checkpoint loads only the keys that a new loader's state has.
        state: Dict[str, Any] = {
            "version": VERSION,
            **self._identity(),
            "epoch": position.epoch,
            "batch": position.batch,
            "first_position": position.first_position,
        }
        if order.can_change_weights():
            state["next_weights"] = state["weights"]
            if position.weighted is not None and (
                position.batch or position.first_position
            ):
                state["weights"] = position.weighted.hash
        queue = self._newest.queue
        if queue is not None:
            known = position.order_state or {}
            state.update({key: known.get(key) for key in ORDER_KEYS})
            if "sampler_state" not in known and not position.batch:
                state["sampler_state"] = queue.order.present_state()
            state["sampler_epoch"] = known.get(
                "sampler_epoch", order.sampler_epoch()
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next epoch continue where state_dict() was taken.

        The loader takes the state's seed unless it was given one. Raises
        FailedPrecondition, naming the field, if the state belongs to another
        job. batch_size and world_size may differ: then the next epoch is the
        rest of the interrupted one, divided again, so that all ranks together
        get each sample once (or, with weights, each draw). With a sampler they
        may differ only at batch 0. The first batch checks that a sampler yields
        the same indices.
        """
        self._follow()
        order = self._order
        identity = self._identity()
        check_state(state)
        if not order.has_seed and "seed" in state:
            identity["seed"] = checked_int(
                "state_dict: seed", state["seed"], 0, 2**64 - 1
            )
        group_size = state.get("group_size")
        if order.group_size is None and group_size is not None:
            identity["group_size"] = checked_int(
                "state_dict: group_size", group_size, 1, 2**32 - 1
            )
        weighted = None
        if order.can_change_weights():
            # A state of a version before has one hash.
            state = {"next_weights": state.get("weights"), **state}
            identity["next_weights"] = identity["weights"]
            if state.get("batch") or state.get("first_position"):
                weighted = order.weighted_by(state.get("weights"))
                if weighted is not None:
                    identity["weights"] = weighted.hash
        epoch, index, first = checked_position(
            state,
            identity,
            self._num_positions() if order.is_global else None,
        )
        # A state of a version before does not say what the sampler was told.
        told = state.get("sampler_epoch", epoch)
        if told is not None:
            told = checked_int("state_dict: sampler_epoch", told, 0, 2**63 - 1)
        order_state = None
        if order.given is not None:
            order_state = checked_order_state(state, index)
        if not order.pad and index >= order.num_batches(
            self._num_positions() - first
        ):
            # Other ranks have more batches: what is left, is theirs.
            first += index * self.batch_size * self.world_size
            index = 0
        collective.set_seed(
            order, self._feeds, self._position, identity["seed"]
        )
        order.keep_seed()
        if told is not None:
            order.tell_sampler(told)
        order.group_size = identity.get("group_size", order.group_size)
        self._position.looked_at = None
        self._position.load(
            BatchPosition(epoch, index, first, order_state, weighted)
        )

    def _identity(self) -> Dict[str, Any]:
        return self._order.identity(self._newest)

    # -- What it is -----------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._order.ranks.rank

    @property
    def world_size(self) -> int:
        return self._order.ranks.world_size

    @property
    def seed(self) -> int:
        return self._order.seed

    @property
    def content_hash(self) -> str:
        """Hash of the dataset's samples, independent of paths and device."""
        return self._newest.content_hash

    @property
    def transforms_hash(self) -> str:
        return self._newest.transforms_hash

    @property
    def prefetch(self) -> int:
        """Batches produced ahead."""
        return self._newest.prefetch

    @property
    def num_samples(self) -> int:
        """Samples in the dataset, subset or mixture, over all ranks and
        nodes."""
        if self._order.node is not None:
            self._follow()
        if self._order.partition is not None:
            return self._order.partition.total
        return self._newest.num_samples

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process has waited for batches."""
        return self._feeds.waited_seconds

    # -- For others -----------------------------------------------------------

    @property
    def sampler(self) -> Any:
        """The sampler that was passed; else an object with the length of this
        rank's order that iterates over its indices in the next epoch."""
        given = self._order.given
        if given is None:
            return LoaderSampler(self)
        if given.sampler is not None:
            return given.sampler
        return getattr(given.batch_sampler, "sampler", None)

    @property
    def batch_sampler(self) -> Any:
        """The batch sampler that was passed; else an object that yields the
        lists of indices of this rank's batches in the next epoch."""
        given = self._order.given
        if given is None or given.batch_sampler is None:
            return LoaderBatchSampler(self)
        return given.batch_sampler

    def _instead_of_setting(self, name: str) -> str:
        parameters = (
            inspect.signature(kind.__init__).parameters
            for kind in type(self).__mro__
            if issubclass(kind, JobLoader)
        )
        if not hasattr(JobLoader, name) and not any(
            name in of_kind for of_kind in parameters
        ):
            return ""
        return (
            "the arguments of the loader determine the batches: make another "
            f"DataLoader({name}=...). Its load_state_dict(old.state_dict()) "
            "continues where this one is, if samples, seed, order and "
            "transforms are the same, and set_epoch(e) starts at any epoch"
        )

    def _iter_after(self, count: int) -> Iterator[Batch[ArrayT]]:
        """iter() without the first `count` batches, which are not produced."""
        if not count:
            return iter(self)
        collective.settle(self._order, self._feeds, self._position)
        start = self._position.next
        if start.order_state is not None:
            raise FailedPrecondition(
                "skip_first_batches: load_state_dict() has set the position in "
                "the sampler's order: no batches can be skipped from there"
            )
        if self._order.given is not None or count < self._num_left():
            self._position.load(start._replace(batch=start.batch + count))
            return iter(self)
        self._position.load(BatchPosition(start.epoch + 1, 0))
        return iter(())

    def _is_random(self) -> bool:
        return self._order.is_random

    def _has_partition(self) -> bool:
        return self._order.node is not None

    def _num_padding(self) -> int:
        """Returns how many samples the next epoch repeats, over all ranks."""
        self._follow()
        first = self._position.next.first_position
        return self._order.num_padding(self._num_positions() - first)

    def _num_rows(self) -> int:
        """Returns the rows of this rank in a whole epoch, before batches are
        dropped."""
        self._follow()
        return self._order.num_own_rows(self._num_positions())

    def _next_indices(self) -> Iterator[List[Any]]:
        """Yields the sample indices of the batches of the next epoch, without
        beginning it; those of groups as lists."""
        self._settle()
        return indices(self._feeds, self._order, self._position.next)

    def as_torch(self) -> "torch.utils.data.DataLoader[Any]":
        """Returns a torch.utils.data.DataLoader over this loader's batches.

        For frameworks that require one, such as Lightning Fabric, Accelerate
        and the Trainer of transformers. It has a batch_sampler, no batch_size
        and no workers; its items, length, epochs, set_epoch, state_dict and
        load_state_dict are those of this loader. The items already are this
        rank's share, and no framework divides them again. skip_first_batches
        of Accelerate takes no time.
        """
        self._position.are_looks_meant = not self._is_random()
        return torch_loader.make(self)

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """Timeout in seconds; 0: no limit. May be set."""
        return self._feeds.timeout or 0

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._feeds.timeout = loader_timeout(seconds)

    def close(self) -> None:
        """Ends all iterators. Batches that are still held stay valid."""
        self._feeds.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.DataLoader belongs to its process: make one in the "
            "other process, and pass state_dict() to it"
        )

    def __repr__(self) -> str:
        batches = self._order.description(self._newest.num_batches)
        seed = f"seed={self.seed}, " if self.seed or self.shuffle else ""
        share = (
            f"rank {self.rank} of {self.world_size}, "
            if self.world_size > 1
            else ""
        )
        return (
            f"datasetd.DataLoader({self._order.dataset.name!r}, "
            f"batch_size={self.batch_size}, {seed}{share}{batches})"
        )
