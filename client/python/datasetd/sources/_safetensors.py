from __future__ import annotations

import importlib.util

from ._base import Fields, Path, Source, choose, existing, library


def safetensors(path: Path, fields: Fields = None) -> Source:
    """Reads tensors [N, ...] of a .safetensors file: with torch, which has
    bfloat16, if it is installed, else with NumPy."""
    package = library("safetensors", "safetensors", "safetensors")
    framework = "pt" if importlib.util.find_spec("torch") else "np"
    with package.safe_open(existing(path), framework=framework) as file:
        chosen = choose(fields, file.keys(), str(path))
        return Source(
            {field: file.get_tensor(name) for field, name in chosen.items()}
        )
