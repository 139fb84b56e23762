"""DataLoader's arguments, checked, as options of its feeds."""

from __future__ import annotations

import sys
from typing import Any, Dict, FrozenSet, Optional, Tuple, Union

from .._arguments import checked_int, checked_seconds, device_name
from .._datasets.dataset import Dataset, has_replicas
from .._datasets.mixture import Mixture, as_mixture
from .._datasets.subset import whole_of
from .._feed.options import chosen_fields, fields_message
from .._order.windows import Windows
from ..errors import InvalidArgument

Whole = Union[Dataset, Mixture]


def dataset_of(given: Any) -> Tuple[Whole, Optional[Any]]:
    """Returns the whole dataset, and the indices of a Subset; None: of all."""
    mixture = as_mixture(given)
    if mixture is not None:
        mixture.check_loadable()
        return mixture, None
    whole, own_subset = whole_of(given)
    if not isinstance(whole, Dataset):
        what = repr(given) if isinstance(given, str) else type(given).__name__
        raise InvalidArgument(
            f"dataset={what}; expected the result of Client.load_dataset, "
            "push_dataset or get_dataset, a Subset of it, or a mixture or "
            "concat of several: "
            "client.push_dataset(name, data) makes a dataset of a torch "
            "Dataset, arrays or tensors"
        )
    return whole, own_subset


def check_order(**arguments: Any) -> None:
    """Checks that at most one of DataLoader's arguments determines the order.
    Those that are None or False are not given; `own_subset` is the indices of a
    Subset as dataset."""
    given = {
        name: value is not None and value is not False
        for name, value in arguments.items()
    }

    def exclude(argument: str, *names: str) -> None:
        _exclude(argument, **{name: given[name] for name in names})

    if given["partition"] and (given["sampler"] or given["batch_sampler"]):
        raise InvalidArgument(
            "partition= and a sampler exclude each other: a sampler's indices "
            "are this rank's already, and give each rank as many"
        )
    if not given["pad"]:
        exclude(
            "pad=False", "drop_last", "sampler", "batch_sampler", "partition"
        )
    if given["weights"]:
        exclude("weights=", "sampler", "batch_sampler", "shuffle")
    if given["group_size"]:
        exclude("group_size=", "sampler")
        if not given["batch_sampler"]:
            exclude("group_size=", "shuffle", "weights", "partition")
    if given["group_by"]:
        if not given["group_size"]:
            raise InvalidArgument(
                "group_by= needs group_size=, the samples of a group"
            )
        exclude("group_by=", "batch_sampler")
    if given["batch_sampler"]:
        exclude("batch_sampler=", "sampler", "shuffle", "drop_last", "subset")
    if given["sampler"]:
        exclude("sampler=", "shuffle", "subset")
    if given["own_subset"] and given["subset"]:
        raise InvalidArgument(
            "subset= and a Subset as dataset exclude each other: use "
            "select(indices) of the Subset"
        )


def check_mixture(dataset: Whole, **others: Any) -> None:
    """Checks that nothing else than a mixture determines the order.
    `others` are arguments, None where they were not given."""
    if not isinstance(dataset, Mixture):
        return
    for other, value in others.items():
        if value is None:
            continue
        raise InvalidArgument(
            f"{other}= and a mixture exclude each other: the daemon mixes "
            "whole datasets. Push the samples as a dataset of their own for "
            "the mixture, or push datasetd.concat of the datasets as one"
        )


def check_windows(
    windows: Windows,
    dataset: Whole,
    is_given: bool,
    shuffle: bool,
    **others: bool,
) -> None:
    """Checks that nothing else determines the order of windows. `is_given`: a
    sampler does; `others` are arguments that windows exclude."""
    if isinstance(dataset, Mixture):
        raise InvalidArgument("windows= and a mixture exclude each other")
    _exclude("windows=", **others)
    if is_given and windows.order:
        raise InvalidArgument(
            "windows= with a sampler, whose indices are the first steps of "
            f"windows, is a length: windows={windows.length}"
        )
    if windows.is_random:
        _exclude("windows=random_windows()", shuffle=shuffle)


def _exclude(argument: str, **others: bool) -> None:
    for other, is_given in others.items():
        if is_given:
            raise InvalidArgument(
                f"{argument} and {other}= exclude each other"
            )


def feed_options(
    dataset: Whole,
    name: str,
    fields: Any,
    views: Any,
    transforms: Any,
    layout: Any,
    prefetch: Optional[int],
    windows: Optional[Windows] = None,
) -> Tuple[Dict[str, Any], FrozenSet[str]]:
    """Returns FeedOptions without the order, and the names of a batch's
    images."""
    options: Dict[str, Any] = {"name": name}
    derived = {} if windows is None else windows.derived(dataset.fields)
    chosen = chosen_fields(dataset, fields, views, derived)

    def message(ops: Any) -> Dict[str, Any]:
        return fields_message(dataset, chosen, ops, layout, views)

    if not isinstance(dataset, Mixture):
        options["dataset"] = dataset.name
        options["fields"] = message(transforms)
    else:
        own = dataset.transforms_of_parts(transforms)
        options["mixture"] = dataset.message(own and list(map(message, own)))
        options["fields"] = message(() if own else transforms)
    for field in chosen:
        if field.name in derived:
            options["fields"].setdefault(field.name, {}).update(
                derived[field.name]
            )
    if prefetch is not None:
        options["prefetch"] = checked_int("prefetch", prefetch, 1, 62)
    if fields is not None or views is not None or derived:
        options["field_names"] = [field.name for field in chosen]
    return options, frozenset(field.name for field in chosen if field.is_image)


def check_valid(names: Any, dataset: Whole) -> None:
    """Checks that with_valid= finds its name free; None: all fields."""
    if names is None:
        names = [field.name for field in dataset.fields]
    if "valid" in names:
        raise InvalidArgument(
            f"with_valid=: dataset '{dataset.name}' already has a field "
            "'valid': choose fields= without it"
        )


def loader_device(dataset: Whole, device: Any) -> str:
    """Returns FeedOptions.device for the library, which knows GPUs by this
    process's numbers; "": the library looks for the process's own GPU, or else
    takes the dataset's first."""
    if device is None:
        datasets = dataset._datasets_in_use()
        own = _torch_gpu() if any(map(has_replicas, datasets)) else None
        return "" if own is None else f"cuda:{own}"
    if str(device) == "cuda":
        return f"cuda:{_torch_gpu() or 0}"
    return device_name(device)


def _torch_gpu() -> Optional[int]:
    """Returns torch's current GPU, if torch uses one already."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.current_device())


def reconnect_seconds(reconnect: Any) -> float:
    if reconnect is True:
        return 60.0
    return checked_seconds("reconnect", reconnect or 0)
