"""What a loader decides together with the other ranks."""

from __future__ import annotations

from typing import Any, Mapping

from .._feed.feeds import Feeds
from .._feed.reconnecting_feed import ReconnectingFeed
from .._order import partition
from .._order.sampling import digest, index_array
from .._ranks.ranks import Ranks, warn_if_changed, warn_if_launched
from .._warnings import warn_once
from ..errors import FailedPrecondition
from .order import Order
from .position import Position


def follow(order: Order, feeds: Feeds, position: Position) -> None:
    """Takes the ranks of torch.distributed until they are fixed. With a
    partition the first call waits for all ranks."""
    if order.is_fixed:
        return
    ranks = order.asked_ranks()
    if ranks != order.ranks:
        _keep_loaded(order, position, ranks.world_size)
        feeds.change(**ranks._asdict())
        order.ranks, order.partition = ranks, None
        position.newest.update()
    if order.node is None or order.partition is not None:
        return
    order.partition = partition.agree(
        order.agreement,
        ranks,
        order.node,
        order.num_samples,
        order.drop_last,
        {"content_hash": position.newest.content_hash, **order.hashes()},
    )
    feeds.change(
        **order.partition.ranks._asdict(),
        **order.rows_options(order.partition),
    )
    position.newest.update()


def settle(order: Order, feeds: Feeds, position: Position) -> None:
    """Fixes the ranks, which agree on a seed if there are more than when it was
    drawn. Warns, the first time, of others that a launcher tells, and then of
    torch.distributed's."""
    if order.is_fixed:
        if order.has_ranks_of_torch:
            warn_if_changed(order.ranks)
        return
    follow(order, feeds, position)
    set_seed(order, feeds, position, order.agreed_seed())
    warn_of_share(order, position.newest.num_samples)
    if order.has_ranks_of_torch and order.ranks.world_size == 1:
        warn_if_launched()
    order.is_fixed = True


def set_seed(
    order: Order, feeds: Feeds, position: Position, seed: int
) -> None:
    """Draws by `seed` in epochs that begin from now on. Raises Closed if the
    client is closed."""
    if seed != order.seed:
        feeds.change(seed=str(order.node_seed(seed)))
        order.seed, position.peeked = seed, None


def check(
    order: Order, position: Position, identity: Mapping[str, Any]
) -> None:
    """Compares what must be equal on all ranks, before the next epoch begins;
    see Agreement."""
    name, epoch = "", position.next.epoch
    if order.can_change_weights():
        name = f"{epoch}-{position.num_begun[epoch]}"
    order.agreement.check(order.ranks, identity, name)


def warn_of_share(order: Order, num_samples: int) -> None:
    """Warns once of a loader whose samples are not what a user expects who said
    nothing of ranks: a part of them, in the place of all, or all on every
    rank. `num_samples` are those of all ranks."""
    dataset = order.dataset.name
    rank, world_size = order.ranks
    if order.groups is not None:
        order.groups.warn_of_repeats(dataset, order.batch_size, world_size)
    if order.is_named or world_size == 1:
        return
    if order.given is not None:
        is_alike = order.given.subset is None and order.given.takes_all(
            order.num_samples, order.batch_size
        )
        if is_alike and not order.given.is_for_ranks():
            _warn_of_sampler(order, "each rank takes all samples")
    elif order.is_global and order.kind == "sequential" and order.pad:
        num_rows = num_samples // world_size
        if num_samples % world_size and not order.drop_last:
            num_rows += 1
        warn_once(
            f"share of {dataset}",
            f"dataset '{dataset}': {num_rows} of {num_samples} samples "
            f"on this rank, {rank} of {world_size}: the ranks of "
            "torch.distributed divide a loader. For all samples on this "
            "rank, such as for an evaluation by one rank or by each, pass "
            "world_size=1; world_size='auto' (or rank=, world_size=) "
            "confirms that the share is intended",
        )


def compare_samples(order: Order, feed: ReconnectingFeed) -> None:
    """Warns once if the sampler gives what it gives another rank. Called when
    the first epoch has begun."""
    given = order.given
    if order.has_compared or given is None or feed.queue is None:
        return
    order.has_compared = True
    record = {"first": feed.queue.first_digest()}
    ranks: Ranks = order.ranks
    if order.is_named or ranks.world_size == 1 or not record["first"]:
        return
    # What tells that another rank takes the same samples, if it is equal.
    if given.subset is not None and given.takes_all(
        order.num_samples, order.batch_size
    ):
        record["subset"] = digest(index_array("subset", given.subset)).hex()
    other = order.agreement.equal_rank(ranks, record)
    if other is not None:
        _warn_of_sampler(
            order, f"ranks {other} and {ranks.rank} take the same samples"
        )


def _warn_of_sampler(order: Order, what: str) -> None:
    dataset = order.dataset.name
    warn_once(
        f"sampler of {dataset}",
        f"dataset '{dataset}': {what}, because the indices of a sampler "
        f"are not divided among the {order.ranks.world_size} ranks of "
        "torch.distributed: pass torch.utils.data.DistributedSampler("
        "dataset), or omit sampler=, and the loader divides the samples "
        "(rank=, world_size=). world_size='auto' confirms that this is "
        "intended",
    )


def _keep_loaded(order: Order, position: Position, world_size: int) -> None:
    """Keeps the loaded position when the number of ranks changes."""
    asked, before = position.asked, order.ranks.world_size
    if asked is None or world_size == before:
        return
    if order.is_global:
        # The rest of the epoch begins at the row that was reached.
        rows = asked.batch * order.batch_size * before
        position.asked = asked._replace(
            batch=0, first_position=asked.first_position + rows
        )
    elif asked.batch:
        raise FailedPrecondition(
            f"load_state_dict: a state for {before} ranks was loaded, and "
            f"there are {world_size} now: load it after the ranks are "
            "known"
        )
