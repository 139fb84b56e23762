"""DataLoader's arguments, checked, as options of its feeds."""

from __future__ import annotations

import sys
from typing import Any, Dict, FrozenSet, List, Optional, Tuple, Union

from .._arguments import checked_int, checked_seconds, device_name
from .._datasets.dataset import Dataset, has_replicas
from .._datasets.mixture import Mixture, Whole, as_mixture
from .._datasets.subset import whole_of
from .._feed.options import chosen_fields, fields_message
from .._feed.recovery import check_replaced
from .._order.crops import ROW_FIELD as LENGTHS_FIELD
from .._order.crops import Crops
from .._order.windows import GivenWindows, Windows, as_windows
from ..errors import Error, InvalidArgument
from ..transforms._pipeline import noise_of

_NOT_OF_MIXTURES = (
    "sampler",
    "batch_sampler",
    "weights",
    "subset",
    "partition",
    "group_size",
)


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


def check_order(
    dataset: Whole, windows: GivenWindows, **arguments: Any
) -> Union[None, Windows, Crops]:
    """Checks that at most one of DataLoader's arguments determines the order,
    and returns the windows or crops. Those that are None or False are not
    given; `own_subset` is the indices of a Subset as dataset."""
    given = {
        name: value is not None and value is not False
        for name, value in arguments.items()
    }

    def exclude(argument: str, *names: str) -> None:
        for name in names:
            if given[name]:
                raise InvalidArgument(
                    f"{argument} and {name}= exclude each other"
                )

    is_sampled = given["sampler"] or given["batch_sampler"]
    if given["partition"] and is_sampled:
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
    if isinstance(dataset, Mixture):
        for name in _NOT_OF_MIXTURES:
            if given[name]:
                raise InvalidArgument(
                    f"{name}= and a mixture exclude each other: the daemon "
                    "mixes whole datasets. Push the samples as a dataset of "
                    "their own for the mixture, or push datasetd.concat of the "
                    "datasets as one"
                )
    if windows is None:
        return None
    cut = as_windows(windows)
    if isinstance(cut, Crops):
        return cut
    if isinstance(dataset, Mixture):
        raise InvalidArgument("windows= and a mixture exclude each other")
    given["subset"] = given["subset"] or given["own_subset"]
    exclude("windows=", "subset", "weights", "partition", "group_size", "views")
    if is_sampled and cut.order:
        raise InvalidArgument(
            "windows= with a sampler, whose indices are the first steps of "
            f"windows, is a length: windows={cut.length}"
        )
    if cut.is_random:
        exclude("windows=random_windows()", "shuffle")
    return cut


def feed_options(
    dataset: Whole,
    name: str,
    fields: Any,
    views: Any,
    transforms: Any,
    layout: Any,
    prefetch: Optional[int],
    windows: Union[None, Windows, Crops] = None,
) -> Tuple[Dict[str, Any], FrozenSet[str]]:
    """Returns FeedOptions without the order, and the names of a batch's
    images."""
    options: Dict[str, Any] = {"name": name}
    derived = {} if windows is None else windows.derived(dataset.fields)
    chosen = chosen_fields(dataset, fields, views, derived)
    more = dict(derived)
    if isinstance(windows, Crops):
        more.update(windows.cropped(dataset.fields))

    def message(ops: Any) -> Dict[str, Any]:
        found = fields_message(dataset, chosen, ops, layout, views)
        for field in chosen:
            if field.name in more:
                found.setdefault(field.name, {}).update(more[field.name])
        for name in derived:
            if name in found and found[name].get("row_field") == LENGTHS_FIELD:
                _count_frames(found, name)
        return found

    if not isinstance(dataset, Mixture):
        options["dataset"] = dataset.name
        options["fields"] = message(transforms)
    else:
        own = dataset.transforms_of_parts(transforms)
        options["mixture"] = dataset.message(own and list(map(message, own)))
        options["fields"] = message(() if own else transforms)
    if prefetch is not None:
        options["prefetch"] = checked_int("prefetch", prefetch, 1, 62)
    if fields is not None or views is not None or derived:
        options["field_names"] = [field.name for field in chosen]
    return options, frozenset(field.name for field in chosen if field.is_image)


def _count_frames(fields: Dict[str, Any], name: str) -> None:
    """Lets a field of lengths count frames, if its field's ops make some."""
    ops = fields.get(fields[name]["source"], {}).get("transforms", ())
    if any("mel_spectrogram" in op for op in ops):
        fields[name].setdefault("transforms", ops)


def noise_datasets(dataset: Whole, *pipelines: Any) -> List[Dataset]:
    """Returns the datasets that the ops take noise from, each once, of the
    loader's session; without those of the loader. Waits for one that is loading
    and given by name."""
    found: Dict[str, Dataset] = {}
    own = {one.name: one for one in dataset._datasets_in_use()}
    session = dataset._session
    for given in noise_of(pipelines):
        name = getattr(given, "name", given)
        if not isinstance(given, (str, Dataset)):
            raise InvalidArgument(
                f"AddNoise: noise is a {type(given).__name__} of {name!r}, and "
                "noise is a whole dataset: push it as one, with "
                "client.push_dataset(name, data)"
            )
        if isinstance(given, Dataset):
            if given._session.address != session.address:
                raise InvalidArgument(
                    f"AddNoise: noise {name!r} is of the daemon at "
                    f"{given._session.address}, and dataset {dataset.name!r} "
                    f"of that at {session.address}: load both into one"
                )
            if given._session is session:
                found[name] = given
        if name in own or name in found:
            continue
        client = next(iter(own.values())).client
        try:
            # Held by the feed, from when it is open.
            with client.get_dataset(name) as noise:
                found[name] = noise
        except Error as error:
            text = f"AddNoise: noise={name!r}: {error}"
            raise type(error)(text) from None
        if isinstance(given, Dataset):
            check_replaced([given], {name: noise.content_hash})
    return [noise for name, noise in found.items() if name not in own]


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
