"""This process's share of a job: its rank, and the seed of all ranks."""

from __future__ import annotations

from typing import Any, Optional

from .._arguments import checked_int
from .._ranks import seeds
from .._ranks.ranks import (
    Number,
    Ranks,
    resolve,
    warn_if_changed,
    warn_if_launched,
)


class Share:
    """Ranks that were not given are those of torch.distributed, until they are
    fixed.

    Attributes: ranks; seed; is_fixed; has_seed, whether the user gave the seed;
    is_named, whether the user said anything of ranks.
    """

    def __init__(self, rank: Number, world_size: Number) -> None:
        self._asked = rank, world_size
        self.is_named = rank is not None or world_size is not None
        self.ranks = resolve(rank, world_size)
        self.is_fixed = False
        self.seed = 0
        self.has_seed = False
        self._is_seed_drawn = False
        # The ranks that have agreed on the seed.
        self._num_agreed = 0

    def current_ranks(self) -> Ranks:
        return resolve(*self._asked)

    def choose_seed(
        self, seed: Optional[int], generator: Any, is_random: bool
    ) -> None:
        """Takes `seed`, or draws one that all ranks share; None: 0 unless there
        is a generator or the order is random."""
        self.has_seed = seed is not None
        if seed is not None:
            self.seed = checked_int("seed", seed, 0, 2**64 - 1)
        elif is_random or generator is not None:
            self._is_seed_drawn = True
            self.seed = seeds.agreed(
                seeds.draw(generator), self.ranks.world_size
            )
        self._num_agreed = self.ranks.world_size

    def keep_seed(self) -> None:
        """The seed is that of a state: ranks need not agree on it."""
        self._is_seed_drawn = False

    def agreed_seed(self) -> int:
        """Returns the seed of all ranks, which agree on one if they are more
        than when it was drawn."""
        world_size = self.ranks.world_size
        if self._is_seed_drawn and world_size != self._num_agreed:
            return seeds.agreed(self.seed, world_size)
        return self.seed

    def fix(self) -> None:
        """Keeps the ranks from now on. Warns, when it is called first, of
        others that a launcher tells, and then of torch.distributed's."""
        is_auto = self._asked[1] in (None, "auto")
        if self.is_fixed:
            if is_auto:
                warn_if_changed(self.ranks)
            return
        if is_auto and self.ranks.world_size == 1:
            warn_if_launched()
        self.is_fixed = True
