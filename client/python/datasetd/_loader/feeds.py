"""Feeds of a loader: at its next epoch, and for its samples' indices."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List

from .._batches.batch import Batch
from .._batches.frameworks import as_list, device_object
from .._datasets.mixture import Mixture
from .._datasets.reading import read
from .._feed.feeds import Feeds
from .._feed.reconnecting_feed import BatchPosition, ReconnectingFeed
from .._order.crops import ROW_FIELD
from .._order.sampling import index_array
from ..errors import (
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    ResourceExhausted,
)
from .order import Order
from .position import Position


def next_feed(
    feeds: Feeds, order: Order, position: Position, keep: bool = False
) -> ReconnectingFeed:
    """Returns a feed at the next epoch, which stays the next one. With `keep`
    no other feed leaves its position. Each iterator that has not ended has a
    feed of its own, and so has peek() if these are under way."""
    feed = position.peeked
    if feed is None or feed.position[:2] != position.next[:2]:
        feed = position.peeked = _at_next(feeds, order, position, keep)
    try:
        if feed.queue is not None:
            feed.queue.top_up(feed.send)
    except BaseException:
        position.peeked = None  # the sampler begins anew
        raise
    return feed


def _at_next(
    feeds: Feeds, order: Order, position: Position, keep: bool
) -> ReconnectingFeed:
    start, feed = position.next, position.newest
    if start.first_position != int(feeds.message.get("first_position", 0)):
        feeds.change(first_position=str(start.first_position))
    if feed.is_under_way() or (keep and feed.position[:2] != start[:2]):
        feed = _opened(feeds, order, start)
    if feed.queue is not None:
        feed.queue.sampler_epoch = order.sampler_epoch()
    feed.begin(start)
    return feed


def _opened(
    feeds: Feeds, order: Order, start: BatchPosition
) -> ReconnectingFeed:
    if order.given is not None and order.given.has_state():
        raise FailedPrecondition(
            "the sampler has the state of one iteration (state_dict): "
            "another iterator or peek() would change it: first iterate to "
            "the end of the epoch"
        )
    try:
        return ReconnectingFeed(feeds, order.new_queue(), start)
    except ResourceExhausted as error:
        raise ResourceExhausted(
            f"{error} (for another iterator or peek() of a loader, beside "
            "an iterator that has not ended: end or drop that iterator, or "
            "close other loaders)"
        ) from None


def peek(feeds: Feeds, order: Order, position: Position) -> Batch[Any]:
    """Returns the first batch of the next epoch."""
    feed = next_feed(feeds, order, position, keep=True)
    try:
        has_more = feed.queue.has_more() if feed.queue else feed.num_batches
    except BaseException:
        # The epoch begins anew, and meets the sampler's error again.
        position.peeked = None
        raise
    if not has_more:
        raise OutOfRange("peek(): the next epoch has no batches")
    return feed.peek()


def indices(
    feeds: Feeds, order: Order, start: BatchPosition
) -> Iterator[List[Any]]:
    """Yields the sample indices of each batch of the epoch that begins at
    `start`; of a mixture counted through all datasets. Those of the daemon's
    order come by a feed of its own that has one small field, if there is
    one."""
    queue = order.new_queue()
    if queue is not None:
        queue.order.begin(start.batch, None, None, None)
        while True:
            drawn = queue.order.draw()
            if drawn is None:
                return
            yield drawn.indices.tolist()
    dataset = feeds.options.dataset
    message: Dict[str, Any] = {
        **feeds.message,
        "first_position": str(start.first_position),
    }
    for field in dataset.fields:
        if not field.shape:
            message.update(fields={}, field_names=[field.name])
            if isinstance(dataset, Mixture):
                message["mixture"] = dataset.message(None)
            break
    own = Feeds(
        feeds.options._replace(message=message, with_valid=False),
        feeds.timeout,
        start.weighted or feeds.weighted,
    )
    try:
        feed = ReconnectingFeed(own, None, start)
        while feed.num_batches and feed.position.epoch == start.epoch:
            batch = feed.take()
            found = as_list(batch.indices)
            if isinstance(dataset, Mixture):
                found = dataset.positions(as_list(batch.dataset_index), found)
            yield found
    finally:
        own.close()


def fetch(
    feeds: Feeds, device: Any, wanted: Iterable[int], epoch: int
) -> Batch[Any]:
    """Returns samples as the loader's feeds make them, on their device."""
    feeds.check_open()
    options, message = feeds.options, feeds.message
    dataset = options.dataset
    if isinstance(dataset, Mixture):
        raise InvalidArgument(
            "fetch: a mixture has no indices of its own: take "
            "loader.dataset.parts[d][i], or fetch() of a DataLoader of the "
            "part"
        )
    samples = index_array("indices", wanted)
    # A window that is fetched is not a row of documents; lengths are of crops.
    fields = {
        name: of_field
        for name, of_field in message["fields"].items()
        if of_field.get("row_field", ROW_FIELD) == ROW_FIELD
    }
    left_out = message["fields"].keys() - fields.keys()
    names = [
        name for name in message.get("field_names", ()) if name not in left_out
    ]
    order = message.get("window_order")
    batch = feeds.retried(
        lambda: read(
            dataset,
            samples,
            options.framework,
            names,
            fields,
            int(message["seed"]),
            epoch,
            feeds.timeout,
            window_order=order and {"length": order["length"]},
        )
    )
    if options.framework == "dlpack":
        return batch
    return batch.to(device_object(options.framework, device))
