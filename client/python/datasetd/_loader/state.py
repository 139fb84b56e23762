"""The resume state of a loader."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .._arguments import checked_int
from ..errors import FailedPrecondition
from .collective import Collective
from .feeds import Feeds
from .job_order import JobOrder
from .next_epoch import NextEpoch
from .resume import (
    ORDER_KEYS,
    batches_per_epoch,
    check_state,
    checked_order_state,
    checked_position,
    make_state,
)
from .share import Share


class State:
    """Writes and reads the states of one loader."""

    def __init__(
        self,
        share: Share,
        order: JobOrder,
        feeds: Feeds,
        start: NextEpoch,
        collective: Collective,
    ) -> None:
        self._share = share
        self._order = order
        self._feeds = feeds
        self._start = start
        self._collective = collective

    def num_samples(self) -> int:
        """Returns the samples of an epoch, over all ranks and nodes."""
        if self._order.partition is not None:
            self._collective.follow()
            return self._order.partition.total
        return self._feeds.newest.num_samples

    def identity(self) -> Dict[str, Any]:
        """Returns the values that must be equal to resume from a state."""
        return {
            "content_hash": self._feeds.newest.content_hash,
            "seed": self._share.seed,
            "batch_size": self._order.batch_size,
            "drop_last": self._order.drop_last,
            "sampler": self._order.kind,
            "world_size": self._share.ranks.world_size,
            "transforms_hash": self._feeds.newest.transforms_hash,
            **self._order.identity(),
        }

    def save(self) -> Dict[str, Any]:
        """See DataLoader.state_dict."""
        self._collective.follow()
        self._start.forget_unused()
        progress = self._feeds.progress
        position = self._start.asked_for()
        first = progress.first_position
        if position is not None:
            first = self._start.first_position
        state = make_state(
            self.identity(), position or progress.position, first
        )
        queue = self._feeds.current.queue
        if queue is not None and self._order.is_given:
            order = (
                progress.order_state
                if position is None
                else self._start.order_state or {}
            )
            state.update({key: order.get(key) for key in ORDER_KEYS})
            if "sampler_state" not in order and state["batch"] == 0:
                state["sampler_state"] = queue.order.present_state()
            state["sampler_epoch"] = order.get(
                "sampler_epoch", self._order.sampler_epoch()
            )
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """See DataLoader.load_state_dict."""
        self._collective.follow()
        identity = self.identity()
        check_state(state)
        if not self._share.has_seed and "seed" in state:
            identity["seed"] = checked_int(
                "state_dict: seed", state["seed"], 0, 2**64 - 1
            )
        queue = self._feeds.newest.queue
        position, first = checked_position(
            state,
            identity,
            self.num_samples() if self._order.is_global else None,
        )
        # A state of a version before does not say what the sampler was told.
        told = state.get("sampler_epoch", position[0])
        if told is not None:
            told = checked_int("state_dict: sampler_epoch", told, 0, 2**63 - 1)
        order_state = None
        if queue is not None and self._order.is_given:
            order_state = checked_order_state(state, position[1])
        self._collective.set_seed(identity["seed"])
        self._share.keep_seed()
        self._feeds.forget_peeked()
        if told is not None:
            self._order.tell_sampler(told)
        self._start.load(position, first, order_state)

    # -- For others -----------------------------------------------------------

    def skip(self, count: int) -> bool:
        """Begins the next epoch `count` batches later; False if it is known
        that none are left."""
        if self._start.order_state is not None:
            raise FailedPrecondition(
                "skip_first_batches: load_state_dict() has set the place in "
                "the sampler's order: no batches can be skipped from there"
            )
        epoch, index = self._start.position()
        index += count
        first = self._start.first_position
        partition = self._order.partition
        num_batches = (
            batches_per_epoch(
                self.num_samples() - first,
                self._order.batch_size,
                self._share.ranks.world_size,
                self._order.drop_last,
            )
            if partition is None
            else len(partition)
        )
        self._start.load((epoch, index), first, None)
        is_known = self._feeds.newest.queue is None or partition is not None
        if is_known and index >= num_batches:
            self._start.skip(epoch)
            return False
        return True

    def num_padding(self) -> int:
        """Returns how many samples the epoch repeats, over all ranks."""
        order = self._order
        if order.partition is not None and order.is_partition:
            return order.partition.num_padding_of_all()
        if order.drop_last or order.weighted or not order.is_global:
            return 0
        first = self._feeds.progress.first_position
        return -(self.num_samples() - first) % self._share.ranks.world_size
