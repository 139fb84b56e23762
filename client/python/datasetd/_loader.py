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
from ._feed_options import check_order_arguments, chosen_fields, fields_message
from ._fetch import Fetcher, Requested
from ._job_feed import JobFeed
from ._resume import Position, checked_order_state, checked_position, make_state
from .errors import InvalidArgument
from .transforms._pipeline import Pipelines


class DataLoader:
    """Iterates over the epochs of one job.

    Each job has its own order, seed, augmentation, batch size and clock; the
    samples are resident once for all of them.

    Args:
      dataset: of Client.load_dataset or get_dataset.
      batch_size: rows of a batch; of this rank.
      shuffle: a new order for every epoch, drawn from (seed, epoch).
      seed: of order and augmentation.
      drop_last: leave out what does not fill a batch; else the last one is
        short.
      rank, world_size: this rank's share of one global order.
      prefetch: batches made ahead, 1 to 62; None: what fits 64 MiB, within 4
        to 32.
      transforms: a list, for `image` or the `fields` of each op, or a dict by
        field.
      layout: "NCHW" or "NHWC", or a dict by field. The shape is [N, C, H, W]
        either way; NHWC shows in the strides (torch.channels_last).
      framework: "torch", "numpy", "jax" or "dlpack"; None is torch where it is
        installed, else NumPy.
      sampler: anything that gives sample indices when it is iterated, such as
        torch.utils.data.Sampler or a list: the order of each epoch, cut into
        batches. Excludes shuffle.
      batch_sampler: gives lists of indices: the batches. Excludes shuffle,
        sampler and drop_last; batch_size is then the most samples of a batch,
        where batch_sampler.batch_size does not say it.
      subset: sample indices, none twice: the loader draws from these alone, as
        from a dataset that holds them in this order.
      fields: names of the fields of a batch, in this order; None: all of them.
        An op draws the same for a sample whatever other fields there are.
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch, and for the daemon to take what a
        sampler gave; None waits without end.
      reconnect: seconds to try to reach a daemon that was lost, to wait until
        it has the dataset again, and go on at the exact next batch; 0 or False
        raises DaemonGone at once, True is 60. For fetch(), too.

    The arguments that a wrapper may look for are attributes, as of torch's
    DataLoader: dataset, batch_size, drop_last, sampler, batch_sampler, timeout.

    iter() begins at the loaded position after load_state_dict; else at epoch e
    after set_epoch(e); else at the epoch after the last one begun, finished or
    broken off (first 0). A newer iterator invalidates the older one.

    A sampler runs in this process, ahead of the batches, and is iterated once
    an epoch, by iter(); set_epoch() and load_state_dict() tell it the epoch if
    it has set_epoch. What it gives may repeat samples, so that random
    transforms draw by the place in the epoch and not by the sample. To resume,
    one with state_dict and load_state_dict goes on from its state; another one
    is run anew up to the batch, and it is an error if it does not give what it
    gave. rank and world_size then only keep the draws of the ranks apart.

    For one thread at a time, but close(), which ends another thread's wait;
    and for this process: neither pickled nor used after fork(). Batches stay
    valid until they are freed, also after close; but one process holds at most
    prefetch + 2 of them. Ctrl-C ends a wait, and no batch is lost by it.

    Raises InvalidArgument, which names the argument; ResourceExhausted over
    the memory budget or a limit; DaemonGone; and while iterating
    DeadlineExceeded, AllSlotsHeld, DaemonGone, DaemonDraining,
    DatasetUnloaded, Closed, UsedAfterFork.
    """

    # Whether the random draws of a sampler's samples are by the sample.
    _draws_by_sample = False

    def __init__(
        self,
        dataset: Dataset,
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
        if not isinstance(dataset, Dataset):
            raise InvalidArgument(
                f"dataset={dataset!r}; expected what Client.load_dataset or "
                "get_dataset returned"
            )
        self.dataset = dataset
        self.batch_size = checked_int("batch_size", batch_size, 1, 2**32 - 1)
        self.shuffle = bool(shuffle)
        self.seed = checked_int("seed", seed, 0, 2**64 - 1)
        self.drop_last = bool(drop_last)
        self.world_size = checked_int("world_size", world_size, 1, 2**32 - 1)
        self.rank = checked_int("rank", rank, 0, self.world_size - 1)
        resolved = _frameworks.resolve(framework)
        if not isinstance(name, str):
            raise InvalidArgument(f"name={name!r}; expected a str")
        # To open others with, for single samples.
        self._arguments = {
            "fields": fields,
            "transforms": transforms,
            "layout": layout,
            "seed": self.seed,
            "framework": resolved,
            "timeout": timeout,
            "reconnect": reconnect,
        }
        chosen = chosen_fields(dataset, fields)
        options: Dict[str, Any] = {
            "dataset": dataset.name,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": str(self.seed),
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "fields": fields_message(dataset, chosen, transforms, layout),
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
        if subset is not None:
            indices = _sampling.index_array("subset", subset)
            options["subset"] = {"indices": indices.tolist()}
            self._subset_hash = _sampling.digest(indices).hex()
        # None: the order is the daemon's.
        self._ahead: Optional[SentAhead] = None
        if sampler is not None or batch_sampler is not None:
            order = _sampling.SamplerOrder(
                sampler, batch_sampler, self.batch_size, self.drop_last
            )
            self.batch_size = order.batch_size
            options.update(
                batch_size=order.batch_size,
                drop_last=False,
                client_order={"draws_by_sample": self._draws_by_sample},
            )
            self._ahead = SentAhead(order)
        self._feed = JobFeed(
            dataset,
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
        """Batches of an epoch, for this rank.

        TypeError where a sampler does not know its length.
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
        """Where load_state_dict or set_epoch has the next iter() begin."""
        if self._loaded is None and self._requested_epoch is not None:
            return self._requested_epoch, 0
        return self._loaded

    def set_epoch(self, epoch: int) -> None:
        """The next iter() begins at `epoch`.

        A loaded position within that same epoch stays.
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
        """A batch of just these samples, in this order.

        Through the loader's transforms, augmented as the daemon's own order
        augments them in `epoch` (None: the one last begun). It does not move
        the loader: it has a small feed of its own, opened by the first call and
        anew for more rows than before. A call then costs one round trip and
        the making of the batch.
        """
        self._feed.check_open()
        if self._fetcher is None:
            self._fetcher = make_fetcher(self.dataset, **self._arguments)
        if epoch is None:
            epoch = max(self._last_epoch, 0)
        return self._fetcher.fetch(indices, epoch)

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Where this job is: the batch after the last one handed out.

        Plain values, the same for all ranks.
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
        """What must be the same to go on from a state."""
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
        """The next iter() goes on where state_dict() was taken.

        FailedPrecondition, naming the field, if the state is of another job:
        inside an epoch all must match; at batch 0, batch_size and world_size
        may differ. Whether a sampler gives what it gave is seen by iter().
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
        """Of the dataset's samples; free of paths and device."""
        return self._feed.content_hash

    @property
    def transforms_hash(self) -> str:
        return self._feed.transforms_hash

    @property
    def prefetch(self) -> int:
        """Batches made ahead."""
        return self._feed.prefetch

    @property
    def num_samples(self) -> int:
        """Of the dataset, or of the subset, that all ranks draw from."""
        return self._feed.num_samples

    @property
    def waited_seconds(self) -> float:
        """Time that this process waited for batches."""
        return self._feed.waited_seconds

    # -- Life -----------------------------------------------------------------

    @property
    def timeout(self) -> Optional[float]:
        """May be set; seconds."""
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
            f"datasetd.DataLoader({self.dataset.name!r}, "
            f"batch_size={self.batch_size}, {batches})"
        )


class _FetchLoader(DataLoader):
    """Augments a sample as the daemon's order does, where each comes once."""

    _draws_by_sample = True


def make_fetcher(dataset: Dataset, **arguments: Any) -> Fetcher:
    """Single samples of `dataset`; `arguments` as of a DataLoader."""

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
