from __future__ import annotations

import inspect
from typing import Any, Mapping

from ..errors import FailedPrecondition, InvalidArgument
from ._base import Fields, Path, Source, choose, existing, library


def torch_file(path: Path, fields: Fields = None) -> Source:
    """Tensors [N, ...] of a torch.save file: a dict by name, a tuple or list,
    or a single tensor.

    Tensors of a tuple are named `image`, `label`, `field_2`, ..., or by
    `fields`. Loaded with weights_only, so no code in the file is run.
    """
    torch = library("torch", "torch", "torch_file")
    known = inspect.signature(torch.load).parameters
    if "weights_only" not in known:
        raise FailedPrecondition(
            f"torch {torch.__version__} cannot load a file without running "
            "code in it: install torch 1.13 or later"
        )
    content: Any = torch.load(
        existing(path), map_location="cpu", weights_only=True
    )
    if isinstance(content, torch.Tensor):
        content = (content,)
    if isinstance(content, (tuple, list)):
        names = ["image", "label"] + [f"field_{i}" for i in range(2, 64)]
        if fields is not None and not isinstance(fields, (str, Mapping)):
            names = list(fields)
        content = dict(zip(names, content))
    if not isinstance(content, Mapping):
        raise InvalidArgument(
            f"{path} holds a {type(content).__name__}, expected tensors in a "
            "dict or a tuple"
        )
    tensors = {
        name: value
        for name, value in content.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    }
    chosen = choose(fields, tensors, str(path))
    return Source({field: tensors[name] for field, name in chosen.items()})
