"""The ops as the daemon describes them: ops.json, which has what
tests/parity/describe_ops.h makes of transform.proto."""

from __future__ import annotations

import json
import math
import pathlib
import re
from typing import Any, Dict, NamedTuple, Tuple

_MAX = {"int32": 2**31 - 1, "uint32": 2**32 - 1}


class Parameter(NamedTuple):
    """One parameter of an op, and the range of its numbers."""

    kind: str  # "list", or the protocol's type
    low: float
    high: float
    above: float  # an exclusive minimum
    choices: Dict[Any, Any]  # as in messages; empty: all
    parts: Tuple[str, ...]  # of several numbers

    def in_message(self, value: Any) -> Any:
        """Returns a value in JSON form."""
        if self.choices:
            return self.choices[value]
        if self.parts and isinstance(value, tuple):
            return dict(zip(self.parts, value))
        return value


class Op(NamedTuple):
    """One op of transform.proto; `title` is the name of its class."""

    title: str
    name: str = ""
    family: str = ""
    parameters: Dict[str, Parameter] = {}


def _parameter(options: Dict[str, Any], parts: Tuple[str, ...]) -> Parameter:
    kind = options["type"]
    # "PADDING_MODE_" for PaddingMode.
    prefix = re.sub("(?<!^)(?=[A-Z])", "_", kind).upper() + "_"
    # An unsigned integer without a range is an extent.
    low = int("max" not in options) if kind == "uint32" else -math.inf
    return Parameter(
        "list" if options["is_repeated"] else kind,
        options.get("min", low),
        options.get("max", _MAX.get(kind, math.inf)),
        options.get("above", -math.inf),
        {
            choice[len(prefix) :].lower().replace("_", "-")
            if isinstance(choice, str)
            else choice: choice
            for choice in options.get("choices", ())
        },
        parts,
    )


def _read() -> Dict[str, Op]:
    file = pathlib.Path(__file__).with_name("ops.json")
    ops = {}
    for name, op in json.loads(file.read_text("utf-8")).items():
        parameters: Dict[str, Parameter] = {}
        for path, options in op["parameters"].items():
            whole, _, part = path.partition(".")
            before = parameters[whole].parts if whole in parameters else ()
            parameters[whole] = _parameter(
                options, (*before, part) if part else ()
            )
        ops[op["name"]] = Op(op["name"], name, op["family"], parameters)
    return ops


OPS = _read()
