from __future__ import annotations

import inspect
import io
import warnings
from typing import Any, Mapping

from ..errors import DataLoss, FailedPrecondition, InvalidArgument
from ._base import Fields, Path, Source, choose, existing, library


class _Stream(io.FileIO):
    """A file without a descriptor: of a file with one, torch before 2.6
    extracts a tar archive, whose links lead anywhere."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


def _load(torch: Any, path: str) -> Any:
    """torch.load of data; DataLoss if the file holds anything else."""
    try:
        with warnings.catch_warnings(), io.BufferedReader(
            _Stream(path)
        ) as file:
            # After this warning torch before 2.6 runs the file's program.
            warnings.filterwarnings("error", message=".*TorchScript archive")
            return torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except UserWarning as error:
        raise DataLoss(
            f"{path} is a program of TorchScript, expected a file of torch.save"
        ) from error
    except Exception as error:
        # Of torch's text only the cause: it advises to load without
        # weights_only.
        cause = str(error).rpartition("WeightsUnpickler error: ")[2]
        raise DataLoss(f"{path}: {type(error).__name__}: {cause}") from error


def torch_file(path: Path, fields: Fields = None) -> Source:
    """Reads tensors [N, ...] of a torch.save file: a dict by name, a tuple or
    list, or a single tensor.

    The tensors of a tuple are named `image`, `label`, `field_2`, ..., or by a
    list `fields`, which must name all. Any other value is an error, unless
    `fields` omits it: for a dict by its name, for a tuple by a dict such as
    `{"x": "image"}`. The file is loaded with weights_only, so no code in it is
    run.
    """
    torch = library("torch", "torch", "torch_file")
    known = inspect.signature(torch.load).parameters
    if "weights_only" not in known:
        raise FailedPrecondition(
            f"torch {torch.__version__} cannot load a file without running "
            "code in it: install torch 1.13 or later"
        )
    content: Any = _load(torch, existing(path))
    if isinstance(content, torch.Tensor):
        content = (content,)
    if isinstance(content, (tuple, list)):
        names = [f"field_{i}" for i in range(len(content))]
        names[:2] = ["image", "label"][: len(names)]
        if fields is not None and not isinstance(fields, (str, Mapping)):
            names = list(fields)
        if len(names) != len(content):
            raise InvalidArgument(
                f"{path} contains {len(content)} values, but fields names "
                f"{len(names)}: name all of them, or some by a dict, such as "
                "{'x': 'image', 'y': 'label', 'z': 'field_2'}"
            )
        content = dict(zip(names, content))
    if not isinstance(content, Mapping):
        raise InvalidArgument(
            f"{path} contains a {type(content).__name__}, expected tensors in "
            "a dict or a tuple"
        )
    chosen = choose(fields, content, str(path))
    for name in chosen.values():
        value = content[name]
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor or value.dim() == 0:
            kind = "one number" if is_tensor else type(value).__name__
            raise InvalidArgument(
                f"{path}: {name!r} is {kind}, expected a tensor [N, ...]; "
                "leave it out with fields="
            )
    return Source({field: content[name] for field, name in chosen.items()})
