"""Formats that this process reads with datasetd.sources, and then pushes."""

from __future__ import annotations

import hashlib
import inspect
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import sources
from .._arguments import absolute
from .._connection.session import Session
from .._datasets import parts
from .._datasets.dataset import Dataset, message_of
from .._push import encoded
from ..errors import (
    DataLoss,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from ..sources._base import class_list
from ..sources._cifar_python import cifar10_python, cifar100_python
from ..sources._folders import walk
from ..sources._shards import files_of
from .folders import advice, path_advice

# All that datasetd.sources can read, by format.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    name: getattr(sources, name)
    for name in sources.__all__
    if name != "decode_image"
}
FUNCTIONS.update(cifar10_python=cifar10_python, cifar100_python=cifar100_python)
# The daemon reads it, too, and faster.
_OF_THE_DAEMON = ("image_folder",)


def is_read_here(format: str) -> bool:
    """True if load_dataset reads the format in this process."""
    return format in FUNCTIONS and format not in _OF_THE_DAEMON


def arguments_of(
    format: str, split: Optional[str], options: Mapping[str, Any]
) -> Dict[str, Any]:
    """Returns the keyword arguments of the format's function.

    `fields` may be a string, as "image:x_train,label:y_train". Raises
    InvalidArgument for a split or an option that the function does not have,
    and for one that it needs.
    """
    arguments = dict(options)
    if split is not None:
        arguments["split"] = split
    if isinstance(arguments.get("fields"), str):
        arguments["fields"] = _fields(arguments["fields"])
    # The first one is the path.
    _, *parameters = inspect.signature(FUNCTIONS[format]).parameters.values()
    names = [parameter.name for parameter in parameters]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for p in parameters:
        is_needed = p.default is p.empty and p.kind is not p.VAR_KEYWORD
        if is_needed and p.name not in arguments:
            raise InvalidArgument(
                f"format {format!r} needs the option {p.name!r}"
            )
    if takes_any:
        return arguments
    for name in arguments:
        if name not in names:
            raise InvalidArgument(
                f"format {format!r} has no option {name!r}; it has "
                f"{', '.join(names) or 'none'}"
            )
    return arguments


def _fields(text: str) -> Dict[str, str]:
    fields: Dict[str, str] = {}
    for item in text.split(","):
        field, _, source = (part.strip() for part in item.partition(":"))
        if not field or field in fields:
            raise InvalidArgument(
                f"option fields is {text!r}, expected FIELD or FIELD:SOURCE "
                "with commas between, each field once"
            )
        fields[field] = source or field
    return fields


def class_names(
    session: Session, given: Any, option: str
) -> Optional[List[str]]:
    """Returns the class names that an option gives: a list, what has `classes`,
    or the name of a resident dataset."""
    if isinstance(given, (list, tuple)) and not given:
        return []
    if not isinstance(given, str):
        return class_list(given, option)
    found = session.call("GetDataset", name=given)["dataset"]["class_names"]
    if not found:
        raise InvalidArgument(
            f"{option}={given!r}: that dataset has no class names"
        )
    return list(found)


def _class_arguments(
    session: Session, format: str, arguments: Dict[str, Any]
) -> Dict[str, Any]:
    """Takes the options about classes that the format's function does not have
    out of its arguments, and returns them as those of push_dataset."""
    if "classes" in arguments:
        arguments["classes"] = class_names(
            session, arguments["classes"], "classes"
        )
    if "classes" in inspect.signature(FUNCTIONS[format]).parameters:
        return {}
    push_arguments = {}
    for option, argument in (
        ("classes", "class_names"),
        ("ignore_other_classes", "ignore_other_classes"),
    ):
        if option in arguments:
            push_arguments[argument] = arguments.pop(option)
    return push_arguments


