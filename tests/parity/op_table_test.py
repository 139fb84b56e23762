"""Python's classes and docs/transforms.md say what transform.proto says.

bazel run //tests/parity:op_table_test -- --write
    writes the package's table of ops anew, after a change of transform.proto
"""

import inspect
import json
import math
import os
import pathlib
import re
import sys

import datasetd
import numpy as np
import pytest
from datasetd import transforms as T
from product import Product

from tests.testing import pytest_file

# Arguments without which an op cannot be made, by the parameter's name.
REQUIRED = {
    "size": 4, "top": 0, "left": 0, "height": 4, "width": 4, "angle": 10,
    "degrees": 10, "translate": (1, 1), "scale": 1.5, "shear": (1, 1),
    "brightness_factor": 2, "contrast_factor": 2, "saturation_factor": 2,
    "hue_factor": 0.1, "sharpness_factor": 2, "bits": 3, "threshold": 9,
    "kernel_size": 3, "i": 0, "j": 0, "h": 2, "w": 2, "v": 0, "padding": 1,
    "transforms": [T.Invert()], "num_classes": 3, "dtype": "float32",
    "mean": [0.5], "std": [0.5], "gain": 0.5, "time_mask_param": 3,
    "freq_mask_param": 3, "noise": "street",
}


@pytest.fixture(scope="module", name="ops")
def fixture_ops():
    with Product() as product:
        return product.describe()


@pytest.fixture(scope="module", name="rows")
def fixture_rows():
    """{class: its parameters} of the page's table of ops."""
    with open(os.environ["TRANSFORMS_PAGE"], encoding="utf-8") as file:
        text = file.read()
    table = re.search(r"\| op \| parameters \|.*?\n\n", text, re.S)[0]
    rows = {}
    for line in table.strip().splitlines()[2:]:
        names, parameters = line.split("|")[1:3]
        for name in names.strip().split(", "):
            rows[name] = parameters.strip()
    return rows


def table_text(ops):
    lines = [f"{json.dumps(name)}: {json.dumps(op)}" for name, op in ops.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_package_has_the_daemons_table_of_ops(ops):
    table = pathlib.Path(T.__file__).with_name("ops.json").read_text("utf-8")
    assert table == table_text(ops), "see the head of this file"


def signature(name):
    parameters = dict(inspect.signature(getattr(T, name)).parameters)
    del parameters["fields"]
    return parameters


def made(name, **others):
    """The op with its defaults, but for `others`."""
    required = {
        parameter: REQUIRED[parameter]
        for parameter, value in signature(name).items()
        if value.default is inspect.Parameter.empty
        or parameter == "num_classes"
    }
    return getattr(T, name)(**{**required, **others})


def test_every_op_has_a_class_and_a_row(ops, rows):
    names = {op["name"] for op in ops.values()}
    assert names <= set(T.__all__)
    assert names == rows.keys()


def test_a_row_has_the_parameters_and_defaults_of_the_class(rows):
    wrong = {}
    for name, row in rows.items():
        texts = []
        for parameter, value in signature(name).items():
            default = value.default
            texts.append(
                parameter if default is inspect.Parameter.empty
                or parameter == "num_classes"
                else f"{parameter}={_text(default)}"
            )
        if ", ".join(texts) != row:
            wrong[name] = texts, row
    assert not wrong


def _text(default):
    if isinstance(default, (T.AutoAugmentPolicy, T.InterpolationMode)):
        default = default.value
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple):
        return "(" + ", ".join(map(_text, default)) + ")"
    if default in (3 / 4, 4 / 3):
        return {3 / 4: "3/4", 4 / 3: "4/3"}[default]
    return f"{default:g}" if isinstance(default, float) else repr(default)


def test_pythons_defaults_are_those_of_the_proto(ops):
    num_compared = 0
    wrong = {}
    for key, op in ops.items():
        message = made(op["name"]).to_message()
        assert message.keys() == {key}
        for argument, given in signature(op["name"]).items():
            parameter = getattr(T, op["name"])._names.get(argument, argument)
            if given.default is inspect.Parameter.empty or not (
                parameter in op["defaults"] and parameter in message[key]
            ):
                continue
            value = message[key][parameter]
            default = op["defaults"][parameter]
            num_compared += 1
            # No fill is 0.
            if value != default and (value, default) != ([0.0], []):
                wrong[key, parameter] = value, default
    assert not wrong
    assert num_compared > 50


