"""Decisions that a loader makes together with the other ranks."""

from __future__ import annotations

import collections
from typing import Any, Counter, Mapping

from .._feed.reconnecting_feed import ReconnectingFeed
from .._ranks.agreement import Agreement
from .._warnings import warn_once
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
        name: str,
    ) -> None:
        """`name` is the dataset's."""
        self._share = share
        self._order = order
        self._feeds = feeds
        self._start = start
        self._agreement = agreement
        self._name = name
        self._has_compared = False
        # How often each epoch has begun.
        self._begun: "Counter[int]" = collections.Counter()

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
        self._feeds.divide(*of_node, **self._order.rows_options())

    def settle(self) -> None:
        """Fixes the ranks. They agree on a seed if there are more than when it
        was drawn."""
        if not self._share.is_fixed:
            self.follow()
            self.set_seed(self._share.agreed_seed())
            self.warn_of_share()
        self._share.fix()

    def set_seed(self, seed: int) -> None:
        if seed == self._share.seed:
            return
        self._feeds.set_seed(self._order.seed_of(seed))
        self._share.seed = seed

    def check(self, identity: Mapping[str, Any], epoch: int) -> None:
        """Compares what must be equal on all ranks, before `epoch` begins; see
        Agreement."""
        name = ""
        if self._order.can_change_weights():
            name = f"{epoch}-{self._begun[epoch]}"
        self._agreement.check(self._share.ranks, identity, name)

    def begin(self, epoch: int) -> None:
        """`epoch` has begun."""
        self._begun[epoch] += 1

    def warn_of_share(self) -> None:
        """Warns once of a loader whose samples are not what a user expects who
        said nothing of ranks: a part of them, in the place of all, or all on
        every rank."""
        share, order = self._share, self._order
        rank, world_size = share.ranks
        if order.groups is not None:
            order.groups.warn_of_repeats(
                self._name, order.batch_size, world_size
            )
        if share.is_named or world_size == 1:
            return
        if order.is_given:
            is_alike = order.takes_all() and not order.has_own_subset
            if is_alike and not order.is_for_ranks():
                self._warn_of_sampler("each rank takes all samples")
        elif order.is_global and order.kind == "sequential" and order.pad:
            num_samples = self._feeds.newest.num_samples
            num_rows = num_samples // world_size
            if num_samples % world_size and not order.drop_last:
                num_rows += 1
            warn_once(
                f"share of {self._name}",
                f"dataset '{self._name}': {num_rows} of {num_samples} samples "
                f"on this rank, {rank} of {world_size}: the ranks of "
                "torch.distributed divide a loader. For all samples on this "
                "rank, such as for an evaluation by one rank or by each, pass "
                "world_size=1; world_size='auto' (or rank=, world_size=) "
                "confirms that the share is intended",
            )

    def compare_samples(self, feed: ReconnectingFeed) -> None:
        """Warns once if the sampler gives what it gives another rank. Called
        when the first epoch has begun."""
        share, order = self._share, self._order
        if self._has_compared or not order.is_given or feed.queue is None:
            return
        self._has_compared = True
        first = feed.queue.first_digest()
        if share.is_named or share.ranks.world_size == 1 or not first:
            return
        rank = self._agreement.equal_rank(
            share.ranks, order.samples_record(first)
        )
        if rank is not None:
            self._warn_of_sampler(
                f"ranks {rank} and {share.ranks.rank} take the same samples"
            )

    def _warn_of_sampler(self, what: str) -> None:
        warn_once(
            f"sampler of {self._name}",
            f"dataset '{self._name}': {what}, because the indices of a sampler "
            "are not divided among the "
            f"{self._share.ranks.world_size} ranks of torch.distributed: pass "
            "torch.utils.data.DistributedSampler("
            "dataset), or omit sampler=, and the loader divides the samples "
            "(rank=, world_size=). world_size='auto' confirms that this is "
            "intended",
        )

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
                f"load_state_dict: a state for {before} ranks was loaded, and "
                f"there are {world_size} now: load it after the ranks are "
                "known"
            )