def image_options(
    options: Mapping[str, Any],
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Returns the options of encoded images, which push_dataset takes, and the
    others, which are the function's."""
    images = {k: v for k, v in options.items() if k in encoded.OPTIONS}
    others = {k: v for k, v in options.items() if k not in images}
    return images, others


def own_shards(
    format: str,
    name: str,
    path: str,
    division: Mapping[str, Any],
) -> Tuple[str, str, Mapping[str, Any]]:
    """Returns the name and the path of this node's part if the path is a
    pattern of shards, and the arguments that divide the rows if it is not:
    `division`, part, part_epoch and part_seed."""
    divided = parts.resolve(**division)
    if divided is not None and parts.has_shards(format, path):
        return divided.name(name), divided.shards(path), {}
    return name, path, division


def read(format: str, path: Any, arguments: Mapping[str, Any]) -> Any:
    """Returns what the format's function reads. Raises DataLoss for errors of
    the library that it uses, InvalidArgument for a wrong type of an option."""
    try:
        return FUNCTIONS[format](path, **arguments)
    except (NotFound, FileNotFoundError) as error:
        found = advice(format, os.path.expanduser(path))
        if found:
            raise NotFound(f"{error}. {found}") from None
        for file in files_of(os.path.expanduser(path)):
            found = path_advice(file)
            if found:
                raise NotFound(found) from None
        raise
    except (Error, OSError, ImportError, MemoryError):
        raise
    except TypeError as error:
        raise InvalidArgument(f"{path}: {error}") from error
    except Exception as error:
        raise DataLoss(f"{path}: {type(error).__name__}: {error}") from error


def file_state(path: str) -> List[Any]:
    """Returns the names, sizes and times of a file, of the files of a
    pattern or of those below a directory, also by links."""
    state = []
    paths = files_of(path)
    if os.path.isdir(path):
        # Unreadable folders are left out; the format's function refuses them.
        for folder, files in walk(path, lambda error: None):
            paths += [os.path.join(folder, name) for name in files]
    for name in filter(os.path.isfile, paths):
        info = os.stat(name)
        state.append((name, info.st_size, info.st_mtime_ns))
    return state


def load(
    session: Session,
    push_dataset: Callable[..., Dataset],
    get_dataset: Callable[[str], Dataset],
    name: str,
    format: str,
    path: Any,
    split: Optional[str],
    options: Optional[Mapping[str, Any]],
    progress: Any,
    division: Optional[Mapping[str, Any]] = None,
    is_named_by_files: bool = False,
    **push_arguments: Any,
) -> Dataset:
    """Reads and pushes a dataset, or attaches to the one of this name.

    The first three are a Client's; `division` is that of own_shards. With
    `is_named_by_files` a dataset that this user pushed under the name has these
    samples. Else the samples are compared.
    """
    if path is None:
        raise InvalidArgument(f"format {format!r} needs a path")
    path = absolute(path)  # the directory may be another one later
    images, others = image_options(options or {})
    by_name = isinstance(others.get("classes"), str)
    push_arguments.update(_class_arguments(session, format, others))
    if is_named_by_files and by_name:
        # The classes of that dataset are in no name that the caller made.
        classes = others.get("classes") or push_arguments.get("class_names")
        digest = hashlib.sha256(repr(classes).encode()).hexdigest()[:6]
        name = f"{name}-{digest}"
    arguments = arguments_of(format, split, others)
    name, path, rows = own_shards(format, name, path, division or {})

    def push(if_exists: str, report: Any) -> Dataset:
        return push_dataset(
            name,
            read(format, path, arguments),
            progress=report,
            if_exists=if_exists,
            options=images,
            **rows,
            **push_arguments,
        )

    def load_again(report: Any) -> Dict[str, Any]:
        return message_of(push("keep", report))

    dataset: Optional[Dataset] = None
    if is_named_by_files:
        divided = parts.resolve(**rows)
        own = name if divided is None else divided.name(name)
        dataset = _attach(get_dataset, own) or push("keep", progress)
        if not _is_own(dataset):
            dataset.close()
            dataset = None
    if dataset is None:
        dataset = push("same", progress)
    dataset._load_again = load_again
    return dataset


def _attach(
    get_dataset: Callable[[str], Dataset], name: str
) -> Optional[Dataset]:
    """Returns the dataset of this name if there is one."""
    try:
        return get_dataset(name)
    except (NotFound, FailedPrecondition):  # none, or one that failed
        return None


def _is_own(dataset: Dataset) -> bool:
    return int(message_of(dataset)["owner_uid"]) == os.getuid()
