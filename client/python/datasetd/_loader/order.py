"""Decides the order of a loader's batches."""

from __future__ import annotations

import array
from typing import Any, Dict, Iterable, Optional, Tuple

from .._arguments import checked_int
from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture, Whole
from .._datasets.parts import check_node, whole_name
from .._feed.order_queue import OrderQueue
from .._order.groups import ClassGroups
from .._order.partition import Partition, seed_of, text_of
from .._order.sampling import Given, SamplerOrder, digest, flat, index_array
from .._order.weights import Weighted
from .._order.windows import Windows
from .._ranks import nodes, seeds
from .._ranks.agreement import Agreement
from .._ranks.ranks import Number, Ranks, resolve
from ..errors import InvalidArgument
from .balanced import balanced_weights
from .resume import batches_per_epoch


class Order:
    """Which samples a loader takes, in which order, and which of them are this
    rank's. The daemon makes the order, which may draw by weights; or it is
    sent, if it is a sampler's.

    Attributes:
      batch_size, shuffle, drop_last, pad: as given; of a batch_sampler the size
        of its largest batch.
      samples, weighted, groups, windows, given: the indices of a subset,
        weights, groups, windows and a sampler; each None if there are none.
      group_size: rows of a group, 0: there are none; None: the first batch of
        the sampler tells.
      num_rows: rows of a mixture's epoch over all ranks; None: as many as there
        are samples.
      ranks: this rank and the number of ranks: if they were not given those of
        torch.distributed, until is_fixed. is_named: anything was said of ranks.
      seed: of all ranks; has_seed: the user gave it.
      node, partition: the node, if the samples are divided over nodes, and once
        the ranks have agreed the rows of this one.
      agreement: compares what must be equal on all ranks.
    """

    def __init__(
        self,
        dataset: Whole,
        subset: Optional[Iterable[int]],
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        pad: bool,
        ranks: Tuple[Number, Number],
        name: str = "",
        windows: Optional[Windows] = None,
    ) -> None:
        """The daemon's order, of `subset` or else of all samples; with
        `windows` of those. `ranks` are the arguments rank and world_size;
        `name` is the loader's."""
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.pad = pad
        self.samples: "Optional[array.array[int]]" = None
        self.num_samples = len(dataset)
        self._subset_hash: Optional[str] = None
        if subset is not None:
            self.samples = index_array("subset", subset)
            if not self.samples:
                raise InvalidArgument("subset: there are no indices")
            self._subset_hash = digest(self.samples).hex()
            self.num_samples = len(self.samples)
        self.num_rows: Optional[int] = None
        if isinstance(dataset, Mixture) and dataset.ratios is not None:
            self.num_rows = dataset.num_rows
        self.weighted: Optional[Weighted] = None
        # The last other ones that `weighted` has replaced.
        self._replaced: Optional[Weighted] = None
        self.groups: Optional[ClassGroups] = None
        self.group_size: Optional[int] = 0
        self.windows = windows
        self.given: Optional[Given] = None
        # That the sampler was told.
        self._sampler_epoch: Optional[int] = None
        self._asked_ranks = ranks
        self.is_named = any(given is not None for given in ranks)
        self.ranks = resolve(*ranks)
        self.is_fixed = False
        self.seed = 0
        self.has_seed = False
        # The number of ranks that have agreed on a seed that was drawn; 0: the
        # seed is given.
        self._num_agreed = 0
        self.node: Optional[nodes.Node] = None
        self.partition: Optional[Partition] = None
        self.agreement = Agreement(whole_name(dataset.name), name)
        # Whether ranks were compared by their sampler's indices.
        self.has_compared = False

    # -- Other orders ---------------------------------------------------------

    def weights_of(self, weights: Any) -> Weighted:
        """Returns weights of the samples: numbers, or "balanced"."""
        if isinstance(weights, str) and isinstance(self.dataset, Dataset):
            weights = balanced_weights(weights, self.dataset, self.samples)
        return Weighted(weights, self.samples, self.num_samples)

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
        return self.weighted is not None and self.node is None

    def group(self, size: int, classes: Any) -> None:
        """The daemon draws groups of `size` samples of one class."""
        self.groups = ClassGroups(size, classes, self.num_samples)
        self.group_size = size

    def divide(self, given: nodes.Given) -> None:
        """Divides the order over nodes. REQUIRES: there is no sampler."""
        self.node = nodes.resolve("partition", given)
        check_node(self.dataset.name, self.node)

    def take(self, given: Given, group_size: Optional[int]) -> None:
        """Takes the order of a sampler. `group_size` is of the groups of a
        batch_sampler; None: it tells."""
        batches = given.batch_sampler
        if batches is not None:
            self.group_size = group_size
            if isinstance(batches, (list, tuple)) and batches:
                _, self.group_size = flat(0, batches[0], group_size)
        self.batch_size = given.largest_batch(self.batch_size)
        self.given = given

    def new_queue(self) -> Optional[OrderQueue]:
        """Returns the order of one more feed; None: the daemon makes it."""
        return None if self.given is None else OrderQueue(SamplerOrder(self))

    def feed_options(self) -> Dict[str, Any]:
        """Returns what FeedOptions says of the order."""
        is_sent = self.given is not None
        options: Dict[str, Any] = {
            "batch_size": self.batch_size * self.group_rows,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last and not is_sent,
            "seed": str(self.node_seed(self.seed)),
            **self.ranks._asdict(),
        }
        if not self.pad:
            options["unpadded"] = True
        if self.groups is not None:
            options["group_order"] = {
                "group_size": self.groups.size,
                "num_groups": str(self.groups.num_groups),
            }
        elif self.group_size:
            options["group_order"] = {"group_size": self.group_size}
        if self.windows is not None:
            options["window_order"] = self.windows.message(is_sent)
        if is_sent:
            options["client_order"] = {}
        return options

    def rows_options(self, partition: Partition) -> Dict[str, Any]:
        """Returns what FeedOptions says of a partition's rows."""
        if self.weighted is not None:
            num_draws = partition.num_rows * partition.ranks.world_size
            return {"weighted_order": {"num_draws": str(num_draws)}}
        return {"rows_per_epoch": str(partition.num_rows)}

    # -- Seed, ranks, epoch ---------------------------------------------------

    def asked_ranks(self) -> Ranks:
        """Returns the ranks that are to be, as long as they are not fixed."""
        return resolve(*self._asked_ranks)

    @property
    def has_ranks_of_torch(self) -> bool:
        return self._asked_ranks[1] in (None, "auto")

    def choose_seed(self, seed: Optional[int], generator: Any) -> None:
        """Takes `seed`, or draws one that all ranks share; None: 0 unless there
        is a generator or the order is random."""
        self.has_seed = seed is not None
        if seed is not None:
            self.seed = checked_int("seed", seed, 0, 2**64 - 1)
        elif self.is_random or generator is not None:
            self._num_agreed = self.ranks.world_size
            self.seed = seeds.agreed(seeds.draw(generator), self._num_agreed)

    def keep_seed(self) -> None:
        """The seed is that of a state: ranks need not agree on it."""
        self._num_agreed = 0

    def agreed_seed(self) -> int:
        """Returns the seed of all ranks, which agree on one if they are more
        than when it was drawn."""
        size = self.ranks.world_size
        if self._num_agreed in (0, size):
            return self.seed
        return seeds.agreed(self.seed, size)

    def node_seed(self, seed: int) -> int:
        """Returns the seed of the order and the draws of this node."""
        return seed if self.node is None else seed_of(seed, self.node.number)

    def tell_sampler(self, epoch: int) -> None:
        """Passes the epoch to a sampler that has set_epoch."""
        sampler = self.given and self.given.with_epoch()
        if sampler is not None:
            sampler.set_epoch(epoch)
            self._sampler_epoch = epoch

    def sampler_epoch(self) -> Optional[int]:
        """Returns the epoch that the sampler was told, also by others, if it
        has it as `epoch`, as torch's; None: none, or it is not known."""
        sampler = self.given and self.given.with_epoch()
        own = getattr(sampler, "epoch", None)
        if isinstance(own, int) and own >= 0:
            return int(own)
        return self._sampler_epoch

    # -- What it is -----------------------------------------------------------

    @property
    def subset(self) -> "Optional[array.array[int]]":
        """The samples to which the daemon's order is restricted; None: all, or
        those of weights."""
        return None if self.weighted is not None else self.samples

    @property
    def group_rows(self) -> int:
        """Rows of a group, or 1."""
        return self.group_size or 1

    @property
    def is_global(self) -> bool:
        """True if the daemon makes one order, which all ranks divide."""
        return self.node is None and self.given is None

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
        if self.given is not None:
            return "given"
        if self.draws_windows:
            return "windows"
        return "random" if self.shuffle else "sequential"

    def hashes(self) -> Dict[str, Optional[str]]:
        """Returns hashes of what may differ between nodes."""
        weighted = self.weighted
        return {
            "subset": self._subset_hash,
            "weights": None if weighted is None else weighted.hash,
        }

    def identity(self, feed: Any) -> Dict[str, Any]:
        """Returns the values that must be equal to resume from a state; `feed`
        is one of the loader's."""
        identity: Dict[str, Any] = {
            "content_hash": feed.content_hash,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "sampler": self.kind,
            "world_size": self.ranks.world_size,
            "transforms_hash": feed.transforms_hash,
        }
        for key, value in self.hashes().items():
            if value is not None:
                identity[key] = value
        if self.groups is not None:
            identity["classes"] = self.groups.hash
        if self.group_size:
            identity["group_size"] = self.group_size
        if self.windows is not None:
            identity["windows"] = self.windows.identity()
        if feed.noise:
            identity["noise"] = dict(feed.noise)
        if self.partition is not None:
            identity.update(self.partition.identity())
        return identity

    # -- How many -------------------------------------------------------------

    def num_positions(self, num_samples: int) -> int:
        """Returns the positions of the daemon's order in an epoch: groups, rows
        of a mixture, or `num_samples`, which of windows the daemon counts."""
        if self.num_rows is not None:
            return self.num_rows
        return num_samples if self.groups is None else self.groups.num_groups

    def num_batches(self, num_positions: int) -> int:
        """Returns this rank's batches of the last `num_positions` of an epoch.
        REQUIRES: is_global."""
        return batches_per_epoch(
            num_positions,
            self.batch_size,
            self.ranks.world_size,
            self.drop_last,
            0 if self.pad else self.ranks.rank,
        )

    def num_own_rows(self, num_positions: int) -> int:
        """Returns the rows of this rank in a whole epoch, before batches are
        dropped. REQUIRES: there is no sampler."""
        if self.partition is not None:
            return self.partition.num_rows
        rank, size = self.ranks
        if self.drop_last:
            return num_positions // size * self.group_rows
        rest = 0 if self.pad else rank
        return -(-max(0, num_positions - rest) // size) * self.group_rows

    def num_padding(self, num_positions: int) -> int:
        """Returns how many samples the last `num_positions` of an epoch repeat,
        over all ranks."""
        if self.drop_last or self.weighted or self.draws_windows:
            return 0
        if self.partition is not None:
            return self.partition.num_padding()
        if self.groups or not self.pad or self.given:
            return 0
        return -num_positions % self.ranks.world_size

    def description(self, num_batches: int) -> str:
        if self.weighted is not None:
            return "random by weights"
        if self.groups is not None:
            return f"{num_batches} batches of groups of {self.groups.size}"
        if self.given is not None:
            return "the order of a sampler"
        if self.node is not None:
            return text_of(self.node)
        return f"{num_batches} batches"
