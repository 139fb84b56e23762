"""What the parity table must have of every op of transform.proto.

Cells: an op with every dtype, number of channels and size. Values: of each of
its parameters both ends and something between, and every choice.
"""

import re

import numpy as np

_FIELD = re.compile(
    r"^\s*(repeated |optional )?([A-Za-z0-9]+) ([a-z0-9_]+) = \d+\s*[;[]", re.M
)


class Proto:
    """The ops of transform.proto: {name: {path of a parameter: type}}."""

    def __init__(self, text):
        text = re.sub(r"//.*", "", text)
        self._messages = dict(re.findall(r"message (\w+) \{\n(.*?)\n\}", text,
                                         re.S))
        # Messages without fields stand on one line.
        self._messages.update(
            (name, "") for name in re.findall(r"message (\w+) \{\}", text)
        )
        self.ops = {
            name: self._parameters(kind)
            for _, kind, name in _FIELD.findall(self._oneof())
        }

    def _oneof(self):
        return re.search(r"oneof op \{(.*?)\n  \}", self._messages["Transform"],
                         re.S)[1]

    def _parameters(self, kind):
        parameters = {}
        for label, field, name in _FIELD.findall(self._messages[kind]):
            if field in self._messages and not label.startswith("repeated"):
                parameters.update(
                    (f"{name}.{inner}", inner_kind)
                    for inner, inner_kind in self._parameters(field).items()
                )
            else:
                parameters[name] = field
        return parameters


class _Need:
    """What the values of a parameter must be; None stands for unset."""

    def __init__(self, text, is_met):
        self.text = text
        self._is_met = is_met

    def is_met(self, values):
        return self._is_met(values)


def _ends(low, high):
    """Both ends, and something between."""

    def is_met(values):
        numbers = {value for value in values if value is not None}
        return {low, high} <= numbers and any(
            low < value < high for value in numbers
        )

    return _Need(f"{low}, {high} and between", is_met)


def _from(low):
    """The end there is, and two more."""

    def is_met(values):
        numbers = {low if value is None else value for value in values}
        return low in numbers and sum(value > low for value in numbers) >= 2

    return _Need(f"{low}, and two above", is_met)


def _all(*wanted):
    return _Need(f"each of {wanted}",
                 lambda values: set(wanted) <= values)


_SIGNS = _Need(
    "negative, 0 and positive",
    lambda values: {np.sign(value or 0) for value in values} == {-1, 0, 1},
)
_BOTH_SIGNS = _Need(
    "negative and positive",
    lambda values: {np.sign(value or 0) for value in values} >= {-1, 1},
)
_SOME = _Need("two values", lambda values: len(values) >= 2)
_FLAG = _Need("True and False",
              lambda values: {bool(value) for value in values} == {True, False})
_OFF = _Need("False; True is refused",
             lambda values: {bool(value) for value in values} == {False})
_GIVEN = _Need("given and not",
               lambda values: None in values and len(values) > 1)
_ANY = _Need("given", lambda values: values - {None})

_SIZE = {"size.height": _from(1), "size.width": _from(1)}
_EXTENT = {"height": _from(1), "width": _from(1)}
_PLACE = {"top": _from(0), "left": _from(0)}
_PADDING = {f"padding.{side}": _from(0)
            for side in ("left", "top", "right", "bottom")}
_CENTER = {"center.x": _GIVEN, "center.y": _GIVEN}
_P = {"p": _ends(0, 1)}
_FILL = {"fill": _GIVEN}
_PADDING_MODES = {
    "padding_mode": _all(*(
        "PADDING_MODE_" + mode
        for mode in ("CONSTANT", "EDGE", "REFLECT", "SYMMETRIC")
    ))
}


def _modes(*names):
    return {"interpolation": _all(*("INTERPOLATION_MODE_" + n for n in names))}


_RESIZES = {
    **_modes("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC"),
    "antialias": _FLAG,
}
_TURNS = {**_modes("NEAREST", "BILINEAR"), **_CENTER, **_FILL}
_ANGLES = {"degrees.min": _BOTH_SIGNS, "degrees.max": _BOTH_SIGNS}
_MIX = {
    "alpha": _from(0.1),
    "num_classes": _all(2, 10),
    "per_sample": _FLAG,
    # The name of the field; tests/client/python has others.
    "labels": _Need("nothing", lambda values: True),
}

