"""DataLoader: a job's batches from a dataset."""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Iterable,
    Literal,
    Mapping,
    Optional,
    TypedDict,
    Union,
    overload,
)

from .._arguments import checked_int, loader_timeout
from .._batches import frameworks, held
from .._batches.batch import ArrayT
from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture
from .._datasets.subset import Samples
from .._feed.feeds import Feeds, Options
from .._feed.options import FieldNames, Layout
from .._order.crops import Crops
from .._order.groups import GroupBy
from .._order.sampling import Given
from .._order.weights import Weights
from .._order.windows import GivenWindows
from .._ranks import nodes
from .._ranks.ranks import Number, resolve
from ..errors import InvalidArgument
from ..transforms._pipeline import Pipelines
from . import torch_arguments as _torch_arguments
from .arguments import (
    check_order,
    check_valid,
    dataset_of,
    feed_options,
    loader_device,
    noise_datasets,
    reconnect_seconds,
)
from .balanced import classes_of
from .base_loader import BaseLoader
from .order import Order

if TYPE_CHECKING:
    import numpy
    import torch
    from typing_extensions import Unpack

BatchSampler = Iterable[Iterable[int]]
Device = Union[None, str, "torch.device"]
Source = Union[Samples, Mixture]


class LoaderOptions(TypedDict, total=False):
    """DataLoader's keyword arguments, but for `framework`, for type
    checkers."""

    seed: Optional[int]
    generator: Any
    drop_last: bool
    pad: bool
    rank: Number
    world_size: Number
    partition: Optional[nodes.Given]
    prefetch: Optional[int]
    transforms: Pipelines
    layout: Layout
    weights: Optional[Weights]
    group_size: Optional[int]
    group_by: Optional[GroupBy]
    windows: GivenWindows
    subset: Optional[Iterable[int]]
    fields: FieldNames
    views: Optional[Mapping[str, Pipelines]]
    on_held: str
    device: Device
    with_valid: bool
    name: str
    timeout: Optional[float]
    reconnect: Union[bool, float]
    # Of torch's DataLoader.
    num_workers: int
    persistent_workers: Any
    prefetch_factor: Any
    pin_memory: Any
    pin_memory_device: Any
    multiprocessing_context: Any
    in_order: bool
    collate_fn: Any
    worker_init_fn: Any


