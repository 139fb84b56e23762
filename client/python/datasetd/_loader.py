"""DataLoader: a job's batches from a dataset."""

from __future__ import annotations

import array
import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Generic,
    Iterable,
    Iterator,
    Literal,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Union,
    overload,
)

from . import (
    _accelerate,
    _benchmark,
    _frameworks,
    _nodes,
    _ranks,
    _sampling,
    _seeds,
    _torch_arguments,
    _torch_loader,
    _weights,
)
from ._agreement import Agreement
from ._ahead import SentAhead
from ._arguments import checked_int, checked_seconds, loader_timeout
from ._batch import ArrayT, Batch
from ._dataset import Dataset
from ._epochs import EpochIterator, Place, SamplerIterator, Use
from ._feed_options import (
    check_order_arguments,
    check_own_subset,
    chosen_fields,
    fields_message,
)
from ._fetch import Fetcher, Requested
from ._held import Held
from ._job_feed import Job, JobFeed
from ._partition import Partition, seed_of
from ._parts import check_node, whole_name
from ._resume import (
    Position,
    batches_per_epoch,
    checked_order_state,
    checked_position,
    make_state,
)
from ._subset import Samples, whole_of
from .errors import (
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    ResourceExhausted,
)
from .transforms._pipeline import Pipelines

if TYPE_CHECKING:
    import numpy
    import torch

Layout = Union[str, Mapping[str, str]]
FieldNames = Union[None, str, Sequence[str]]
BatchSampler = Iterable[Iterable[int]]


class _Before(NamedTuple):
    """Where a loader was before iter(), and what became of the iterator."""

    use: Use
    loaded: Optional[Position]
    loaded_order: Optional[Dict[str, Any]]
    requested_epoch: Optional[int]
    last_epoch: int


