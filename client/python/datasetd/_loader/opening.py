"""Opens a job as the arguments of a DataLoader say."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

from .._arguments import checked_int, loader_timeout
from .._batches import frameworks
from .._batches.held import Held
from .._datasets.parts import whole_name
from .._datasets.subset import Samples
from .._feed.fetch import Fetcher
from .._feed.options import FieldNames, Layout
from .._feed.reconnecting_feed import Job
from .._order.weights import Weights
from .._ranks import nodes
from .._ranks.agreement import Agreement
from .._ranks.ranks import Number
from ..errors import InvalidArgument
from ..transforms._pipeline import Pipelines
from .arguments import (
    chosen_subset,
    dataset_of,
    feed_options,
    loader_device,
    reconnect_seconds,
)
from .balanced import balanced_weights
from .collective import Collective
from .feeds import Feeds
from .job_order import JobOrder
from .next_epoch import NextEpoch
from .share import Share

# Rows that a loader's fetch() has room for, where its batches have as many.
_MIN_FETCHED = 16


class OpenJob(NamedTuple):
    """The parts of a loader."""

    job: Job
    share: Share
    order: JobOrder
    feeds: Feeds
    start: NextEpoch
    collective: Collective


def open_job(
    dataset: Samples,
    *,
    batch_size: int,
    shuffle: bool,
    sampler: Optional[Iterable[int]],
    batch_sampler: Optional[Iterable[Iterable[int]]],
    seed: Optional[int],
    generator: Any,
    drop_last: bool,
    rank: Number,
    world_size: Number,
    partition: Optional[nodes.Given],
    prefetch: Optional[int],
    transforms: Pipelines,
    layout: Layout,
    framework: Optional[str],
    weights: Optional[Weights],
    subset: Optional[Iterable[int]],
    fields: FieldNames,
    views: Optional[Mapping[str, Pipelines]],
    on_held: str,
    device: Any,
    name: str,
    timeout: Optional[float],
    reconnect: Union[bool, float],
    draws_by_sample: bool,
    open_loader: Callable[..., Any],
    open_fetcher: Callable[..., Fetcher],
) -> OpenJob:
    """Checks the arguments, which are DataLoader's, and opens the first feed.

    `draws_by_sample` seeds the random draws of a sampler's order as those of
    the daemon's. `open_loader` is called as DataLoader, and `open_fetcher` as
    make_fetcher.
    """
    whole, own_subset = dataset_of(dataset)
    batch_size = checked_int("batch_size", batch_size, 1, 2**32 - 1)
    share = Share(rank, world_size)
    framework = frameworks.resolve(framework)
    if not isinstance(name, str):
        raise InvalidArgument(f"name={name!r}; expected a str")
    subset = chosen_subset(
        own_subset,
        sampler,
        batch_sampler,
        weights,
        subset,
        shuffle,
        drop_last,
        partition,
    )
    held = Held(on_held, f"a loader of dataset '{whole.name}'")
    if seed is not None and generator is not None:
        raise InvalidArgument("seed= and generator= exclude each other")
    options, images = feed_options(
        whole, name, fields, views, transforms, layout, prefetch
    )
    options["device"] = loader_device(whole, device)
    order = JobOrder(whole, subset, batch_size, shuffle, drop_last)
    if isinstance(weights, str):
        weights = balanced_weights(
            weights, open_loader, whole, order.samples, framework
        )
    if weights is not None:
        order.weigh(weights)
    if partition is not None:
        order.divide(partition)
    if sampler is not None or batch_sampler is not None:
        order.take(sampler, batch_sampler, own_subset)
    options.update(order.feed_options(draws_by_sample))
    timeout = loader_timeout(timeout)
    seconds = reconnect_seconds(reconnect)
    # After the other checks, so that a mistake draws nothing.
    share.choose_seed(seed, generator, shuffle or weights is not None)
    order.set_seed(share.seed)
    options.update(share.ranks._asdict())
    options["seed"] = str(order.seed_of(share.seed))
    job = Job(
        whole,
        options,
        framework,
        timeout,
        seconds,
        held,
        images,
        order.weighted,
    )
    if order.partition is not None and order.is_partition:
        job.num_padding = order.partition.num_padding
    feeds = Feeds(
        job,
        order,
        functools.partial(
            open_fetcher,
            whole,
            min_rows=min(order.batch_size, _MIN_FETCHED),
            fields=fields,
            views=views,
            transforms=transforms,
            layout=layout,
            framework=framework,
            device=device,
            reconnect=seconds,
        ),
    )
    start = NextEpoch()
    agreement = Agreement(whole_name(whole.name), name)
    collective = Collective(share, order, feeds, start, agreement)
    return OpenJob(job, share, order, feeds, start, collective)
