"""Python's classes and docs/transforms.md say what transform.proto says."""

import inspect
import os
import re

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
    "mean": [0.5], "std": [0.5],
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


def signature(name):
    parameters = dict(inspect.signature(getattr(T, name)).parameters)
    del parameters["fields"]
    return parameters


def made(name):
    """The op with its defaults."""
    return getattr(T, name)(**{
        parameter: REQUIRED[parameter]
        for parameter, value in signature(name).items()
        if value.default is inspect.Parameter.empty
        or parameter == "num_classes"
    })


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
        given = {
            parameter for parameter, value in signature(op["name"]).items()
            if value.default is inspect.Parameter.empty
        }
        for parameter, default in op["defaults"].items():
            # Without a default in the proto, 0 or empty is unset.
            if parameter in given or parameter not in message[key]:
                continue
            value = message[key][parameter]
            if default in (0, "", []) and parameter != "p":
                continue
            num_compared += 1
            if value != default:
                wrong[key, parameter] = value, default
    assert not wrong
    assert num_compared > 30


if __name__ == "__main__":
    pytest_file.main(__file__)