# What other arguments a value needs, and what an op has in a form of its own.
WITH = {
    ("RandAugment", "magnitude"): {"num_magnitude_bins": 65536},
    ("RandAugment", "num_magnitude_bins"): {"magnitude": 0},
    ("Vol", "gain"): {"gain_type": "db"},
    ("Gain", "min_gain_in_db"): {"max_gain_in_db": 200},
    ("Gain", "max_gain_in_db"): {"min_gain_in_db": -200},
    ("Shift", "min_shift"): {"max_shift": 1073741823},
    ("Shift", "max_shift"): {"min_shift": -1073741823},
}
# None stands for a default of the daemon.
OPTIONAL = {
    ("MelSpectrogram", "win_length"), ("MelSpectrogram", "hop_length"),
    ("MelSpectrogram", "f_max"), ("MelSpectrogram", "norm"),
    ("AmplitudeToDB", "top_db"), ("AddNoise", "field"),
}
ODD = {
    ("RandomRotation", "expand"), ("Resize", "max_size"), ("ToDtype", "dtype"),
    ("AddNoise", "noise"),
}


def plain_parameters(ops):
    """(op in transform.proto, class, argument, parameter, what it may be), of
    what is one value."""
    for key, op in ops.items():
        cls = getattr(T, op["name"])
        for argument in signature(op["name"]):
            parameter = cls._names.get(argument, argument)
            described = op["parameters"].get(parameter, {"is_repeated": True})
            if not described["is_repeated"] and (
                (op["name"], argument) not in ODD
            ):
                yield key, op["name"], argument, parameter, described


def allowed_and_refused(described):
    """({value: as in a message}, values, what their error says) at both sides
    of the ends of a parameter's range."""
    kind = described["type"]
    if kind == "bool":
        return {True: True, False: False}, (1, "x"), "True or False"
    if kind == "string":
        return {"x": "x"}, ("", 3, None), "name of a field"
    if "choices" in described:
        names = {
            re.sub(".*_(MODE|NORM|POLICY|SCALE|TYPE|UNIT)_", "", str(choice))
            .lower(): choice
            for choice in described["choices"]
        }
        if kind == "uint32":
            return {int(n): c for n, c in names.items()}, (2, True), "1 or 3"
        names = {name.replace("_", "-"): c for name, c in names.items()}
        text = re.escape(f"one of {tuple(names)}")
        return names, ("other", 2.5, None), text
    never = ("x", True, None, math.nan, math.inf)
    if "above" in described:
        assert described["above"] == 0
        return {1e-9: 1e-9}, (*never, 0, -1.0), "above 0"
    if kind == "double":
        low, high = described.get("min"), described.get("max")
        if low is None:
            return {1.5: 1.5}, never, "a number"
        beyond = np.nextafter(low, -math.inf), np.nextafter(high, math.inf)
        refused = (*never, *map(float, beyond))
    else:
        # Without a range it is an extent.
        low = int(described.get("min", "max" not in described))
        high = int(described.get("max", 2**32 - 1))
        refused = (*never, 1.5, low - 1, high + 1)
    low_text, high_text = (re.escape(f"{end:.10g}") for end in (low, high))
    return {low: low, high: high}, refused, f" {low_text} .*to {high_text}$"


def test_arguments_have_the_ranges_and_names_of_the_proto(ops):
    wrong = []
    num_tried = 0
    for key, name, argument, parameter, described in plain_parameters(ops):
        others = WITH.get((name, argument), {})
        allowed, refused, text = allowed_and_refused(described)
        for value, expected in allowed.items():
            num_tried += 1
            op = made(name, **{**others, argument: value})
            if op.to_message()[key][parameter] != expected:
                wrong.append((op, value))
        for value in refused:
            if value is None and (name, argument) in OPTIONAL:
                continue
            num_tried += 1
            try:
                wrong.append(made(name, **{**others, argument: value}))
            except datasetd.InvalidArgument as error:
                said = re.escape(f"{name}: {argument}={value!r}; expected ")
                if not re.match(said + ".*" + text, str(error)):
                    wrong.append(str(error))
    assert not wrong
    assert num_tried > 500


def write():
    source = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    table = source / "client/python/datasetd/transforms/ops.json"
    with Product() as product:
        table.write_text(table_text(product.describe()), "utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        pytest_file.main(__file__)
