"""Mixture: the samples of several datasets, for one loader."""

from __future__ import annotations

import itertools
import math
import numbers
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NoReturn,
    Optional,
    Union,
)

from .._arguments import checked_int, has_items_of
from .._attributes import missing
from .._connection.connection import Connection
from .._connection.session import Session
from .._descriptions import Field
from ..errors import InvalidArgument
from .dataset import Dataset
from .subset import Samples

_MAX_PARTS = 64  # the daemon's
_READING = "read the samples of its parts, as mixture.parts[0][i]"


class Mixture:
    """The samples of several datasets, for one DataLoader.

    Made by concat() and mixture(). Refers to the datasets and copies no sample.

    Attributes: parts (the datasets), ratios (None for concat), num_rows (rows
    per epoch, over all ranks), fixed_per_batch; name, fields and class_names
    (also classes and class_to_idx), which all parts share.
    """

    def __init__(
        self,
        what: str,
        parts: Iterable[Samples],
        ratios: Optional[List[float]] = None,
        num_rows: Optional[int] = None,
        fixed_per_batch: bool = False,
    ) -> None:
        """`what` is the function that is called, for errors."""
        self.parts = list(parts)
        self.ratios = ratios
        self.fixed_per_batch = bool(fixed_per_batch)
        if not self.parts:
            raise InvalidArgument(f"{what}: expected at least one dataset")
        for part in self.parts:
            if not isinstance(part, Samples):
                raise InvalidArgument(
                    f"{what}: {type(part).__name__} is not a dataset of a "
                    "daemon: push it first; torch's ConcatDataset takes any"
                )
        first = self.parts[0]
        self.fields: List[Field] = first.fields
        for i, part in enumerate(self.parts):
            _check_fields(what, first, part, i)
        classes = {tuple(part.classes) for part in self.parts if part.classes}
        if len(classes) > 1:
            raise InvalidArgument(
                f"{what}: the datasets have different class names, so a "
                "label does not mean the same: "
                + ", ".join(f"{p.name!r} {p.classes[:3]}" for p in self.parts)
            )
        self.class_names = list(classes.pop()) if classes else []
        self.num_rows = len(self)
        if num_rows is not None:
            self.num_rows = checked_int("num_rows", num_rows, 1, 2**32 - 1)
        names = [part.name for part in self.parts]
        more = f" + {len(names) - 3} more" if len(names) > 3 else ""
        self.name = " + ".join(names[:3]) + more

    @property
    def classes(self) -> List[str]:
        return self.class_names

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """The label of each class name."""
        return {name: label for label, name in enumerate(self.class_names)}

    def __len__(self) -> int:
        """The number of samples of all parts."""
        return sum(map(len, self.parts))

    def __getattr__(self, name: str) -> NoReturn:
        # torch's ConcatDataset and Dataset have these.
        is_reading = name in ("column", "select", "split", "datasets")
        raise missing(self, name, _READING if is_reading else "")

    def __repr__(self) -> str:
        if self.ratios is None:
            return f"datasetd.concat({self.parts!r})"
        shares = ", ".join(
            f"{part.name!r}: {ratio:g}"
            for part, ratio in zip(self.parts, self.ratios)
        )
        fixed = ", fixed_per_batch=True" if self.fixed_per_batch else ""
        return (
            f"datasetd.mixture({{{shares}}}, num_rows={self.num_rows}{fixed})"
        )

    # -- For a DataLoader, as a Dataset has them ------------------------------

    # The daemon makes it, of the parts' and the ratios.
    content_hash = ""

    def check_loadable(self) -> None:
        """Raises InvalidArgument if no DataLoader can draw from it."""
        for i, part in enumerate(self.parts):
            if not isinstance(part, Dataset):
                raise InvalidArgument(
                    f"dataset: part {i} of the mixture is a Subset of "
                    f"{part.name!r}, and a loader mixes whole datasets: push "
                    "it as one, with client.push_dataset(name, subset)"
                )
            if part._session is not self._session:
                raise InvalidArgument(
                    f"dataset: {self.parts[0].name!r} and {part.name!r} are of "
                    "two Clients: take the datasets of a mixture from one"
                )
        if len(self.parts) > _MAX_PARTS:
            raise InvalidArgument(
                f"dataset: the mixture has {len(self.parts)} datasets; a "
                f"loader mixes at most {_MAX_PARTS}: push some of them as one, "
                "with client.push_dataset(name, datasetd.concat(some))"
            )

    def _datasets_in_use(self) -> List[Dataset]:
        """The parts, each once."""
        by_name = {part.name: part._whole() for part in self.parts}
        return list(by_name.values())

    def positions(
        self, datasets: List[int], indices: List[int]
    ) -> List[int]:
        """Returns samples counted through all parts."""
        offsets = [0, *itertools.accumulate(map(len, self.parts))]
        return [offsets[d] + i for d, i in zip(datasets, indices)]

    @property
    def _session(self) -> Session:
        session: Session = self.parts[0]._whole()._session
        return session

    def _found(self) -> Optional[Connection]:
        found: Optional[Connection] = self.parts[0]._whole()._found()
        return found

    def message(
        self, fields_of_parts: Optional[List[Dict[str, Any]]]
    ) -> Dict[str, Any]:
        """Returns FeedOptions.mixture. `fields_of_parts` are the parts' own
        FieldOptions; None: there are none."""
        parts: List[Dict[str, Any]] = []
        for i, part in enumerate(self.parts):
            message: Dict[str, Any] = {"dataset": part.name}
            if self.ratios is not None:
                message["ratio"] = self.ratios[i]
            if fields_of_parts is not None:
                message["fields"] = fields_of_parts[i]
                message["has_own_fields"] = True
            parts.append(message)
        if self.ratios is None:
            return {"parts": parts}
        return {
            "parts": parts,
            "num_rows": str(self.num_rows),
            "is_fixed_per_batch": self.fixed_per_batch,
        }

    def transforms_of_parts(self, transforms: Any) -> Optional[List[Any]]:
        """Returns the transforms of each part if `transforms` is a dict by
        parts, Datasets or their names; else None."""
        if not isinstance(transforms, Mapping) or not transforms:
            return None
        names = {part.name for part in self.parts}
        keys = {_name_of(key): ops for key, ops in transforms.items()}
        if not names.intersection(keys) and not any(
            isinstance(key, Samples) for key in transforms
        ):
            return None
        fields = {field.name for field in self.fields}
        if fields.issuperset(keys) and all(
            isinstance(key, str) for key in transforms
        ):
            raise InvalidArgument(
                f"transforms: {sorted(keys)} are names of fields and of "
                "datasets: give the Datasets as keys for transforms by dataset"
            )
        for name in [*names, *keys]:
            if name not in keys:
                raise InvalidArgument(
                    f"transforms: there are none for dataset {name!r} of the "
                    "mixture: give [] to leave its samples as they are"
                )
            if name not in names:
                raise InvalidArgument(
                    f"transforms: {name!r} is not a dataset of the mixture; it "
                    f"has {sorted(names)}"
                )
        return [keys[part.name] for part in self.parts]


