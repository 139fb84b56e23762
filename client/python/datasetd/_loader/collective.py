"""Decisions that a loader makes together with the other ranks."""

from __future__ import annotations

from typing import Any, Mapping

from .._ranks.agreement import Agreement
from ..errors import FailedPrecondition
from .feeds import Feeds
from .job_order import JobOrder
from .next_epoch import NextEpoch
from .share import Share


class Collective:
    """The ranks of a loader: how many they are, their seed, and what must be
    equal on all."""

    def __init__(
        self,
        share: Share,
        order: JobOrder,
        feeds: Feeds,
        start: NextEpoch,
        agreement: Agreement,
    ) -> None:
        self._share = share
        self._order = order
        self._feeds = feeds
        self._start = start
        self._agreement = agreement

    def follow(self) -> None:
        """Takes the ranks of torch.distributed until they are fixed. With a
        partition the first call waits for all ranks."""
        share = self._share
        if share.is_fixed:
            return
        ranks = share.current_ranks()
        if ranks != share.ranks:
            self._keep_loaded(ranks.world_size)
            share.ranks = ranks
            self._feeds.divide(*ranks)
        of_node = self._order.agree(
            self._agreement, ranks, self._feeds.newest.content_hash
        )
        if of_node is None:
            return
        num_draws = self._order.num_draws()
        if num_draws is not None:
            self._feeds.set_num_draws(num_draws)
        self._feeds.divide(*of_node)

    def settle(self) -> None:
        """Fixes the ranks. They agree on a seed if there are more than when it
        was drawn."""
        if not self._share.is_fixed:
            self.follow()
            self.set_seed(self._share.agreed_seed())
        self._share.fix()

    def set_seed(self, seed: int) -> None:
        if seed == self._share.seed:
            return
        self._feeds.set_seed(self._order.seed_of(seed))
        self._share.seed = seed
        self._order.set_seed(seed)

    def check(self, identity: Mapping[str, Any]) -> None:
        """Compares what must be equal on all ranks; see Agreement."""
        self._agreement.check(self._share.ranks, identity)

    def _keep_loaded(self, world_size: int) -> None:
        """Keeps the loaded place when the number of ranks changes."""
        before = self._share.ranks.world_size
        loaded = self._start.loaded
        if loaded is None or world_size == before:
            return
        if self._order.is_global:
            self._start.cut_anew(self._order.batch_size * before)
        elif loaded[1]:
            raise FailedPrecondition(
                f"load_state_dict: a state of {before} ranks was loaded, and "
                f"there are {world_size} now: load it after the ranks are "
                "known"
            )
