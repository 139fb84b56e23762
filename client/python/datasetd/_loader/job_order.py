"""What decides the order of a loader's batches."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from .._datasets.dataset import Dataset
from .._datasets.parts import check_node
from .._feed.ahead import SentAhead
from .._order.partition import Partition, seed_of
from .._order.sampling import SamplerOrder, digest, index_array
from .._order.weights import WeightedSampler
from .._ranks import nodes
from .._ranks.agreement import Agreement
from .._ranks.ranks import Ranks


class JobOrder:
    """The order of a loader's batches: the daemon's, or one that is sent, of a
    sampler, of weights or of a partition.

    Attributes: batch_size, shuffle, drop_last; partition, and samples, the
    indices of a subset, both None if there is none; is_given, whether a sampler
    of the user decides, which the loader cannot run anew.
    """

    def __init__(
        self,
        dataset: Dataset,
        subset: Optional[Iterable[int]],
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
    ) -> None:
        """The daemon's order, of `subset` or else of all samples."""
        self._dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.samples: Optional[List[int]] = None
        self._num_samples = len(dataset)
        self._subset_hash: Optional[str] = None
        if subset is not None:
            indices = index_array("subset", subset)
            self.samples = indices.tolist()
            self._subset_hash = digest(indices).hex()
            self._num_samples = len(indices)
        self._weighted: Optional[WeightedSampler] = None
        self.partition: Optional[Partition] = None
        self._sampler: Any = None
        self._batch_sampler: Any = None
        # What the indices of a sampler count; None: the dataset's samples.
        self._own_subset: Any = None
        self.is_given = False

    # -- Orders that are sent -------------------------------------------------

    def weigh(self, weights: Any) -> None:
        """Draws the samples by numbers, one for each."""
        self._weighted = self._sampler = WeightedSampler(
            weights, self.samples, self._num_samples, self.drop_last
        )

    def divide(self, given: nodes.Given) -> None:
        """Divides the order over nodes. REQUIRES: there is no sampler."""
        node = nodes.resolve("partition", given)
        check_node(self._dataset.name, node)
        self.partition = Partition(
            node,
            self._num_samples,
            self.samples,
            self.batch_size,
            self.shuffle,
            self.drop_last,
        )
        if self._weighted is None:
            self._batch_sampler = self.partition

    def take(self, sampler: Any, batch_sampler: Any, subset: Any) -> None:
        """Takes the indices of the user's sampler or batch_sampler, which count
        the samples of `subset`; None: the dataset's."""
        self._sampler, self._batch_sampler = sampler, batch_sampler
        self._own_subset = subset
        self.is_given = True

    def new_ahead(self) -> Optional[SentAhead]:
        """Returns the order of one more feed; None: the daemon makes it."""
        if self._sampler is None and self._batch_sampler is None:
            return None
        order = SamplerOrder(
            self._sampler,
            self._batch_sampler,
            self.batch_size,
            self.drop_last,
            self._own_subset,
        )
        self.batch_size = order.batch_size
        return SentAhead(order)

    def feed_options(self, draws_by_sample: bool) -> Dict[str, Any]:
        """Returns what FeedOptions says of the order. `draws_by_sample`: random
        draws of a sent order are seeded as those of the daemon's."""
        is_sent = self.new_ahead() is not None
        options: Dict[str, Any] = {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle and not self.is_partition,
            "drop_last": self.drop_last and not is_sent,
        }
        if is_sent:
            options["client_order"] = {
                "draws_by_sample": draws_by_sample or self.is_partition
            }
        elif self.samples is not None:
            options["subset"] = {"indices": self.samples}
        return options

    # -- Seed, epoch, ranks ---------------------------------------------------

    def seed_of(self, seed: int) -> int:
        """Returns the seed of the order and the draws of this node."""
        if self.partition is None:
            return seed
        return seed_of(seed, self.partition.node.number)

    def set_seed(self, seed: int) -> None:
        for order in (self._weighted, self.partition):
            if order is not None:
                order.seed = self.seed_of(seed)

    def set_epoch(self, epoch: int) -> None:
        for order in (self._weighted, self.partition):
            if order is not None:
                order.set_epoch(epoch)

    def set_ranks(self, ranks: Ranks) -> None:
        if self._weighted is not None:
            self._weighted.ranks = ranks

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
                "weights": self._weighted and self._weighted.hash,
            },
        )
        if self._weighted is not None:
            self._weighted.num_rows = partition.num_rows
        return partition.ranks

    # -- What it is -----------------------------------------------------------

    @property
    def is_partition(self) -> bool:
        """True if the batches are a partition's, in the daemon's order."""
        return self.partition is not None and self._weighted is None

    @property
    def kind(self) -> str:
        if self._weighted is not None:
            return "weighted"
        if self.is_given:
            return "given"
        return "random" if self.shuffle else "sequential"

    def identity(self) -> Dict[str, Any]:
        """Returns what tells the samples, their weights and their nodes from
        others', if there are such."""
        identity: Dict[str, Any] = {}
        if self._subset_hash is not None:
            identity["subset"] = self._subset_hash
        if self._weighted is not None:
            identity["weights"] = self._weighted.hash
        if self.partition is not None:
            identity.update(self.partition.identity())
        return identity

    def description(self, num_batches: int) -> str:
        if self._weighted is not None:
            return "random by weights"
        if self.is_given:
            return "the order of a sampler"
        if self.partition is not None:
            return repr(self.partition)
        return f"{num_batches} batches"