def mixture(
    ratios: Mapping[Union[Dataset, str], float],
    num_rows: Optional[int] = None,
    fixed_per_batch: bool = False,
    client: Any = None,
) -> Mixture:
    """Returns several datasets in given ratios, for a DataLoader:

        mix = datasetd.mixture({web: 0.7, books: 0.3})
        loader = datasetd.DataLoader(mix, batch_size=256, shuffle=True)

    Args:
      ratios: by dataset, its share of the rows, relative to the sum of all.
        An epoch has exactly that many rows of each, rounded. The keys are
        Datasets, or names if `client` is given.
      num_rows: rows of an epoch, over all ranks. None: the number of samples
        of all datasets.
      fixed_per_batch: every batch, over all ranks, has the datasets in their
        ratios, to within two rows; rows of one dataset are then neighbours. If
        False only the epoch has: with shuffle a batch is drawn at random,
        without the datasets take turns.
      client: the Client that looks up names.

    Each dataset is passed through from beginning to end, again and again, in a
    new order each time with shuffle. A pass goes on in the next epoch, and a
    small dataset that begins again ends nothing. The datasets have the same
    fields, in the same order, and lie on one device. `Batch.dataset_index` and
    `Batch.indices` say which sample each row is. Raises InvalidArgument.
    """
    if not isinstance(ratios, Mapping):
        raise InvalidArgument(
            f"ratios is {type(ratios).__name__}; expected a dict of numbers by "
            "dataset; concat([...]) has datasets without ratios"
        )
    values = [_checked_ratio(key, value) for key, value in ratios.items()]
    # Before datasets are looked up.
    if ratios and not math.isfinite(sum(values)):
        raise InvalidArgument("ratios: the sum is not finite: divide all")
    parts = [_dataset_of(key, client) for key in ratios]
    return Mixture("mixture", parts, values, num_rows, fixed_per_batch)


