"""JobLoader: iterates over the epochs of an open job."""

from __future__ import annotations

import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Generic,
    Iterable,
    Iterator,
    Mapping,
    NoReturn,
    Optional,
    TypeVar,
)

from .._arguments import checked_int, loader_timeout
from .._batches.batch import ArrayT, Batch
from .._datasets.parts import whole_name
from .._feed.reconnecting_feed import Job
from .._ranks.agreement import Agreement
from ..errors import FailedPrecondition, InvalidArgument
from . import accelerate, benchmark, torch_loader
from .collective import Collective
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
from .share import Share

if TYPE_CHECKING:
    import torch

_Self = TypeVar("_Self", bound="JobLoader[Any]")


class EpochFollower:
    """A loader's `sampler` where it was given none: what Lightning tells of
    epochs goes to the loader."""

    def __init__(self, loader: "JobLoader[Any]") -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        loader = self._loader()
        if loader is not None:
            loader._follow_epoch(epoch)


class JobLoader(Generic[ArrayT]):
    """The work of a DataLoader, whose documentation holds here, too."""

    def __init__(
        self, job: Job, share: Share, order: JobOrder, feeds: Feeds
    ) -> None:
        self.batch_size = order.batch_size
        self.shuffle = order.shuffle
        self.drop_last = order.drop_last
        self._job = job
        self._share = share
        self._order = order
        self._feeds = feeds
        self._start = NextEpoch()
        agreement = Agreement(
            whole_name(job.dataset.name), job.options["name"]
        )
        self._collective = Collective(
            share, order, feeds, self._start, agreement
        )

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
        return batches_per_epoch(
            self.num_samples, self.batch_size, self.world_size, self.drop_last
        )

    def __iter__(self) -> Iterator[Batch[ArrayT]]:
        return accelerate.watch(self, benchmark.watch(self, self._iterate()))

    def _iterate(self) -> Iterator[Batch[ArrayT]]:
        """iter() for the package's own loaders: no part of the job's epochs."""
        self._settle()
        self._start.repeat_unused()
        self._collective.check(self._identity())
        epoch, _ = self._start.position()
        iterator = self._feeds.iterate(self._start)
        self._start.begin(epoch, iterator.use)
        return iterator

    def _settle(self) -> None:
        """Fixes what the next epoch is."""
        self._feeds.newest.check_free()
        self._collective.settle()
        self._start.forget_unused()

    def peek(self) -> Batch[ArrayT]:
        """Returns the first batch that the next iter() will give.

        It is the same Batch object. Nothing else changes: the next iter() gives
        it again, iterators under way go on, and state_dict() and the epoch stay
        as they are. set_epoch() and load_state_dict() make a new choice. A
        sampler is iterated for the epoch now, instead of by iter(). Raises
        OutOfRange if the next epoch has no batches.
        """
        self._settle()
        return self._feeds.peek(self._start)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iter() begin at `epoch`.

        A loaded position within the same epoch is kept.
        """
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._start.forget_unused()
        self._feeds.forget_peeked()
        self._order.tell_sampler(number)
        self._start.request(number)

    def _follow_epoch(self, epoch: int) -> None:
        """As set_epoch(), by a framework that may count from the start of its
        process instead: moves the loader forward only. As torch's samplers,
        also moves an iterator that is still unused, which may be made anew."""
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        unused = self._start.unused()
        if unused is None or self._order.is_given:
            if number > self._start.position()[0]:
                self.set_epoch(number)
            return
        if number > unused.epoch:
            self._feeds.newest.check_free()
            self._feeds.move(unused, number)
            self._start.move_unused(number)
        if number == unused.epoch:
            self._start.allow_repeat()

    def fetch(
        self, indices: Iterable[int], epoch: Optional[int] = None
    ) -> Batch[ArrayT]:
        """Returns a batch of the given samples, in this order.

        The loader's transforms are applied with the draws of the daemon's
        order in `epoch` (None: the last one begun). The loader's position does
        not change: the first call opens a small separate feed, and a call with
        more rows than before reopens it. Other calls cost one round trip and
        producing the batch.
        """
        if epoch is None:
            epoch = max(self._start.last_epoch, 0)
        return self._feeds.fetch(indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position: the batch after the last one returned,
        by whichever iterator.

        Contains plain values, the same for all ranks.
        """
        self._collective.follow()
        self._start.forget_unused()
        progress = self._feeds.progress
        position, first = progress.position, progress.first_position
        order = progress.order_state
        asked_for = self._start.asked_for()
        if asked_for is not None:
            position, first = asked_for, self._start.first_position
            order = self._start.order_state or {}
        # The keys are those of every state of the job: torch.distributed.
        # checkpoint loads only the keys that a new loader's state has.
        state: Dict[str, Any] = {
            "version": VERSION,
            **self._identity(),
            "epoch": position[0],
            "batch": position[1],
            "first_position": first,
        }
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
        """Makes the next iter() continue where state_dict() was taken.

        The loader takes the state's seed unless it was given one. Raises
        FailedPrecondition, naming the field, if the state belongs to another
        job. batch_size and world_size may differ: then the next epoch is the
        rest of the one that was interrupted, cut anew, so that all ranks
        together get each sample once (or, with weights, each draw). With a
        sampler they may differ at batch 0 only. iter() checks that a sampler
        yields the same indices.
        """
        self._collective.follow()
        identity = self._identity()
        check_state(state)
        if not self._share.has_seed and "seed" in state:
            identity["seed"] = checked_int(
                "state_dict: seed", state["seed"], 0, 2**64 - 1
            )
        queue = self._feeds.newest.queue
        position, first = checked_position(
            state,
            identity,
            self.num_samples if self._order.is_global else None,
        )
        # A state of a version before does not say what the sampler was told.
        told = state.get("sampler_epoch", position[0])
        if told is not None:
            told = checked_int("state_dict: sampler_epoch", told, 0, 2**63 - 1)
        order_state = None
        if queue is not None and self._order.is_given:
            order_state = checked_order_state(state, position[1])
        self._collective.set_seed(identity["seed"])
        self._share.keep_seed()
        self._feeds.forget_peeked()
        if told is not None:
            self._order.tell_sampler(told)
        self._start.load(position, first, order_state)

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
        """Samples in the dataset or subset, over all ranks and nodes."""
        if self._order.partition is not None:
            self._collective.follow()
            return self._order.partition.total
        return self._feeds.newest.num_samples

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process has waited for batches."""
        return self._job.waited.seconds

    # -- For others -----------------------------------------------------------

    def _iter_after(self, count: int) -> Iterator[Batch[ArrayT]]:
        """iter() without the first `count` batches, which are not made."""
        if not count:
            return iter(self)
        self._collective.settle()
        self._start.forget_unused()
        self._feeds.forget_peeked()
        if self._start.order_state is not None:
            raise FailedPrecondition(
                "skip_first_batches: load_state_dict() has set the place in "
                "the sampler's order: no batches can be skipped from there"
            )
        epoch, index = self._start.position()
        index += count
        first = self._start.first_position
        partition = self._order.partition
        num_batches = (
            batches_per_epoch(
                self.num_samples - first,
                self._order.batch_size,
                self.world_size,
                self._order.drop_last,
            )
            if partition is None
            else len(partition)
        )
        self._start.load((epoch, index), first, None)
        is_known = self._feeds.newest.queue is None or partition is not None
        if is_known and index >= num_batches:
            self._start.skip(epoch)
            return iter(())
        return iter(self)

    def _has_partition(self) -> bool:
        return self._order.partition is not None

    def _num_padding(self) -> int:
        """Returns how many samples the epoch repeats, over all ranks."""
        order = self._order
        if order.partition is not None and order.is_partition:
            return order.partition.num_padding_of_all()
        if order.drop_last or order.weighted or not order.is_global:
            return 0
        first = self._feeds.progress.first_position
        return -(self.num_samples - first) % self.world_size

    @property
    def collate_fn(self) -> NoReturn:
        """Raises InvalidArgument: read by what makes a torch DataLoader of a
        loader's dataset and samplers, such as Accelerate's skip_first_batches.
        Its batches would be samples without transforms."""
        raise InvalidArgument(
            "collate_fn: a datasetd.DataLoader has none, and a DataLoader of "
            "torch that is made of its parts has no transforms and no ranks: "
            "give loader.as_torch() to what makes one (Trainer of "
            "transformers, accelerate.skip_first_batches, "
            "Accelerator.prepare_data_loader)"
        )

    def as_torch(self) -> "torch.utils.data.DataLoader[Any]":
        """Returns a torch.utils.data.DataLoader over this loader's batches.

        For frameworks that insist on one, such as Lightning Fabric, Accelerate
        and the Trainer of transformers. It has a batch_sampler, no batch_size
        and no workers; its items, length, epochs, set_epoch, state_dict and
        load_state_dict are this loader's. They are this rank's share already,
        and no framework divides them again. skip_first_batches of Accelerate
        is a seek.
        """
        return torch_loader.make(self)

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """Timeout in seconds; None: no limit. May be set."""
        return self._job.timeout

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
            "other, and hand over state_dict()"
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
