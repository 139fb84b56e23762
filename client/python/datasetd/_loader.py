"""DataLoader: a job's batches from a dataset."""

from __future__ import annotations

from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Union,
)

from . import _benchmark, _frameworks, _sampling
from ._ahead import SentAhead
from ._arguments import checked_int, checked_seconds, optional_seconds
from ._batch import Batch
from ._dataset import Dataset
from ._epochs import EpochIterator, SamplerIterator
from ._feed_options import (
    check_order_arguments,
    check_own_subset,
    chosen_fields,
    fields_message,
)
from ._fetch import Fetcher, Requested
from ._job_feed import JobFeed
from ._resume import Position, checked_order_state, checked_position, make_state
from ._subset import Samples, whole_of
from .errors import InvalidArgument
from .transforms._pipeline import Pipelines


class DataLoader:
    """Iterates over the epochs of one job.

    Each job has its own order, seed, augmentation, batch size and pace; the
    samples are resident once for all jobs.

    Args:
      dataset: returned by Client.load_dataset, push_dataset or get_dataset; or
        a Subset of it, datasetd's or torch's: indices of a sampler are then
        the subset's, those of a batch and of fetch() the dataset's.
      batch_size: rows per batch of this rank.
      shuffle: a new order for every epoch, drawn from (seed, epoch).
      seed: seed of order and augmentation.
      drop_last: drops an incomplete last batch; else it is short.
      rank, world_size: this rank's share of one global order.
      prefetch: batches produced ahead, 1 to 62; None: as many as fit 64 MiB,
        within 4 to 32.
      transforms: a list, for `image` or the `fields` of each op, or a dict by
        field.
      layout: "NCHW" or "NHWC", or a dict by field. The shape is [N, C, H, W]
        either way; NHWC shows in the strides (torch.channels_last).
      framework: "torch", "numpy", "jax" or "dlpack"; None: torch if it is
        installed, else NumPy.
      sampler: an iterable of sample indices, such as a
        torch.utils.data.Sampler or a list: the order of each epoch. Excludes
        shuffle.
      batch_sampler: an iterable of lists of indices, one per batch. Excludes
        shuffle, sampler and drop_last. batch_size is then the largest batch,
        unless batch_sampler.batch_size is set.
      subset: distinct sample indices: the loader behaves as if the dataset
        held only these samples, in this order.
      fields: names of the fields of a batch, in order; None: all. The choice
        does not change what random ops draw.
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch, and for the daemon to accept a
        sampler's indices; None: no limit.
      reconnect: seconds to wait, after the daemon was lost, until a daemon has
        the dataset again; iteration then continues at the exact next batch. 0
        or False raises DaemonGone at once, True is 60. Also applies to
        fetch().

    Arguments that wrappers use are attributes, as in torch's DataLoader:
    dataset, batch_size, drop_last, sampler, batch_sampler, timeout.

    iter() begins at the loaded position after load_state_dict; else at epoch e
    after set_epoch(e); else at the epoch after the last one begun, finished or
    not (first 0). A new iterator invalidates the previous one.

    A sampler runs in this process, ahead of the batches, and is iterated once
    per epoch, by iter(). set_epoch() and load_state_dict() pass it the epoch
    if it has set_epoch. A sampler may repeat an index, so augmentation is
    seeded by position, not by sample. To resume, a sampler with state_dict and
    load_state_dict continues from its state; any other is run again up to the
    batch, and it is an error if it yields different indices. With a sampler,
    rank and world_size only separate the random draws of the ranks.

    For one thread at a time, except close(), which ends another thread's wait.
    Belongs to one process: it cannot be pickled or used after fork(). Batches
    stay valid until they are freed, even after close(); a process can hold at
    most prefetch + 2 of them. Ctrl-C ends a wait without losing a batch.

    Raises InvalidArgument, which names the argument; ResourceExhausted over
    the memory budget or a limit; DaemonGone; and while iterating
    DeadlineExceeded, AllSlotsHeld, DaemonGone, DaemonDraining,
    DatasetUnloaded, Closed, UsedAfterFork.
    """

    # Whether a sampler's random draws are seeded by sample.
    _draws_by_sample = False

    def __init__(
        self,
        dataset: Samples,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: Optional[int] = None,
        transforms: Pipelines = (),
        layout: Union[str, Mapping[str, str]] = "NCHW",
        framework: Optional[str] = None,
        name: str = "",
        timeout: Optional[float] = None,
        reconnect: Union[bool, float] = False,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[Iterable[int]]] = None,
        subset: Optional[Iterable[int]] = None,
        fields: Union[None, str, Sequence[str]] = None,
    ) -> None:
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
        self.seed = checked_int("seed", seed, 0, 2**64 - 1)
        self.drop_last = bool(drop_last)
        self.world_size = checked_int("world_size", world_size, 1, 2**32 - 1)
        self.rank = checked_int("rank", rank, 0, self.world_size - 1)
        resolved = _frameworks.resolve(framework)
        if not isinstance(name, str):
            raise InvalidArgument(f"name={name!r}; expected a str")
        # Arguments for opening loaders of single samples.
        self._arguments = {
            "fields": fields,
            "transforms": transforms,
            "layout": layout,
            "seed": self.seed,
            "framework": resolved,
            "timeout": timeout,
            "reconnect": reconnect,
        }
        chosen = chosen_fields(whole, fields)
        options: Dict[str, Any] = {
            "dataset": whole.name,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": str(self.seed),
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "fields": fields_message(whole, chosen, transforms, layout),
            "name": name,
        }
        if prefetch is not None:
            options["prefetch"] = checked_int("prefetch", prefetch, 1, 62)
        if fields is not None:
            options["field_names"] = [field.name for field in chosen]
        check_order_arguments(
            sampler, batch_sampler, subset, self.shuffle, self.drop_last
        )
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._subset_hash: Optional[str] = None
        if own_subset is not None:
            check_own_subset(own_subset, sampler, batch_sampler, subset)
            subset = own_subset
        has_sampler = sampler is not None or batch_sampler is not None
        if subset is not None and not has_sampler:
            indices = _sampling.index_array("subset", subset)
            options["subset"] = {"indices": indices.tolist()}
            self._subset_hash = _sampling.digest(indices).hex()
        # None: the daemon chooses the order.
        self._ahead: Optional[SentAhead] = None
        if has_sampler:
            order = _sampling.SamplerOrder(
                sampler,
                batch_sampler,
                self.batch_size,
                self.drop_last,
                own_subset,
            )
            self.batch_size = order.batch_size
            options.update(
                batch_size=order.batch_size,
                drop_last=False,
                client_order={"draws_by_sample": self._draws_by_sample},
            )
            self._ahead = SentAhead(order)
        self._feed = JobFeed(
            whole,
            options,
            resolved,
            optional_seconds("timeout", timeout),
            60.0
            if reconnect is True
            else checked_seconds("reconnect", reconnect or 0),
            self._ahead,
        )
        self._fetcher: Optional[Fetcher] = None
        self._loaded: Optional[Position] = None
        self._requested_epoch: Optional[int] = None
        self._last_epoch = -1

    # -- Iterating ------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the batches per epoch of this rank.

        Raises TypeError if a sampler does not know its length.
        """
        return len(self._feed)

    def __iter__(self) -> Iterator[Batch]:
        feed = self._feed
        feed.check_free()
        feed.turn = None
        position = self._asked_for() or (self._last_epoch + 1, 0)
        if self._ahead is not None:
            self._ahead.begin(position[1], self._loaded is not None)
        feed.seek(position)
        self._loaded = None
        self._requested_epoch = None
        self._last_epoch = position[0]
        iterator: Iterator[Batch] = (
            EpochIterator(feed)
            if self._ahead is None
            else SamplerIterator(feed, self._ahead)
        )
        return _benchmark.watch(self, iterator)

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
        if self._ahead is not None:
            self._ahead.order.set_epoch(number)
        if self._loaded is not None and self._loaded[0] == number:
            return
        self._loaded = None
        self._requested_epoch = number
        if self._ahead is not None:
            self._ahead.state = {}

    # -- Random access --------------------------------------------------------

    def fetch(
        self, indices: Iterable[int], epoch: Optional[int] = None
    ) -> Batch:
        """Returns a batch of the given samples, in this order.

        The loader's transforms are applied with the draws of the daemon's
        order in `epoch` (None: the last one begun). The loader's position does
        not change: the first call opens a small separate feed, and a call with
        more rows than before reopens it. Other calls cost one round trip and
        producing the batch.
        """
        self._feed.check_open()
        if self._fetcher is None:
            self._fetcher = make_fetcher(self._whole, **self._arguments)
        if epoch is None:
            epoch = max(self._last_epoch, 0)
        return self._fetcher.fetch(indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position: the batch after the last one returned.

        Contains plain values, the same for all ranks.
        """
        position = self._asked_for() or self._feed.position
        state = make_state(self._job(), position)
        if self._ahead is not None:
            state.update(
                (key, value)
                for key, value in self._ahead.state.items()
                if value is not None
            )
        return state

    def _job(self) -> Dict[str, Any]:
        """Returns the values that must be equal to resume from a state."""
        order = "random" if self.shuffle else "sequential"
        job = {
            "content_hash": self.content_hash,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "sampler": order if self._ahead is None else "given",
            "world_size": self.world_size,
            "transforms_hash": self.transforms_hash,
        }
        if self._subset_hash is not None:
            job["subset"] = self._subset_hash
        return job

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iter() continue where state_dict() was taken.

        Raises FailedPrecondition, naming the field, if the state belongs to
        another job: within an epoch everything must match; at batch 0,
        batch_size and world_size may differ. iter() checks that a sampler
        yields the same indices.
        """
        epoch, index = checked_position(
            state,
            self._job(),
            self._feed.num_batches if self._ahead is None else None,
        )
        if self._ahead is not None:
            self._ahead.state = checked_order_state(state, index)
            self._ahead.order.set_epoch(epoch)
        self._loaded = (epoch, index)
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
        """Samples in the dataset or subset, over all ranks."""
        return self._feed.num_samples

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process has waited for batches."""
        return self._feed.waited_seconds

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """Timeout in seconds. May be set."""
        return self._feed.timeout

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._feed.timeout = optional_seconds("timeout", seconds)

    def close(self) -> None:
        """Ends the feed. Batches that are still held stay valid."""
        if self._fetcher is not None:
            self._fetcher.close()
        self._feed.close()

    def __enter__(self) -> "DataLoader":
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
            f"{self._feed.num_batches} batches"
            if self._ahead is None
            else "the order of a sampler"
        )
        return (
            f"datasetd.DataLoader({self._whole.name!r}, "
            f"batch_size={self.batch_size}, {batches})"
        )


class _FetchLoader(DataLoader):
    """Loader whose draws are seeded by sample, as in the daemon's order."""

    _draws_by_sample = True


def make_fetcher(dataset: Samples, **arguments: Any) -> Fetcher:
    """Returns a Fetcher for `dataset`; `arguments` are a DataLoader's."""

    def open_loader(request: Requested) -> DataLoader:
        return _FetchLoader(
            dataset,
            batch_sampler=request,
            prefetch=1,
            name="fetch",
            **arguments,
        )

    return Fetcher(open_loader)


__all__ = ["DataLoader", "make_fetcher"]