def concat(parts: Iterable[Samples]) -> Mixture:
    """Returns the samples of several datasets, one dataset after another:

        loader = datasetd.DataLoader(datasetd.concat([a, b]), shuffle=True)
        client.push_dataset("both", datasetd.concat([a, b]))

    A DataLoader draws from the datasets where they are, and an epoch has each
    sample once. push_dataset makes a new dataset of copies, and the parts may
    be closed. It takes Subsets, too. The datasets have the same fields. Raises
    InvalidArgument if fields or class names differ.
    """
    return Mixture("concat", parts)


def _name_of(key: Any) -> Any:
    return key.name if isinstance(key, Samples) else key


def _dataset_of(key: Any, client: Any) -> Any:
    if not isinstance(key, str):
        return key
    if client is None:
        raise InvalidArgument(
            f"ratios: {key!r} is a name, which a Client looks up: give "
            "client=, or the Dataset as the key"
        )
    return client.get_dataset(key)


def _checked_ratio(key: Any, value: Any) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 < float(value) < math.inf:
        raise InvalidArgument(
            f"ratios[{_name_of(key)!r}]={value!r}; expected a finite number "
            "above 0: leave out a dataset that is not to be drawn"
        )
    return float(value)


# What one loader is of.
Whole = Union[Dataset, Mixture]


def kind_of(field: Field) -> str:
    """The field's kind, as push_dataset names it."""
    if field.is_mask:
        return "mask"
    if field.is_sequence:
        return "sequence"
    return "image" if field.is_image else "array"


def _check_fields(what: str, first: Samples, part: Samples, i: int) -> None:
    ours = {f.name: (f.dtype, f.shape, kind_of(f)) for f in first.fields}
    theirs = {f.name: (f.dtype, f.shape, kind_of(f)) for f in part.fields}
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            raise InvalidArgument(
                f"{what}: field {name!r} is {_described(ours.get(name))} in "
                f"{first.name!r} and {_described(theirs.get(name))} in part "
                f"{i}, {part.name!r}"
            )


def _described(field: Any) -> str:
    if field is None:
        return "not there"
    dtype, shape, kind = field
    return f"{kind} of {dtype} {tuple(shape)}"


def as_mixture(data: Any) -> Optional[Mixture]:
    """Returns torch's ConcatDataset of datasets of a daemon, and a Mixture, as
    a Mixture; None for other data."""
    if isinstance(data, Mixture):
        return data
    if has_items_of(data, "torch", "ConcatDataset") and all(
        isinstance(part, Samples) for part in data.datasets
    ):
        return concat(data.datasets)
    return None