class DataLoader(BaseLoader[ArrayT]):
    """Iterates over the epochs of one job.

    Each job has its own order, seed, augmentation, batch size and speed; the
    samples are in memory once for all jobs. docs/from-torch.md compares the
    arguments with those of torch.utils.data.DataLoader.

    Args:
      dataset: returned by Client.load_dataset, push_dataset or get_dataset; or
        a Subset of it, datasetd's or torch's: indices of a sampler, and
        weights, are then the subset's, those of a batch and of fetch() the
        dataset's. Or several datasets: datasetd.mixture or concat of them, or
        torch's ConcatDataset. That excludes samplers, weights, subset,
        partition, groups and fetch().
      batch_size: rows per batch of this rank.
      shuffle: a new order for every epoch, derived from (seed, epoch).
      sampler: an iterable of sample indices, such as a
        torch.utils.data.Sampler or a list: the order of each epoch. Excludes
        shuffle.
      batch_sampler: an iterable of lists of indices, one per batch; or of lists
        of B groups, each a list of K indices, for fields [B, K, ...]. Excludes
        shuffle, sampler and drop_last. batch_size is then the largest batch;
        by default the batch_size of batch_sampler, if it has one.
      seed: seed of order and augmentation. None: with shuffle or weights the
        seed is drawn from `generator`, else from torch's default generator if
        torch is imported (so that torch.manual_seed determines it), else at
        random, and is equal on all ranks; without both it is 0. The attribute
        `seed` has its value.
      generator: draws the seed: a torch.Generator or numpy.random.Generator.
      drop_last: drops an incomplete last batch; otherwise the batch is short.
      pad: whether ranks with a smaller share repeat a sample, so that all
        ranks have the same number of rows (Batch.valid, num_padding). With
        False, for evaluation, every sample comes exactly once over all ranks;
        their last batches and len() may differ, and their numbers of batches
        by one. False excludes drop_last, samplers and partition.
      rank, world_size: this rank's share of one global order. None or "auto":
        those of torch.distributed if it is initialised before the first batch;
        else rank 0 of 1. "auto" confirms that the share is intended: without
        it there is one warning that a loader without shuffle does not have all
        samples.
      partition: "node" or (index, count): each node holds a part of the
        samples, and its ranks divide that alone. See below.
      prefetch: batches produced ahead, 1 to 62; None: as many as fit 64 MiB,
        within 4 to 32; on a GPU with 40 GB or more up to 256 MiB, within 4 to
        62, if that is a small part of the free memory budget (column AHEAD of
        `datasetctl status`). On a GPU one launch makes a third of them and
        takes some of the trainer's time, so a larger number costs less per
        step.
      transforms: a list, for the only image field (with several for `image`)
        or the `fields` of each op; a dict of lists by field; or a Compose of
        torchvision instead of a list. Of a mixture also a dict of these by
        dataset, or its name.
      layout: "NCHW" or "NHWC", or a dict by field. The shape is [N, C, H, W]
        either way; only the strides differ (NHWC is torch.channels_last).
      framework: "torch", "numpy", "jax" or "dlpack"; None: torch if it is
        installed, else NumPy.
      weights: one number per sample (of `subset`, if given), at most
        16,777,216: each draw of an epoch takes a sample in proportion to its
        weight, with replacement, as torch's WeightedRandomSampler. The daemon
        draws. "balanced": all classes of the label field are equally frequent.
        Excludes shuffle and samplers. set_weights() changes them.
      group_size: each item of a batch is a group of so many samples: fields are
        [batch_size, group_size, ...], and batch_size counts groups. The daemon
        draws groups of one class each, as metric learning needs (docs/
        from-torch.md); excludes shuffle, weights, sampler and partition. With
        batch_sampler, whose batches are then lists of groups, it may be left
        out.
      group_by: the classes of the groups: the name of a field of integers, or
        an integer for each sample (of `subset`, if given); below 0: never
        drawn. None: the labels.
      windows: rows are windows of consecutive samples, which are the steps of a
        stream, such as tokens: datasetd.blocks(length), datasetd.
        random_windows(length), datasetd.documents(length), or a length: blocks
        of it, or with a sampler windows that begin at its indices. A field is
        then [batch_size, length, ...], integers are int64, and `targets` are
        the steps after those of `tokens`. Batch.indices are the windows' first
        steps. Excludes images, weights, subset, partition and groups. Or
        datasetd.crops(length): a row is a crop of each sample's sequences of
        several lengths, which excludes nothing (docs/sequences.md).
      subset: distinct sample indices: the loader behaves as if the dataset
        held only these samples, in this order.
      fields: names of the fields of a batch, in order; None: all. The choice
        does not change the random parameters of ops.
      views: a dict of lists of transforms: several augmentations of each image,
        such as {"a": [...], "b": [...]}. Each is a field of the batch, and
        together they replace the image (the only one, or `image`). Each view
        has its own random parameters; the first has those that `transforms`
        would have.
      on_held: "copy" or "error": what next() does when the job keeps many
        batches; see below.
      device: for a dataset with replicas on several GPUs, the GPU whose replica
        is used and on which the batches are: "cuda:1" or a torch.device,
        numbered as in this process, or a UUID, "GPU-...". None: the GPU that
        this process uses, as selected by torch.cuda.set_device, or if it uses
        none yet, the dataset's first. A GPU without a replica is an error.
      with_valid: appends Batch.valid to each batch, as its last value, with the
        name "valid".
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch, and for the daemon to accept a
        sampler's indices or other weights; None or 0: no limit.
      reconnect: seconds to wait, after the daemon was lost, until a daemon has
        the dataset again; iteration then continues at exactly the next batch.
        0 or False raises DaemonGone at once, True is 60. Also applies to
        fetch().
      torch_arguments: torch's num_workers, pin_memory and the like are ignored
        with a warning.

    The loader has the attributes of torch's DataLoader, for wrappers: dataset,
    batch_size, drop_last, sampler, batch_sampler, generator, timeout, and
    num_workers=0, pin_memory=False and the like. Only timeout can be set.

    An epoch begins with its first batch: after load_state_dict at the loaded
    position; else after set_epoch(e) at epoch e; else at the epoch after the
    last one begun, finished or not (at first 0). iter() alone changes nothing.
    Iterators of one loader are independent: a second one, used while the first
    exists and has not ended, opens its own buffers. peek() returns a batch
    without beginning an epoch.

    Batches share the daemon's memory, which has room for prefetch + 2 of them,
    and stay valid until they are freed, even after close(). Fields that are not
    images and have at most 64 KiB in a full batch, such as labels, are copies
    in the framework's own memory; on a GPU only while the job keeps batches in
    more than about a third of that room, so that kept labels use no more of it.
    When the job keeps three quarters of the room, further batches are complete
    copies, and one warning reports it; with on_held="error", next() instead
    raises AllSlotsHeld when the room is full. With framework="dlpack", which
    has no memory of its own, nothing is copied.

    A sampler runs in this process, ahead of the batches, and is iterated once
    per epoch, when the epoch begins. set_epoch() passes the epoch to a sampler
    that has set_epoch. load_state_dict() passes it the epoch that it had
    received when the state was taken, if any. A sampler may repeat an index, so
    augmentation is seeded by position, not by sample. To resume, a sampler with
    state_dict and load_state_dict continues from its state; any other is run
    again up to the batch, and it is an error if it yields different indices.
    With a sampler, rank and world_size only separate the random draws of the
    ranks.

    If torch.distributed has several processes and no seed is given, shuffle
    and weights make the constructor a collective call, which sends rank 0's
    seed to all ranks; if torch.distributed was initialised later, the first
    batch is the collective call.

    At the first batch ranks of torch.distributed or jax.distributed compare
    content hash, transforms, seed, subset and weights with the rank that came
    first, without waiting for each other; weights, which set_weights() may
    change, at each epoch. FailedPrecondition names the ranks
    and the difference; ranks that came before raise it at their next epoch.

    With partition= the dataset is this node's part, as load and push_dataset
    with part= make it. "node" is the node of the launcher (torchrun, Slurm).
    All ranks have equally many batches of the same sizes: with drop_last as
    many rows as the rank with the fewest samples, and the rest of the order,
    which shuffle changes each epoch, is left out; else as many as the rank
    with the most, and ranks with fewer repeat the beginning of their node's
    order (Batch.num_padding). The first of a batch, len, num_samples, peek,
    state_dict and load_state_dict waits for all ranks. Node 0 has `seed`,
    other nodes seeds made of it. Excludes samplers; weights are of the node's
    samples. To resume within an epoch, nodes, parts and ranks must be the
    same. At the first batch of an epoch they may be others, with as many
    samples altogether. Indices of a batch are the part's.

    For use by one thread at a time, except close(), which ends another thread's
    wait. Belongs to one process: it cannot be pickled or used after fork().
    Ctrl-C ends a wait without losing a batch.

    Raises InvalidArgument, which names the argument; ResourceExhausted if the
    memory budget or a limit is exceeded; DaemonGone; with partition
    FailedPrecondition on all ranks if their arguments do not match; and while
    iterating DeadlineExceeded, AllSlotsHeld, DaemonGone, DaemonDraining,
    DatasetUnloaded, DeviceFailed, FeedFailed, FeedEvicted, ContextFailed,
    Closed, UsedAfterFork.
    """

    @overload
    def __init__(
        self: "DataLoader[torch.Tensor]",
        dataset: Source,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        framework: Literal[None, "torch"] = ...,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "DataLoader[numpy.ndarray[Any, Any]]",
        dataset: Source,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        framework: Literal["numpy"],
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "DataLoader[Any]",
        dataset: Source,
        batch_size: int = ...,
        shuffle: Optional[bool] = ...,
        sampler: Optional[Iterable[int]] = ...,
        batch_sampler: Optional[BatchSampler] = ...,
        *,
        framework: str,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    def __init__(
        self,
        dataset: Source,
        batch_size: int = 1,
        shuffle: Optional[bool] = False,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[BatchSampler] = None,
        *,
        seed: Optional[int] = None,
        generator: Any = None,
        drop_last: bool = False,
        pad: bool = True,
        rank: Number = None,
        world_size: Number = None,
        partition: Optional[nodes.Given] = None,
        prefetch: Optional[int] = None,
        transforms: Pipelines = (),
        layout: Layout = "NCHW",
        framework: Optional[str] = None,
        weights: Optional[Weights] = None,
        group_size: Optional[int] = None,
        group_by: Optional[GroupBy] = None,
        windows: GivenWindows = None,
        subset: Optional[Iterable[int]] = None,
        fields: FieldNames = None,
        views: Optional[Mapping[str, Pipelines]] = None,
        on_held: str = "copy",
        device: Device = None,
        with_valid: bool = False,
        name: str = "",
        timeout: Optional[float] = None,
        reconnect: Union[bool, float] = False,
        **torch_arguments: Any,
    ) -> None:
        if torch_arguments:
            _torch_arguments.check(
                torch_arguments, inspect.signature(DataLoader).parameters
            )
        self.dataset = dataset
        whole, own_subset = dataset_of(dataset)
        batch_size = checked_int("batch_size", batch_size, 1, 2**32 - 1)
        if group_size is not None:
            group_size = checked_int("group_size", group_size, 1, 2**32 - 1)
            checked_int(
                "batch_size * group_size",
                batch_size * group_size,
                1,
                2**31 - 1,
            )
        shuffle, drop_last, pad = bool(shuffle), bool(drop_last), bool(pad)
        resolve(rank, world_size)
        framework = frameworks.resolve(framework)
        if not isinstance(name, str):
            raise InvalidArgument(f"name={name!r}; expected a str")
        rows = check_order(
            whole,
            windows,
            sampler=sampler,
            batch_sampler=batch_sampler,
            shuffle=shuffle,
            drop_last=drop_last,
            pad=pad,
            weights=weights,
            partition=partition,
            group_size=group_size,
            group_by=group_by,
            subset=subset,
            own_subset=own_subset,
            views=views,
        )
        is_sampled = sampler is not None or batch_sampler is not None
        if subset is None and not is_sampled:
            subset = own_subset
        copies_held = held.makes_copies(on_held)
        if seed is not None and generator is not None:
            raise InvalidArgument("seed= and generator= exclude each other")
        message, images = feed_options(
            whole, name, fields, views, transforms, layout, prefetch, rows
        )
        message["device"] = loader_device(whole, device)
        noise = noise_datasets(whole, transforms, views)
        if with_valid:
            check_valid(message.get("field_names"), whole)
        cut = None if isinstance(rows, Crops) else rows
        if cut is not None and cut.are_documents:
            assert isinstance(whole, Dataset)
            subset = cut.first_steps(whole.column)
            cut = cut.with_rows(subset, whole.num_samples)
        order = Order(
            whole,
            subset,
            batch_size,
            shuffle,
            drop_last,
            pad,
            (rank, world_size),
            name,
            cut,
        )
        if weights is not None:
            order.weigh(order.weights_of(weights))
        if partition is not None:
            order.divide(partition)
        if is_sampled:
            given = Given(sampler, batch_sampler, own_subset)
            order.take(given, group_size)
        elif group_size is not None and isinstance(whole, Dataset):
            order.group(
                group_size, classes_of(group_by, whole, order.samples)
            )
        order.new_queue()  # checks the batches' sizes
        timeout = loader_timeout(timeout)
        seconds = reconnect_seconds(reconnect)
        # After the other checks, so that a mistake draws nothing.
        order.choose_seed(seed, generator)
        message.update(order.feed_options())
        options = Options(
            whole,
            message,
            framework,
            images,
            order.subset,
            order.groups,
            seconds,
            copies_held,
            bool(with_valid),
            tuple(noise),
        )
        feeds = Feeds(options, timeout, order.weighted)
        super().__init__(feeds, order, generator)


__all__ = ["DataLoader"]
