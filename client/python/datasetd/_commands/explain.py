"""The command `python -m datasetd explain`."""

from __future__ import annotations

import argparse
import json
from typing import Any, Mapping, Sequence

from .._client.client import Client
from .._order.windows import cut_of
from . import transforms_text
from .command_line import (
    MAX_UINT64,
    WINDOWS,
    Option,
    table,
    whole,
    windows_of,
)

DESCRIPTION = "Shows the random parameters drawn for samples, op by op."

_NUMBER = whole(0, MAX_UINT64)
OPTIONS: Sequence[Option] = (
    ("name", str, None, "name of the dataset"),
    (
        "--transforms",
        str,
        None,
        "as in preview: presets, a JSON list of Transform messages, or @FILE",
    ),
    ("--field", str, "image", "field that the transforms apply to"),
    ("--seed", _NUMBER, 0, "seed of the job"),
    ("--epoch", _NUMBER, 0, "epoch"),
    ("--first", _NUMBER, 0, "index of the first sample, or window"),
    ("--samples", whole(1, 1000), 1, "number of samples"),
    ("--windows", windows_of, "", WINDOWS),
)


def run(client: Client, arguments: argparse.Namespace, as_json: bool) -> str:
    """Returns what to print. Raises the daemon's errors, UsageError."""
    height = width = 1
    with client._described(arguments.name) as dataset:
        for field in dataset.fields:
            if field.name == arguments.field and field.is_image:
                height, width = transforms_text.size_of(field)
        ops = transforms_text.parse(arguments.transforms, height, width)
        cut = cut_of(
            arguments.windows, dataset.fields, dataset.num_samples
        )
        fields = dict(cut.fields)
        fields[arguments.field] = {
            **fields.get(arguments.field, {}), "transforms": ops
        }  # fmt: skip
        indices = cut.indices(arguments.first, arguments.samples)
        with transforms_text.errors_of_form():
            response = client._session.call(
                "ExplainTransforms",
                dataset=arguments.name,
                fields=fields,
                seed=str(arguments.seed),
                epoch=str(arguments.epoch),
                indices=[str(min(index, MAX_UINT64)) for index in indices],
                **cut.message(),
            )
    if as_json:
        return json.dumps(response, indent=1) + "\n"
    rows = [
        [
            str(sample["index"]),
            f"{op['field']}[{op['position']}]",
            op["name"],
            "yes" if op["is_applied"] else "no",
            _drawn(op),
        ]
        for sample in response["samples"]
        for op in sample["ops"]
    ]
    if not rows:
        return "no ops\n"
    return table([["SAMPLE", "PLACE", "OP", "APPLIED", "DRAWN"], *rows])


def _drawn(op: Mapping[str, Any]) -> str:
    """Returns "top 3, left 5", "order 2 0 1 3"."""
    parts = []
    for drawn in op["parameters"]:
        values = [f"{float(value):g}" for value in drawn["values"]]
        parts.append(" ".join([drawn["name"], *values]))
    return ", ".join(parts) or "-"