NEEDS = {
    "pad": {**_PADDING, **_FILL, **_PADDING_MODES},
    "crop": {"top": _SIGNS, "left": _SIGNS, **_EXTENT},
    "center_crop": _EXTENT,
    "random_crop": {**_EXTENT, **_PADDING, "pad_if_needed": _FLAG, **_FILL,
                    **_PADDING_MODES},
    "horizontal_flip": {},
    "vertical_flip": {},
    "random_horizontal_flip": _P,
    "random_vertical_flip": _P,
    "alternating_flip": {},
    "resize": {**_SIZE, "shorter_edge": _from(1), "max_size": _GIVEN,
               **_RESIZES},
    "resized_crop": {**_PLACE, **_EXTENT, **_SIZE, **_RESIZES},
    "random_resized_crop": {
        "size.height": _all(1, 40),
        "size.width": _all(1, 28),
        "scale.min": _ends(0, 1),
        "scale.max": _ends(0, 1),
        "ratio.min": _from(0.1),
        "ratio.max": _from(1),
        **_RESIZES,
    },
    "rotate": {"angle": _SIGNS, "expand": _FLAG, **_TURNS},
    "random_rotation": {**_ANGLES, "expand": _OFF, **_TURNS},
    "affine": {
        "angle": _SIGNS,
        "translate.x": _SIGNS,
        "translate.y": _SIGNS,
        "scale": _Need("below 1, 1 and above", lambda values: (
            min(values) < 1 < max(values) and 1 in values)),
        "shear.x": _SIGNS,
        "shear.y": _Need("0 and not", lambda values: (
            0 in values and len(values) > 1)),
        **_TURNS,
    },
    "random_affine": {
        **_ANGLES,
        "translate.x": _ends(0, 1),
        "translate.y": _ends(0, 1),
        "scale.min": _GIVEN,
        "scale.max": _GIVEN,
        "shear_x.min": _BOTH_SIGNS,
        "shear_x.max": _BOTH_SIGNS,
        "shear_y.min": _BOTH_SIGNS,
        "shear_y.max": _GIVEN,
        **_TURNS,
    },
    "color_jitter": {
        **{
            f"{part}.{end}": _from(0) if end == "min" else _SOME
            for part in ("brightness", "contrast", "saturation")
            for end in ("min", "max")
        },
        "hue.min": _all(-0.5, -0.1),
        "hue.max": _all(0.5, 0.1),
    },
    "adjust_brightness": {"brightness_factor": _from(0)},
    "adjust_contrast": {"contrast_factor": _from(0)},
    "adjust_saturation": {"saturation_factor": _from(0)},
    "adjust_hue": {"hue_factor": _ends(-0.5, 0.5)},
    "grayscale": {"num_output_channels": _all(1, 3)},
    "random_grayscale": _P,
    "invert": {},
    "random_invert": _P,
    "posterize": {"bits": _all(*range(9))},
    "random_posterize": {"bits": _ends(0, 8), **_P},
    "solarize": {"threshold": _ends(0, 255)},
    "random_solarize": {"threshold": _ends(0, 255), **_P},
    "adjust_sharpness": {"sharpness_factor": _from(0)},
    "random_adjust_sharpness": {"sharpness_factor": _from(0), **_P},
    "autocontrast": {},
    "random_autocontrast": _P,
    "equalize": {},
    "random_equalize": _P,
    "gaussian_blur": {
        "kernel_size.height": _from(1),
        "kernel_size.width": _from(1),
        "sigma.min": _from(0.1),
        "sigma.max": _SOME,
    },
    "erase": {**_PLACE, **_EXTENT, "value": _ANY},
    "random_erasing": {
        **_P,
        "scale.min": _ends(0, 1),
        "scale.max": _ends(0, 1),
        "ratio.min": _from(0.1),
        "ratio.max": _from(1),
        "value": _GIVEN,
        "is_value_random": _FLAG,
    },
    "cutout": {"size": _from(1), **_FILL},
    "random_apply": {**_P, "transforms": _ANY},
    "mix_up": _MIX,
    "cut_mix": _MIX,
    "to_dtype": {
        "dtype": _all(*(
            "DTYPE_" + name
            for name in ("UINT8", "FLOAT16", "BFLOAT16", "FLOAT32")
        )),
        "scale": _FLAG,
    },
    "normalize": {"mean": _SIGNS, "std": _from(0.01)},
}


def tested_op(transforms):
    """The one op that a case is of; None of a chain's.

    A ToDtype before it is for ops that need floating point.
    """
    names = [name for transform in transforms for name in transform]
    if any(name != "to_dtype" for name in names[:-1]):
        return None
    return names[-1]


def _leaves(value, path=""):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, (list, tuple)) and path == "transforms":
        yield path, len(value)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield path, inner
    else:
        yield path, value


def parameter_values(op, cases, parameters):
    """{path: values} of the op in all cases; None where it is not given."""
    values = {path: set() for path in parameters}
    for case in cases:
        given = {}
        for path, value in _leaves(case.transforms[-1][op]):
            given.setdefault(path, set()).add(value)
        for path in given:
            if path not in values:
                raise KeyError(f"{op} has no parameter {path}")
        for path, found in values.items():
            found |= given.get(path, {None})
    return values
