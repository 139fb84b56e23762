"""Decides the order of a loader's batches."""

from __future__ import annotations

import array
from typing import Any, Dict, Iterable, Optional, Tuple, Union

from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture
from .._datasets.parts import check_node
from .._feed.order_queue import OrderQueue
from .._order.groups import ClassGroups
from .._order.partition import Partition, seed_of
from .._order.sampling import (
    Grouping,
    SamplerOrder,
    digest,
    has_state,
    index_array,
)
from .._order.weights import Weighted
from .._order.windows import Windows
from .._ranks import nodes
from .._ranks.agreement import Agreement
from .._ranks.ranks import Ranks
from ..errors import InvalidArgument
from .balanced import balanced_weights


class JobOrder:
    """The order of a loader's batches: the daemon's, which may draw by weights,
    or one that is sent, of the user's sampler.

    Attributes: batch_size, shuffle, drop_last, pad; partition, weighted,
    groups, and samples, the indices of a subset, each None if there is none;
    grouping; windows, None if there are none; num_rows, rows of a mixture's
    epoch over all ranks, None if that is the number of samples; is_given,
    whether a sampler decides.
    """

    def __init__(
        self,
        dataset: Union[Dataset, Mixture],
        subset: Optional[Iterable[int]],
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        pad: bool,
        windows: Optional[Windows] = None,
    ) -> None:
        """The daemon's order, of `subset` or else of all samples; with
        `windows` of those."""
        self._dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.pad = pad
        self.samples: "Optional[array.array[int]]" = None
        self._num_samples = len(dataset)
        self._subset_hash: Optional[str] = None
        if subset is not None:
            self.samples = index_array("subset", subset)
            if not self.samples:
                raise InvalidArgument("subset: there are no indices")
            self._subset_hash = digest(self.samples).hex()
            self._num_samples = len(self.samples)
        self.num_rows: Optional[int] = None
        if isinstance(dataset, Mixture) and dataset.ratios is not None:
            self.num_rows = dataset.num_rows
        self.weighted: Optional[Weighted] = None
        # The last other ones that `weighted` has replaced.
        self._replaced: Optional[Weighted] = None
        self.partition: Optional[Partition] = None
        self.groups: Optional[ClassGroups] = None
        self.grouping = Grouping(0)
        self.windows = windows
        self._sampler: Any = None
        self._batch_sampler: Any = None
        # The samples that a sampler's indices are of; None: the dataset's.
        self._own_subset: Any = None
        self.is_given = False
        self._sampler_epoch: Optional[int] = None

    # -- Other orders ---------------------------------------------------------

    def weights_of(self, weights: Any) -> Weighted:
        """Returns weights of the samples: numbers, or "balanced"."""
        if isinstance(weights, str) and isinstance(self._dataset, Dataset):
            weights = balanced_weights(weights, self._dataset, self.samples)
        return Weighted(weights, self.samples, self._num_samples)

    def weigh(self, weighted: Weighted) -> None:
        """The daemon draws the samples by these weights."""
        if not weighted.equals(self.weighted):
            self._replaced = self.weighted
        self.weighted = weighted

    def weighted_by(self, hashed: Any) -> Optional[Weighted]:
        """Returns the weights of this hash: the present ones, or those that
        they have replaced."""
        for weighted in (self.weighted, self._replaced):
            if weighted is not None and weighted.hash == hashed:
                return weighted
        return None

    def can_change_weights(self) -> bool:
        return self.weighted is not None and self.partition is None

    def group(self, size: int, classes: Any) -> None:
        """The daemon draws groups of `size` samples of one class."""
        self.groups = ClassGroups(size, classes, self._num_samples)
        self.grouping = Grouping(size)

    def divide(self, given: nodes.Given) -> None:
        """Divides the order over nodes. REQUIRES: there is no sampler."""
        node = nodes.resolve("partition", given)
        check_node(self._dataset.name, node)
        self.partition = Partition(
            node, self._num_samples, self.batch_size, self.drop_last
        )

    def take(
        self,
        sampler: Any,
        batch_sampler: Any,
        subset: Any,
        group_size: Optional[int],
    ) -> None:
        """Takes the indices of the user's sampler or batch_sampler, which count
        the samples of `subset`; None: the dataset's. `group_size` is of the
        groups of batch_sampler; None: it tells."""
        if batch_sampler is not None:
            self.grouping = Grouping(group_size)
            if isinstance(batch_sampler, (list, tuple)) and batch_sampler:
                self.grouping.flat(0, batch_sampler[0])
        self._sampler, self._batch_sampler = sampler, batch_sampler
        self._own_subset = subset
        self.is_given = True

    @property
    def given(self) -> Tuple[Any, Any]:
        """The user's sampler and batch sampler; each None if there is none."""
        return self._sampler, self._batch_sampler

    def has_sampler_state(self) -> bool:
        """True if the user's sampler keeps the state of its iteration."""
        return has_state(self._batch_sampler or self._sampler)

    def new_queue(self) -> Optional[OrderQueue]:
        """Returns the order of one more feed; None: the daemon makes it."""
        if not self.is_given:
            return None
        order = SamplerOrder(
            self._sampler,
            self._batch_sampler,
            self.batch_size,
            self.drop_last,
            self._own_subset,
            self.grouping,
        )
        self.batch_size = order.batch_size
        return OrderQueue(order)

    def feed_options(self) -> Dict[str, Any]:
        """Returns what FeedOptions says of the order."""
        is_sent = self.new_queue() is not None
        options: Dict[str, Any] = {
            "batch_size": self.batch_size * self.grouping.num_rows,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last and not is_sent,
        }
        if not self.pad:
            options["unpadded"] = True
        if self.groups is not None:
            options["group_order"] = {
                "group_size": self.groups.size,
                "num_groups": str(self.groups.num_groups),
            }
        elif self.grouping.size:
            options["group_order"] = {"group_size": self.grouping.size}
        if self.windows is not None:
            options["window_order"] = self.windows.message(is_sent)
        if is_sent:
            options["client_order"] = {}
        return options

    @property
    def subset(self) -> "Optional[array.array[int]]":
        """The samples to which the daemon's order is restricted; None: all, or
        those of weights."""
        return None if self.weighted is not None else self.samples

    # -- Seed, epoch, ranks ---------------------------------------------------

    def seed_of(self, seed: int) -> int:
        """Returns the seed of the order and the draws of this node."""
        if self.partition is None:
            return seed
        return seed_of(seed, self.partition.node.number)

    def tell_sampler(self, epoch: int) -> None:
        """Passes the epoch to a sampler that has set_epoch."""
        told = self._told()
        if told is not None:
            told.set_epoch(epoch)
            self._sampler_epoch = epoch

    def sampler_epoch(self) -> Optional[int]:
        """Returns the epoch that the sampler was told, also by others, if it
        has it as `epoch`, as torch's; None: none, or it is not known."""
        own = getattr(self._told(), "epoch", None)
        if isinstance(own, int) and own >= 0:
            return int(own)
        return self._sampler_epoch

    def _told(self) -> Any:
        """Returns the user's sampler that has set_epoch; None: there is
        none."""
        inner = getattr(self._batch_sampler, "sampler", None)
        for sampler in (self._sampler, self._batch_sampler, inner):
            if callable(getattr(sampler, "set_epoch", None)):
                return sampler
        return None

    def is_for_ranks(self) -> bool:
        """True if the user's sampler knows of ranks, as torch's
        DistributedSampler and those made after it."""
        inner = getattr(self._batch_sampler, "sampler", None)
        return any(
            hasattr(sampler, name)
            for sampler in (self._sampler, self._batch_sampler, inner)
            for name in ("num_replicas", "num_processes", "rank")
        )

    def takes_all(self) -> bool:
        """True if the user's sampler has as many indices as there are samples,
        or more."""
        sampler, batches = self._sampler, self._batch_sampler
        num_samples = self._num_samples
        if self._own_subset is not None:
            num_samples = len(self._own_subset)
        if sampler is None:
            sampler = getattr(batches, "sampler", None)
        try:
            if sampler is not None:
                return len(sampler) >= num_samples
            if isinstance(batches, (list, tuple)):
                return sum(map(len, batches)) >= num_samples
            # The last batch may be short, or left out.
            return (len(batches) + 1) * self.batch_size > num_samples
        except TypeError:
            return False

    def samples_record(self, first: str) -> Dict[str, Any]:
        """Returns what tells that another rank takes the same samples, if it
        has an equal value; `first` is a hash of the first batch's."""
        record: Dict[str, Any] = {"first": first}
        if self._own_subset is not None and self.takes_all():
            record["subset"] = digest(
                index_array("subset", self._own_subset)
            ).hex()
        return record

    @property
    def has_own_subset(self) -> bool:
        """Whether a sampler's indices are a Subset's, which may be another one
        on each rank."""
        return self._own_subset is not None

    def agree(
        self, agreement: Agreement, ranks: Ranks, content_hash: str
    ) -> Optional[Ranks]:
        """Returns the ranks of this node, once all ranks have told theirs; None
        if there is no partition or they did so before. Waits for all ranks."""
        partition = self.partition
        if partition is None or partition.has_agreed(ranks):
            return None
        partition.agree(
            agreement,
            ranks,
            {
                "content_hash": content_hash,
                "subset": self._subset_hash,
                "weights": self.weighted and self.weighted.hash,
            },
        )
        return partition.ranks

    def num_positions(self, num_samples: int) -> int:
        """Returns the positions of the daemon's order in an epoch: groups, rows
        of a mixture, or `num_samples`, which of windows the daemon counts."""
        if self.num_rows is not None:
            return self.num_rows
        return num_samples if self.groups is None else self.groups.num_groups

    def rows_options(self) -> Dict[str, Any]:
        """Returns what FeedOptions says of a partition's rows. REQUIRES: it has
        agreed."""
        assert self.partition is not None
        num_rows = self.partition.num_rows
        if self.weighted is not None:
            num_draws = num_rows * self.partition.ranks.world_size
            return {"weighted_order": {"num_draws": str(num_draws)}}
        return {"rows_per_epoch": str(num_rows)}

    # -- What it is -----------------------------------------------------------

    @property
    def is_global(self) -> bool:
        """True if the daemon makes one order, which all ranks divide."""
        return self.partition is None and not self.is_given

    @property
    def draws_windows(self) -> bool:
        """True if the first step of each window is drawn by itself."""
        return self.windows is not None and self.windows.is_random

    @property
    def is_random(self) -> bool:
        """True if the daemon's order depends on the seed."""
        return self.kind in ("random", "weighted", "groups", "windows")

    @property
    def kind(self) -> str:
        if self.groups is not None:
            return "groups"
        if self.weighted is not None:
            return "weighted"
        if self.is_given:
            return "given"
        if self.draws_windows:
            return "windows"
        return "random" if self.shuffle else "sequential"

    def identity(self) -> Dict[str, Any]:
        """Returns what tells the samples, their weights and their nodes from
        others', if there are such."""
        identity: Dict[str, Any] = {}
        if self._subset_hash is not None:
            identity["subset"] = self._subset_hash
        if self.weighted is not None:
            identity["weights"] = self.weighted.hash
        if self.groups is not None:
            identity["classes"] = self.groups.hash
        if self.grouping.size:
            identity["group_size"] = self.grouping.size
        if self.windows is not None:
            identity["windows"] = self.windows.identity()
        if self.partition is not None:
            identity.update(self.partition.identity())
        return identity

    def description(self, num_batches: int) -> str:
        if self.weighted is not None:
            return "random by weights"
        if self.groups is not None:
            return f"{num_batches} batches of groups of {self.groups.size}"
        if self.is_given:
            return "the order of a sampler"
        if self.partition is not None:
            return repr(self.partition)
        return f"{num_batches} batches"
