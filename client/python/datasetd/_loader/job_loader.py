"""JobLoader: iterates over the epochs of an open job."""

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
from .._datasets.parts import whole_name
from .._feed.reconnecting_feed import Job, ReconnectingFeed
from .._order.weights import Weights
from .._ranks.agreement import Agreement
from .._warnings import warn_once
from ..errors import FailedPrecondition, InvalidArgument
from . import accelerate, benchmark, torch_loader
from .collective import Collective
from .epochs import EpochIterator
from .feeds import Feeds
from .job_order import JobOrder
from .next_epoch import NextEpoch
from .resume import (
    ORDER_KEYS,
    VERSION,
    batches_per_epoch,
    check_state,
    checked_order_state,
    checked_position,
)
from .samplers import LoaderBatchSampler, LoaderSampler
from .share import Share

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

    def __init__(
        self,
        job: Job,
        share: Share,
        order: JobOrder,
        feeds: Feeds,
        generator: Any,
    ) -> None:
        """`generator` is that of the seed."""
        self.generator = generator
        self.batch_size = order.batch_size
        self.shuffle = order.shuffle
        self.drop_last = order.drop_last
        self._job = job
        self._share = share
        self._order = order
        self._feeds = feeds
        self._start = NextEpoch()
        # The epoch of an iterator that was dropped after its first batch.
        self._looked_at: Optional[int] = None
        self._is_wrapped = False  # by as_torch()
        agreement = Agreement(
            whole_name(job.dataset.name), job.options["name"]
        )
        self._collective = Collective(
            share, order, feeds, self._start, agreement, job.dataset.name
        )
        self._collective.warn_of_share()
        self._is_made = True

    # -- Iterating ------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the batches per epoch of this rank.

        Raises TypeError if a sampler does not know its length.
        """
        self._collective.follow()
        if self._order.partition is not None:
            return len(self._order.partition)
        feed = self._feeds.newest
        if feed.queue is not None:
            return len(feed)
        return self._num_batches(self._num_positions())

    def _num_positions(self) -> int:
        """Returns the samples of the daemon's order in an epoch, or groups."""
        return self._order.num_positions(self.num_samples)

    def _num_batches(self, num_positions: int) -> int:
        """Returns this rank's batches of the last `num_positions` of an epoch.
        REQUIRES: the daemon makes the order."""
        return batches_per_epoch(
            num_positions,
            self.batch_size,
            self.world_size,
            self.drop_last,
            0 if self._order.pad else self.rank,
        )

    def __iter__(self) -> Iterator[Batch[ArrayT]]:
        self._feeds.newest.check_free()
        batches = EpochIterator(self)
        return accelerate.watch(self, benchmark.watch(self, batches))

    def _settle(self) -> None:
        """Determines the next epoch."""
        self._feeds.newest.check_free()
        self._collective.settle()

    # See Epochs.

    def _next_feed(self) -> ReconnectingFeed:
        self._settle()
        identity = self._identity()
        if not self._order.pad:
            identity["pad"] = False
        if self._start.weighted is not None:
            identity["weights"] = self._start.weighted.hash
        self._collective.check(identity, self._start.position()[0])
        return self._feeds.next_feed(self._start)

    def _begin(self, feed: ReconnectingFeed, epoch: int) -> None:
        self._start.begin(epoch)
        self._feeds.begin(feed)
        self._collective.begin(epoch)
        self._collective.compare_samples(feed)
        looked_at, self._looked_at = self._looked_at, None
        # A framework may take one batch of each epoch on purpose.
        is_meant = self._is_wrapped and not self._is_random()
        if looked_at is not None and not is_meant:
            warn_once(
                "look",
                f"the iterator of epoch {looked_at} was dropped after its "
                f"first batch, and epoch {epoch} begins: every iter() that "
                "returns a batch begins an epoch, as in next(iter(loader)). To "
                "look at a batch use loader.peek(), which begins none; "
                "set_epoch() sets the next epoch",
            )

    def _move(self, feed: ReconnectingFeed) -> None:
        self._feeds.move(feed)

    def _num_left(self) -> int:
        index = self._start.position()[1]
        if not self._order.is_global:
            return len(self) - index
        num_left = self._num_positions() - self._start.first_position
        return self._num_batches(num_left) - index

    def _look(self, epoch: int) -> None:
        self._looked_at = epoch

    def peek(self) -> Batch[ArrayT]:
        """Returns the first batch of the next epoch.

        The next epoch returns the same Batch object again. Nothing else
        changes: running iterators continue, and state_dict() and the epoch stay
        the same. After set_epoch() or load_state_dict() peek() returns the
        first batch of the new position. A sampler is iterated for the epoch
        immediately. Raises OutOfRange if the next epoch has no batches.
        """
        self._settle()
        return self._feeds.peek(self._start)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next one.

        A loaded position within the same epoch is kept.
        """
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._looked_at = None
        self._feeds.forget_peeked()
        self._order.tell_sampler(number)
        self._start.request(number)

    def _follow_epoch(self, epoch: int) -> None:
        """Like set_epoch(), for a framework that may count from the start of
        its process: only moves the loader forward."""
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._looked_at = None
        if number > self._start.position()[0]:
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
        self._feeds.newest.check_free()
        if self._order.weighted is None:
            raise FailedPrecondition(
                "set_weights: this loader does not draw by weights: pass "
                "weights= when it is made (equal ones are allowed)"
            )
        if self._order.partition is not None:
            raise FailedPrecondition(
                "set_weights: with partition= the nodes agree on the weights "
                "once: make another loader"
            )
        weighted = self._order.weights_of(weights)
        self._feeds.set_weights(weighted)
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
            epoch = max(self._start.last_epoch, 0)
        return self._feeds.fetch(indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position: the batch after the last one that any
        iterator returned.

        Contains plain values, the same for all ranks.
        """
        self._collective.follow()
        progress = self._feeds.progress
        position, first = progress.position, progress.first_position
        order, weighted = progress.order_state, progress.weighted
        asked_for = self._start.asked_for()
        if asked_for is not None:
            position, first = asked_for, self._start.first_position
            order = self._start.order_state or {}
            weighted = self._start.weighted
        # The keys are those of every state of the job: torch.distributed.
        # checkpoint loads only the keys that a new loader's state has.
        state: Dict[str, Any] = {
            "version": VERSION,
            **self._identity(),
            "epoch": position[0],
            "batch": position[1],
            "first_position": first,
        }
        if self._order.can_change_weights():
            state["next_weights"] = state["weights"]
            if weighted is not None and (position[1] or first):
                state["weights"] = weighted.hash
        queue = self._feeds.current.queue
        if queue is not None and self._order.is_given:
            state.update({key: order.get(key) for key in ORDER_KEYS})
            if "sampler_state" not in order and state["batch"] == 0:
                state["sampler_state"] = queue.order.present_state()
            state["sampler_epoch"] = order.get(
                "sampler_epoch", self._order.sampler_epoch()
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
        self._collective.follow()
        identity = self._identity()
        check_state(state)
        if not self._share.has_seed and "seed" in state:
            identity["seed"] = checked_int(
                "state_dict: seed", state["seed"], 0, 2**64 - 1
            )
        queue = self._feeds.newest.queue
        grouping = self._order.grouping
        group_size = state.get("group_size")
        if grouping.size is None and group_size is not None:
            identity["group_size"] = checked_int(
                "state_dict: group_size", group_size, 1, 2**32 - 1
            )
        weighted = None
        if self._order.can_change_weights():
            # A state of a version before has one hash.
            state = {"next_weights": state.get("weights"), **state}
            identity["next_weights"] = identity["weights"]
            if state.get("batch") or state.get("first_position"):
                weighted = self._order.weighted_by(state.get("weights"))
                if weighted is not None:
                    identity["weights"] = weighted.hash
        position, first = checked_position(
            state,
            identity,
            self._num_positions() if self._order.is_global else None,
        )
        # A state of a version before does not say what the sampler was told.
        told = state.get("sampler_epoch", position[0])
        if told is not None:
            told = checked_int("state_dict: sampler_epoch", told, 0, 2**63 - 1)
        order_state = None
        if queue is not None and self._order.is_given:
            order_state = checked_order_state(state, position[1])
        if not self._order.pad:
            epoch, index = position
            if index >= self._num_batches(self._num_positions() - first):
                # Other ranks have more batches: what is left, is theirs.
                first += index * self.batch_size * self.world_size
                position = epoch, 0
        self._collective.set_seed(identity["seed"])
        self._share.keep_seed()
        self._looked_at = None
        self._feeds.forget_peeked()
        if told is not None:
            self._order.tell_sampler(told)
        grouping.size = identity.get("group_size", grouping.size)
        self._start.load(position, first, order_state, weighted)

    def _identity(self) -> Dict[str, Any]:
        """Returns the values that must be equal to resume from a state."""
        return {
            "content_hash": self.content_hash,
            "seed": self.seed,
            "batch_size": self._order.batch_size,
            "drop_last": self._order.drop_last,
            "sampler": self._order.kind,
            "world_size": self.world_size,
            "transforms_hash": self.transforms_hash,
            **self._order.identity(),
        }

    # -- What it is -----------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._share.ranks.rank

    @property
    def world_size(self) -> int:
        return self._share.ranks.world_size

    @property
    def seed(self) -> int:
        return self._share.seed

    @property
    def content_hash(self) -> str:
        """Hash of the dataset's samples, independent of paths and device."""
        return self._feeds.newest.content_hash

    @property
    def transforms_hash(self) -> str:
        return self._feeds.newest.transforms_hash

    @property
    def prefetch(self) -> int:
        """Batches produced ahead."""
        return self._feeds.newest.prefetch

    @property
    def num_samples(self) -> int:
        """Samples in the dataset, subset or mixture, over all ranks and
        nodes."""
        if self._order.partition is not None:
            self._collective.follow()
            return self._order.partition.total
        return self._feeds.newest.num_samples

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process has waited for batches."""
        return self._job.waited.seconds

    # -- For others -----------------------------------------------------------

    @property
    def sampler(self) -> Any:
        """The sampler that was passed; else an object with the length of this
        rank's order that iterates over its indices in the next epoch."""
        sampler, batch_sampler = self._order.given
        if sampler is not None:
            return sampler
        if batch_sampler is not None:
            return getattr(batch_sampler, "sampler", None)
        return LoaderSampler(self)

    @property
    def batch_sampler(self) -> Any:
        """The batch sampler that was passed; else an object that yields the
        lists of indices of this rank's batches in the next epoch."""
        _, batch_sampler = self._order.given
        if batch_sampler is not None:
            return batch_sampler
        return LoaderBatchSampler(self)

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
        self._collective.settle()
        self._feeds.forget_peeked()
        if self._start.order_state is not None:
            raise FailedPrecondition(
                "skip_first_batches: load_state_dict() has set the position in "
                "the sampler's order: no batches can be skipped from there"
            )
        epoch, index = self._start.position()
        is_left = self._order.is_given or count < self._num_left()
        self._start.load(
            (epoch, index + count),
            self._start.first_position,
            None,
            self._start.weighted,
        )
        if not is_left:
            self._start.skip(epoch)
            return iter(())
        return iter(self)

    def _is_random(self) -> bool:
        return self._order.is_random

    def _has_partition(self) -> bool:
        return self._order.partition is not None

    def _num_padding(self) -> int:
        """Returns how many samples the next epoch repeats, over all ranks."""
        self._collective.follow()
        order = self._order
        if order.weighted or order.draws_windows:
            return 0
        if order.partition is not None:
            return order.partition.num_padding_of_all()
        if (
            order.drop_last
            or order.groups
            or not order.pad
            or order.is_given
        ):
            return 0
        first = self._start.first_position
        return -(self._num_positions() - first) % self.world_size

    def _num_rows(self) -> int:
        """Returns the rows of this rank in a whole epoch, before batches are
        dropped."""
        self._collective.follow()
        partition = self._order.partition
        if partition is not None:
            return partition.num_rows
        positions, (rank, size) = self._num_positions(), self._share.ranks
        rows = self._order.grouping.num_rows
        if self.drop_last:
            return positions // size * rows
        rest = 0 if self._order.pad else rank
        return -(-max(0, positions - rest) // size) * rows

    def _next_indices(self) -> Iterator[List[Any]]:
        """Yields the sample indices of the batches of the next epoch, without
        beginning it; those of groups as lists."""
        self._settle()
        return self._feeds.indices(self._start)

    def as_torch(self) -> "torch.utils.data.DataLoader[Any]":
        """Returns a torch.utils.data.DataLoader over this loader's batches.

        For frameworks that require one, such as Lightning Fabric, Accelerate
        and the Trainer of transformers. It has a batch_sampler, no batch_size
        and no workers; its items, length, epochs, set_epoch, state_dict and
        load_state_dict are those of this loader. The items already are this
        rank's share, and no framework divides them again. skip_first_batches
        of Accelerate takes no time.
        """
        self._is_wrapped = True
        return torch_loader.make(self)

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """Timeout in seconds; 0: no limit. May be set."""
        return self._job.timeout or 0

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._feeds.set_timeout(loader_timeout(seconds))

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
        batches = self._order.description(self._feeds.newest.num_batches)
        seed = f"seed={self.seed}, " if self.seed or self.shuffle else ""
        share = (
            f"rank {self.rank} of {self.world_size}, "
            if self.world_size > 1
            else ""
        )
        return (
            f"datasetd.DataLoader({self._job.dataset.name!r}, "
            f"batch_size={self.batch_size}, {seed}{share}{batches})"
        )