class DataLoader(Generic[ArrayT]):
    """Iterates over the epochs of one job.

    Each job has its own order, seed, augmentation, batch size and pace; the
    samples are resident once for all jobs. docs/from-torch.md compares the
    arguments with those of torch.utils.data.DataLoader.

    Args:
      dataset: returned by Client.load_dataset, push_dataset or get_dataset; or
        a Subset of it, datasetd's or torch's: indices of a sampler, and
        weights, are then the subset's, those of a batch and of fetch() the
        dataset's.
      batch_size: rows per batch of this rank.
      shuffle: a new order for every epoch, drawn from (seed, epoch).
      sampler: an iterable of sample indices, such as a
        torch.utils.data.Sampler or a list: the order of each epoch. Excludes
        shuffle.
      batch_sampler: an iterable of lists of indices, one per batch. Excludes
        shuffle, sampler and drop_last. batch_size is then the largest batch,
        unless batch_sampler.batch_size is set.
      seed: seed of order and augmentation. None: with shuffle or weights drawn
        from `generator`, else from torch's default generator if torch is
        imported (so that torch.manual_seed governs it), else at random; equal
        on all ranks. Without both 0. Attribute `seed` tells it.
      generator: draws the seed: a torch.Generator or numpy.random.Generator.
      drop_last: drops an incomplete last batch; else it is short.
      rank, world_size: this rank's share of one global order. "auto": those of
        torch.distributed if it is initialised, up to the first iter(); else
        rank 0 of 1.
      partition: "node" or (index, count): each node holds a part of the
        samples, and its ranks divide that alone. See below.
      prefetch: batches produced ahead, 1 to 62; None: as many as fit 64 MiB,
        within 4 to 32.
      transforms: a list, for the only image field (with several for `image`)
        or the `fields` of each op; a dict of lists by field; or a Compose of
        torchvision, in the place of a list.
      layout: "NCHW" or "NHWC", or a dict by field. The shape is [N, C, H, W]
        either way; NHWC shows in the strides (torch.channels_last).
      framework: "torch", "numpy", "jax" or "dlpack"; None: torch if it is
        installed, else NumPy.
      weights: one number per sample (of `subset`, if given), at most
        16,777,216: each draw of an epoch takes a sample in proportion to its
        weight, with replacement, as torch's WeightedRandomSampler. The daemon
        draws. "balanced": all classes of the label field are equally frequent.
        Excludes shuffle and samplers.
      subset: distinct sample indices: the loader behaves as if the dataset
        held only these samples, in this order.
      fields: names of the fields of a batch, in order; None: all. The choice
        does not change what random ops draw.
      views: a dict of lists of transforms: several augmentations of each image,
        such as {"a": [...], "b": [...]}. Each is a field of the batch, in the
        place of the image (the only one, or `image`), and draws by itself;
        the first draws what `transforms` would.
      on_held: "copy" or "error": what next() does when the job keeps many
        batches; see below.
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch, and for the daemon to accept a
        sampler's indices; None or 0: no limit.
      reconnect: seconds to wait, after the daemon was lost, until a daemon has
        the dataset again; iteration then continues at the exact next batch. 0
        or False raises DaemonGone at once, True is 60. Also applies to
        fetch().
      torch_arguments: torch's num_workers, pin_memory and the like are ignored
        with a warning.

    Arguments that wrappers use are attributes, as in torch's DataLoader:
    dataset, batch_size, drop_last, sampler, batch_sampler, timeout.

    iter() begins at the loaded position after load_state_dict; else at epoch e
    after set_epoch(e); else at the epoch after the last one begun, finished or
    not (first 0). An iterator that is dropped before its first batch has begun
    nothing. Iterators of one loader are independent: a second one, made
    while the first exists and has not ended, opens buffers of its own. peek()
    looks at a batch without beginning an epoch.

    Batches share the daemon's memory, which has room for prefetch + 2 of them,
    and stay valid until they are freed, even after close(). Fields that are no
    images and have at most 64 KiB in a full batch, such as labels, are copies
    in the framework's own memory. When the job keeps three quarters of the
    room, further batches are copies altogether, and a warning says so once; or
    with on_held="error" next() raises AllSlotsHeld when all is kept. With
    framework="dlpack", which has no memory of its own, nothing is copied.

    A sampler runs in this process, ahead of the batches, and is iterated once
    per epoch, by iter(). set_epoch() and load_state_dict() pass it the epoch
    if it has set_epoch. A sampler may repeat an index, so augmentation is
    seeded by position, not by sample. To resume, a sampler with state_dict and
    load_state_dict continues from its state; any other is run again up to the
    batch, and it is an error if it yields different indices. With a sampler,
    rank and world_size only separate the random draws of the ranks.

    If torch.distributed has several processes and no seed is given, shuffle
    and weights make this a collective call, in which rank 0's seed is sent to
    all; so is the first iter() if it was initialised only later.

    Ranks of torch.distributed or jax.distributed compare content hash,
    transforms, seed, subset and weights at the first iter(): without waiting
    for each other, with the rank that came first. FailedPrecondition names the
    ranks and what differs; ranks that came before raise it at their second
    iter().

    With partition= the dataset is this node's part, as load and push_dataset
    with part= make it. "node" is the node of the launcher (torchrun, Slurm).
    All ranks have equally many batches of the same sizes: with drop_last as
    many rows as the rank with the fewest samples, and the rest of the order,
    which shuffle changes each epoch, is left out; else as many as the rank
    with the most, and ranks with fewer repeat the beginning of their node's
    order (Batch.num_padding). The first of iter, len, num_samples, peek,
    state_dict and load_state_dict waits for all ranks. Node 0 has `seed`,
    other nodes seeds made of it. Excludes samplers; weights are of the node's
    samples. To resume within an epoch, nodes, parts and ranks must be the
    same. At the first batch of an epoch they may be others, with as many
    samples altogether. Indices of a batch are the part's.

    For one thread at a time, except close(), which ends another thread's wait.
    Belongs to one process: it cannot be pickled or used after fork(). Ctrl-C
    ends a wait without losing a batch.

    Raises InvalidArgument, which names the argument; ResourceExhausted over
    the memory budget or a limit; DaemonGone; with partition FailedPrecondition
    on all ranks if these do not fit together; and while iterating
    DeadlineExceeded, AllSlotsHeld, DaemonGone, DaemonDraining,
    DatasetUnloaded, Closed, UsedAfterFork.
    """

    # Whether a sampler's random draws are seeded by sample.
    _draws_by_sample = False

    @overload
    def __init__(
        self: "DataLoader[torch.Tensor]",
        dataset: Samples,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        seed: Optional[int] = ...,
        generator: Any = ...,
        drop_last: bool = ...,
        rank: _ranks.Number = ...,
        world_size: _ranks.Number = ...,
        partition: Optional[_nodes.Given] = ...,
        prefetch: Optional[int] = ...,
        transforms: Pipelines = ...,
        layout: Layout = ...,
        framework: Literal[None, "torch"] = ...,
        weights: Optional[_weights.Weights] = ...,
        subset: Optional[Iterable[int]] = ...,
        fields: FieldNames = ...,
        views: Optional[Mapping[str, Pipelines]] = ...,
        on_held: str = ...,
        name: str = ...,
        timeout: Optional[float] = ...,
        reconnect: Union[bool, float] = ...,
        **torch_arguments: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: "DataLoader[numpy.ndarray[Any, Any]]",
        dataset: Samples,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        seed: Optional[int] = ...,
        generator: Any = ...,
        drop_last: bool = ...,
        rank: _ranks.Number = ...,
        world_size: _ranks.Number = ...,
        partition: Optional[_nodes.Given] = ...,
        prefetch: Optional[int] = ...,
        transforms: Pipelines = ...,
        layout: Layout = ...,
        framework: Literal["numpy"],
        weights: Optional[_weights.Weights] = ...,
        subset: Optional[Iterable[int]] = ...,
        fields: FieldNames = ...,
        views: Optional[Mapping[str, Pipelines]] = ...,
        on_held: str = ...,
        name: str = ...,
        timeout: Optional[float] = ...,
        reconnect: Union[bool, float] = ...,
        **torch_arguments: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: "DataLoader[Any]",
        dataset: Samples,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        seed: Optional[int] = ...,
        generator: Any = ...,
        drop_last: bool = ...,
        rank: _ranks.Number = ...,
        world_size: _ranks.Number = ...,
        partition: Optional[_nodes.Given] = ...,
        prefetch: Optional[int] = ...,
        transforms: Pipelines = ...,
        layout: Layout = ...,
        framework: str,
        weights: Optional[_weights.Weights] = ...,
        subset: Optional[Iterable[int]] = ...,
        fields: FieldNames = ...,
        views: Optional[Mapping[str, Pipelines]] = ...,
        on_held: str = ...,
        name: str = ...,
        timeout: Optional[float] = ...,
        reconnect: Union[bool, float] = ...,
        **torch_arguments: Any,
    ) -> None: ...

    def __init__(
        self,
        dataset: Samples,
        batch_size: int = 1,
        shuffle: Optional[bool] = False,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[BatchSampler] = None,
        *,
        seed: Optional[int] = None,
        generator: Any = None,
        drop_last: bool = False,
        rank: _ranks.Number = "auto",
        world_size: _ranks.Number = "auto",
        partition: Optional[_nodes.Given] = None,
        prefetch: Optional[int] = None,
        transforms: Pipelines = (),
        layout: Layout = "NCHW",
        framework: Optional[str] = None,
        weights: Optional[_weights.Weights] = None,
        subset: Optional[Iterable[int]] = None,
        fields: FieldNames = None,
        views: Optional[Mapping[str, Pipelines]] = None,
        on_held: str = "copy",
        name: str = "",
        timeout: Optional[float] = None,
        reconnect: Union[bool, float] = False,
        **torch_arguments: Any,
    ) -> None:
        if torch_arguments:
            _torch_arguments.check(
                torch_arguments, inspect.signature(DataLoader).parameters
            )
        whole, own_subset = whole_of(dataset)
        if not isinstance(whole, Dataset):
            raise InvalidArgument(
                f"dataset={dataset!r}; expected what Client.load_dataset, "
                "push_dataset or get_dataset returned, or a Subset of it"
            )
        self.dataset = dataset
        self._whole = whole
        self.batch_size = checked_int("batch_size", batch_size, 1, 2**32 - 1)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self._asked_ranks = rank, world_size
        self.rank, self.world_size = _ranks.resolve(rank, world_size)
        resolved = _frameworks.resolve(framework)
        if not isinstance(name, str):
            raise InvalidArgument(f"name={name!r}; expected a str")
        check_order_arguments(
            sampler,
            batch_sampler,
            weights,
            subset,
            self.shuffle,
            self.drop_last,
            partition is not None,
        )
        self._own_subset = own_subset
        if own_subset is not None:
            has_order = any(
                order is not None
                for order in (sampler, batch_sampler, weights, partition)
            )
            check_own_subset(own_subset, has_order, subset)
            if sampler is None and batch_sampler is None:
                subset = own_subset
        held = Held(on_held, f"a loader of dataset '{whole.name}'")
        self._has_seed = seed is not None
        self._is_seed_drawn = seed is None and (
            self.shuffle or weights is not None or generator is not None
        )
        if seed is not None and generator is not None:
            raise InvalidArgument("seed= and generator= exclude each other")
        options: Dict[str, Any] = {
            "dataset": whole.name,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "name": name,
        }
        chosen = chosen_fields(whole, fields, views)
        options["fields"] = fields_message(
            whole, chosen, transforms, layout, views
        )
        if prefetch is not None:
            options["prefetch"] = checked_int("prefetch", prefetch, 1, 62)
        if fields is not None or views is not None:
            options["field_names"] = [field.name for field in chosen]
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._subset_hash: Optional[str] = None
        samples: "Optional[array.array[int]]" = None
        if subset is not None:
            samples = _sampling.index_array("subset", subset)
            self._subset_hash = _sampling.digest(samples).hex()
            if weights is None and partition is None:
                options["subset"] = {"indices": samples.tolist()}
        self._weighted: Optional[_weights.Weighted] = None
        if weights is not None:
            if isinstance(weights, str):
                weights = self._balanced(weights, resolved, samples)
            self._weighted = _weights.Weighted(
                weights,
                samples,
                len(whole) if samples is None else len(samples),
            )
        self._partition: Optional[Partition] = None
        if partition is not None:
            node = _nodes.resolve("partition", partition)
            check_node(whole.name, node)
            self._partition = Partition(
                node,
                len(whole) if samples is None else len(samples),
                samples,
                self.batch_size,
                self.shuffle,
                self.drop_last,
            )
        # An order that the daemon does not make.
        self._own_order = (
            sampler,
            batch_sampler
            if self._partition is None or self._weighted is not None
            else self._partition,
        )
        ahead = self._new_ahead()
        if ahead is not None:
            self.batch_size = ahead.order.batch_size
            options.update(
                batch_size=self.batch_size,
                drop_last=False,
                client_order={"draws_by_sample": self._draws_by_sample},
            )
        if self._partition is not None and weights is None:
            # As the daemon's order draws.
            options.update(
                shuffle=False, client_order={"draws_by_sample": True}
            )
        timeout = loader_timeout(timeout)
        reconnect_seconds = (
            60.0
            if reconnect is True
            else checked_seconds("reconnect", reconnect or 0)
        )
        # After the other checks, so that a mistake draws nothing.
        self.seed = (
            checked_int("seed", seed, 0, 2**64 - 1)
            if seed is not None
            else _seeds.draw(generator)
            if self._is_seed_drawn
            else 0
        )
        if self._is_seed_drawn:
            self.seed = _seeds.agreed(self.seed, self.world_size)
        # The ranks that have agreed on the seed.
        self._seed_ranks = self.world_size
        options["seed"] = str(self._node_seed())
        # Arguments for opening loaders of single samples.
        self._arguments = {
            "fields": fields,
            "views": views,
            "transforms": transforms,
            "layout": layout,
            "framework": resolved,
            "timeout": timeout,
            "reconnect": reconnect_seconds,
        }
        self._job = Job(
            whole,
            options,
            resolved,
            timeout,
            reconnect_seconds,
            held,
            frozenset(field.name for field in chosen if field.is_image),
            self._weighted,
        )
        if self._partition is not None:
            self._partition.seed = self._node_seed()
            if self._weighted is None:
                self._job.num_padding = self._partition.num_padding
        # The feed of the newest iterator.
        self._feed = JobFeed(self._job, ahead)
        self._place = Place(self._feed)
        self._peeked: Optional[JobFeed] = None
        self._fetcher: Optional[Fetcher] = None
        self._loaded: Optional[Position] = None
        # Where the loaded epoch begins in the global order.
        self._loaded_first = 0
        self._loaded_order: Optional[Dict[str, Any]] = None
        self._requested_epoch: Optional[int] = None
        self._last_epoch = -1
        # The state before the last iter().
        self._before: Optional[_Before] = None
        self._has_begun = False
        self._agreement = Agreement(whole_name(whole.name), name)

    def _balanced(
        self,
        weights: str,
        framework: str,
        samples: "Optional[array.array[int]]",
    ) -> Any:
        """Returns the weights that `weights` names."""
        if weights != "balanced":
            raise InvalidArgument(
                f"weights={weights!r}; expected numbers or 'balanced'"
            )
        if framework == "dlpack":
            raise InvalidArgument(
                "weights='balanced' reads the labels, which "
                "framework='dlpack' cannot: pass one weight per sample"
            )
        loader: DataLoader[Any] = DataLoader(
            self._whole,
            batch_size=4096,
            fields=[_weights.label_field(self._whole)],
            framework=framework,
            rank=0,
            world_size=1,
            # Not a subset, which has a limit.
            sampler=samples,
        )
        with loader:
            return _weights.balanced([batch[0] for batch in loader])

    def _new_ahead(self) -> Optional[SentAhead]:
        """Returns the order of one more feed; None: the daemon makes it."""
        sampler, batch_sampler = self._own_order
        if sampler is None and batch_sampler is None:
            return None
        return SentAhead(
            _sampling.SamplerOrder(
                sampler,
                batch_sampler,
                self.batch_size,
                self.drop_last,
                # The loader's own orders count the whole dataset's samples.
                self._own_subset if self._is_order_given() else None,
            )
        )

    # -- Iterating ------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the batches per epoch of this rank.

        Raises TypeError if a sampler does not know its length.
        """
        self._follow_ranks()
        if self._partition is not None:
            return len(self._partition)
        if self._feed.ahead is None:
            return batches_per_epoch(
                self.num_samples,
                self.batch_size,
                self.world_size,
                self.drop_last,
            )
        return len(self._feed)

    def __iter__(self) -> Iterator[Batch[ArrayT]]:
        self._feed.check_free()
        self._settle_ranks()
        self._forget_unused()
        self._agreement.check(
            _ranks.Ranks(self.rank, self.world_size), self._identity()
        )
        position = self._next_position()
        feed, self._peeked = self._peeked, None
        if feed is None:
            feed = self._begun(position)
        self._feed = feed
        iterator = (
            EpochIterator(feed, self._place)
            if feed.ahead is None
            else SamplerIterator(feed, self._place, feed.ahead)
        )
        self._before = _Before(
            iterator.use,
            self._loaded,
            self._loaded_order,
            self._requested_epoch,
            self._last_epoch,
        )
        self._loaded = self._loaded_order = None
        self._requested_epoch = None
        self._last_epoch = position[0]
        return _accelerate.watch(self, _benchmark.watch(self, iterator))

    def _forget_unused(self) -> None:
        """Undoes the last iter() if its iterator was dropped unused."""
        before, self._before = self._before, None
        if before is None or before.use.has_begun:
            return
        if before.use.is_held():
            self._before = before
            return
        self._loaded, self._loaded_order = before.loaded, before.loaded_order
        self._requested_epoch = before.requested_epoch
        self._last_epoch = before.last_epoch

    def peek(self) -> Batch[ArrayT]:
        """Returns the first batch that the next iter() will give.

        It is the same Batch object. Nothing else changes: the next iter() gives
        it again, iterators under way go on, and state_dict() and the epoch stay
        as they are. set_epoch() and load_state_dict() make a new choice. A
        sampler is iterated for the epoch now, instead of by iter(). Raises
        OutOfRange if the next epoch has no batches.
        """
        self._feed.check_free()
        self._settle_ranks()
        self._forget_unused()
        if self._peeked is None:
            self._peeked = self._begun(self._next_position(), keep=True)
        feed = self._peeked
        if feed.ahead is not None:
            feed.ahead.top_up(feed.send)
        if not (feed.ahead.has_more() if feed.ahead else feed.num_batches):
            raise OutOfRange("peek(): the next epoch has no batches")
        return feed.peek()

    def _begun(self, position: Position, keep: bool = False) -> JobFeed:
        """Returns a feed at `position` that no iterator uses; with `keep` one
        that was there, or a new one."""
        first = 0 if self._loaded is None else self._loaded_first
        if first != int(self._job.options.get("first_position", 0)):
            self._job.change(first_position=str(first))
        feed = self._feed
        if feed.is_under_way() or (keep and feed.position != position):
            feed = self._new_feed(position)
        if self._partition is not None:
            self._partition.set_epoch(position[0])
        feed.begin(position, self._loaded_order)
        return feed

    def _new_feed(self, position: Position) -> JobFeed:
        try:
            return JobFeed(self._job, self._new_ahead(), position)
        except ResourceExhausted as error:
            raise ResourceExhausted(
                f"{error} (for one more iterator or peek() of a loader, "
                "beside an iterator that has not ended: end or drop that, or "
                "close other loaders)"
            ) from None

    def _next_position(self) -> Position:
        """Returns where the next iter() begins."""
        return self._asked_for() or (self._last_epoch + 1, 0)

    def _asked_for(self) -> Optional[Position]:
        """Returns where the next iter() begins after load_state_dict or
        set_epoch."""
        if self._loaded is None and self._requested_epoch is not None:
            return self._requested_epoch, 0
        return self._loaded

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iter() begin at `epoch`.

        A loaded position within the same epoch is kept.
        """
        number = checked_int("epoch", epoch, 0, 2**63 - 1)
        self._forget_unused()
        self._peeked = None
        if self._feed.ahead is not None:
            self._feed.ahead.order.set_epoch(number)
        if self._loaded is not None and self._loaded[0] == number:
            return
        self._loaded = self._loaded_order = None
        self._requested_epoch = number

    # -- Ranks and seed -------------------------------------------------------

    def _follow_ranks(self) -> None:
        """Takes the ranks of torch.distributed, until the first iter()."""
        if self._has_begun:
            return
        ranks = _ranks.resolve(*self._asked_ranks)
        if ranks != (self.rank, self.world_size):
            self._share_loaded(ranks[1])
            self.rank, self.world_size = ranks
            self._divide_by(ranks)
        if self._partition is not None:
            self._agree_on_parts(self._partition, ranks)

    def _divide_by(self, ranks: _ranks.Ranks) -> None:
        """Divides the order by these ranks."""
        self._job.change(rank=ranks.rank, world_size=ranks.world_size)
        self._feed.update()

    def _agree_on_parts(
        self, partition: Partition, ranks: _ranks.Ranks
    ) -> None:
        """Divides the order by the ranks of this node. Waits for all ranks the
        first time."""
        if partition.has_agreed(ranks):
            return
        partition.agree(
            self._agreement,
            ranks,
            {
                "content_hash": self.content_hash,
                "subset": self._subset_hash,
                "weights": self._weighted and self._weighted.hash,
            },
        )
        if self._weighted is not None:
            num_draws = partition.num_rows * partition.ranks.world_size
            self._job.change(weighted_order={"num_draws": str(num_draws)})
        self._divide_by(partition.ranks)

    def _share_loaded(self, world_size: int) -> None:
        """Keeps the loaded place when the number of ranks changes."""
        if self._loaded is None or world_size == self.world_size:
            return
        epoch, index = self._loaded
        if self._has_global_order():
            self._loaded = epoch, 0
            self._loaded_first += index * self.batch_size * self.world_size
        elif index:
            raise FailedPrecondition(
                f"load_state_dict: a state of {self.world_size} ranks was "
                f"loaded, and there are {world_size} now: load it after the "
                "ranks are known"
            )

    def _settle_ranks(self) -> None:
        """Fixes the ranks. They agree on a seed if there are more than when it
        was drawn."""
        if self._has_begun:
            if self._asked_ranks[1] == "auto":
                _ranks.warn_if_changed(
                    _ranks.Ranks(self.rank, self.world_size)
                )
            return
        self._follow_ranks()
        if self._is_seed_drawn and self.world_size != self._seed_ranks:
            self._set_seed(_seeds.agreed(self.seed, self.world_size))
        if self._asked_ranks[1] == "auto" and self.world_size == 1:
            _ranks.warn_if_launched()
        self._has_begun = True

    def _set_seed(self, seed: int) -> None:
        if seed == self.seed:
            return
        self.seed = seed
        if self._partition is not None:
            self._partition.seed = self._node_seed()
        self._job.change(seed=str(self._node_seed()))
        self._peeked = None
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def _node_seed(self) -> int:
        """Returns the seed of the order and the draws."""
        if self._partition is None:
            return self.seed
        return seed_of(self.seed, self._partition.node.number)

    # -- Random access --------------------------------------------------------

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
        self._job.check_open()
        if self._fetcher is None:
            self._fetcher = make_fetcher(
                self._whole, seed=self._node_seed(), **self._arguments
            )
        if epoch is None:
            epoch = max(self._last_epoch, 0)
        return self._fetcher.fetch(indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position: the batch after the last one returned,
        by whichever iterator.

        Contains plain values, the same for all ranks.
        """
        self._follow_ranks()
        self._forget_unused()
        feed = self._place.feed
        position = self._asked_for()
        first = feed.first_position
        if position is not None:
            first = 0 if self._loaded is None else self._loaded_first
        state = make_state(self._identity(), position or feed.position, first)
        if feed.ahead is not None and self._is_order_given():
            order = (
                feed.ahead.state
                if position is None
                else self._loaded_order or {}
            )
            state.update(
                (key, value)
                for key, value in order.items()
                if value is not None
            )
        return state

    def _identity(self) -> Dict[str, Any]:
        """Returns the values that must be equal to resume from a state."""
        order = "random" if self.shuffle else "sequential"
        if self._weighted is not None:
            order = "weighted"
        elif self._is_order_given():
            order = "given"
        identity = {
            "content_hash": self.content_hash,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "sampler": order,
            "world_size": self.world_size,
            "transforms_hash": self.transforms_hash,
        }
        if self._subset_hash is not None:
            identity["subset"] = self._subset_hash
        if self._weighted is not None:
            identity["weights"] = self._weighted.hash
        if self._partition is not None:
            identity.update(self._partition.identity())
        return identity

    def _has_global_order(self) -> bool:
        """True if the daemon makes one order, which all ranks divide."""
        return self._feed.ahead is None and self._partition is None

    def _is_order_given(self) -> bool:
        """True if a sampler decides, which the loader cannot run anew."""
        return self.sampler is not None or self.batch_sampler is not None

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
        self._follow_ranks()
        identity = self._identity()
        if not self._has_seed and "seed" in state:
            identity["seed"] = checked_int(
                "state_dict: seed", state["seed"], 0, 2**64 - 1
            )
        ahead = self._feed.ahead
        (epoch, index), first = checked_position(
            state,
            identity,
            self.num_samples if self._has_global_order() else None,
        )
        order = None
        if ahead is not None and self._is_order_given():
            order = checked_order_state(state, index)
        self._before = None
        self._set_seed(identity["seed"])
        self._is_seed_drawn = False
        if ahead is not None:
            ahead.order.set_epoch(epoch)
        self._peeked = None
        self._loaded, self._loaded_order = (epoch, index), order
        self._loaded_first = first
        self._requested_epoch = None

    # -- What the daemon said -------------------------------------------------

    @property
    def content_hash(self) -> str:
        """Hash of the dataset's samples, independent of paths and device."""
        return self._feed.content_hash

    @property
    def transforms_hash(self) -> str:
        return self._feed.transforms_hash

    @property
    def prefetch(self) -> int:
        """Batches produced ahead."""
        return self._feed.prefetch

    @property
    def num_samples(self) -> int:
        """Samples in the dataset or subset, over all ranks and nodes."""
        if self._partition is not None:
            self._follow_ranks()
            return self._partition.total
        return self._feed.num_samples

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process has waited for batches."""
        return self._job.waited.seconds

    # -- For others -----------------------------------------------------------

    def _iter_after(self, count: int) -> Iterator[Batch[ArrayT]]:
        """iter() without the first `count` batches, which are not made."""
        if not count:
            return iter(self)
        self._settle_ranks()
        self._forget_unused()
        epoch, index = self._next_position()
        if self._loaded is None:
            self._loaded_first = 0
        num_batches = (
            batches_per_epoch(
                self.num_samples - self._loaded_first,
                self.batch_size,
                self.world_size,
                self.drop_last,
            )
            if self._partition is None
            else len(self._partition)
        )
        self._peeked = None
        self._before = self._loaded_order = self._requested_epoch = None
        self._loaded = (epoch, index + count)
        is_known = self._feed.ahead is None or self._partition is not None
        if is_known and index + count >= num_batches:
            self._loaded, self._last_epoch = None, epoch
            return iter(())
        return iter(self)

    def _has_partition(self) -> bool:
        return self._partition is not None

    def _num_padding(self) -> int:
        """Returns how many samples the epoch repeats, over all ranks."""
        if self._partition is not None and self._weighted is None:
            return self._partition.num_padding_of_all()
        if self.drop_last or self._weighted is not None:
            return 0
        if not self._has_global_order():
            return 0
        first = self._place.feed.first_position
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
        return _torch_loader.make(self)

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """Timeout in seconds; None: no limit. May be set."""
        return self._job.timeout

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._job.timeout = loader_timeout(seconds)

    def close(self) -> None:
        """Ends all iterators. Batches that are still held stay valid."""
        if self._fetcher is not None:
            self._fetcher.close()
        self._job.close()

    def __enter__(self) -> "DataLoader[ArrayT]":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.DataLoader belongs to its process: make one in the "
            "other, and hand over state_dict()"
        )

    def __repr__(self) -> str:
        batches = (
            "random by weights"
            if self._weighted is not None
            else f"{self._feed.num_batches} batches"
            if self._feed.ahead is None
            else "the order of a sampler"
            if self._is_order_given()
            else repr(self._partition)
        )
        seed = f"seed={self.seed}, " if self.seed or self.shuffle else ""
        share = (
            f"rank {self.rank} of {self.world_size}, "
            if self.world_size > 1
            else ""
        )
        return (
            f"datasetd.DataLoader({self._whole.name!r}, "
            f"batch_size={self.batch_size}, {seed}{share}{batches})"
        )


class _FetchLoader(DataLoader[Any]):
    """Loader whose draws are seeded by sample, as in the daemon's order."""

    _draws_by_sample = True


def make_fetcher(dataset: Samples, **arguments: Any) -> Fetcher:
    """Returns a Fetcher for `dataset`; `arguments` are a DataLoader's."""

    def open_loader(request: Requested) -> DataLoader[Any]:
        return _FetchLoader(
            dataset,
            batch_sampler=request,
            prefetch=1,
            name="fetch",
            rank=0,
            world_size=1,
            on_held="error",
            **arguments,
        )

    return Fetcher(open_loader)


__all__ = ["DataLoader", "make_fetcher"]
