"""Requirements of the parity table for every op of transform.proto.

Cells: an op with every dtype, number of channels and size. Values: of each of
its parameters both ends and something between, and every choice, as the options
of transform.proto have them (Product.describe).
"""

import numpy as np


class _Need:
    """A requirement on the values of a parameter; None stands for unset."""

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

# Wider ranges are those of any image.
_MANY = 1000


def _need(parameter):
    """Returns the requirement that follows from the options of a parameter."""
    kind = parameter["type"]
    if kind == "Transform":
        return _ANY
    if kind == "string":
        return _Need("nothing", lambda values: True)
    if kind == "bool":
        return _FLAG
    if "choices" in parameter:
        return _all(*parameter["choices"])
    if parameter["is_repeated"]:
        return _GIVEN
    if kind == "uint32" and "max" not in parameter:
        return _from(1)
    low, high = parameter.get("min", 0), parameter.get("max", _MANY)
    if high < _MANY:
        return _ends(low, high)
    return _SIGNS if low < 0 else _from(low)


_BELOW_AND_ABOVE = _Need(
    "below 1, 1 and above",
    lambda values: min(values) < 1 < max(values) and 1 in values,
)
_ZERO_AND_NOT = _Need(
    "0 and not", lambda values: 0 in values and len(values) > 1
)

# Where the options do not say it: {op, or None for all: {path: need}}.
_OWN = {
    None: {"center.x": _GIVEN, "center.y": _GIVEN},
    "resize": {"max_size": _GIVEN},
    "resized_crop": {"top": _from(0), "left": _from(0)},
    "random_resized_crop": {
        "size.height": _all(1, 40),
        "size.width": _all(1, 28),
        "scale.min": _ends(0, 1),
        "scale.max": _ends(0, 1),
        "ratio.min": _from(0.1),
        "ratio.max": _from(1),
    },
    "random_rotation": {
        "degrees.min": _BOTH_SIGNS,
        "degrees.max": _BOTH_SIGNS,
        "expand": _OFF,
    },
    "affine": {"scale": _BELOW_AND_ABOVE, "shear.y": _ZERO_AND_NOT},
    "random_affine": {
        "degrees.min": _BOTH_SIGNS,
        "degrees.max": _BOTH_SIGNS,
        "scale.min": _GIVEN,
        "scale.max": _GIVEN,
        "shear_x.min": _BOTH_SIGNS,
        "shear_x.max": _BOTH_SIGNS,
        "shear_y.min": _BOTH_SIGNS,
        "shear_y.max": _GIVEN,
    },
    "color_jitter": {
        "brightness.max": _SOME,
        "contrast.max": _SOME,
        "saturation.max": _SOME,
        "hue.min": _all(-0.5, -0.1),
        "hue.max": _all(0.5, 0.1),
    },
    "posterize": {"bits": _all(*range(9))},
    "solarize": {"threshold": _ends(0, 255)},
    "random_solarize": {"threshold": _ends(0, 255)},
    "rand_augment": {
        "num_ops": _all(0, 1, 2),
        "magnitude": _all(0, 9, 30),
        "num_magnitude_bins": _all(2, 31),
    },
    "trivial_augment_wide": {"num_magnitude_bins": _all(2, 31)},
    "gaussian_noise": {"sigma": _from(0), "mean": _SIGNS},
    "gaussian_blur": {"sigma.min": _from(0.1), "sigma.max": _SOME},
    "erase": {"height": _from(1), "width": _from(1), "value": _ANY},
    "random_erasing": {"ratio.min": _from(0.1), "ratio.max": _from(1)},
    "mix_up": {"alpha": _from(0.1), "num_classes": _all(2, 10)},
    "cut_mix": {"alpha": _from(0.1), "num_classes": _all(2, 10)},
    "to_dtype": {
        "dtype": _all(*(
            "DTYPE_" + name
            for name in ("UINT8", "FLOAT16", "BFLOAT16", "FLOAT32")
        )),
    },
    "normalize": {"mean": _SIGNS, "std": _from(0.01)},
    "add_noise": {"snr.min": _ends(-200, 10), "snr.max": _ends(-200, 200)},
    "vol": {"gain": _SIGNS},
    "gain": {"min_gain_in_db": _ends(-200, 6), "max_gain_in_db": _ends(0, 200)},
    "shift": {"min_shift": _SIGNS, "max_shift": _SIGNS},
    "mel_spectrogram": {
        "sample_rate": _ends(2, 1000000),
        "n_fft": _all(2, 3, 400, 401, 512),
        "win_length": _from(1),
        "f_min": _from(0),
        "f_max": _GIVEN,
        "n_mels": _from(1),
        "power": _all(0.5, 1, 2, 3),
    },
    "amplitude_to_db": {"top_db": _from(0)},
    "time_masking": {"mask_value": _GIVEN},
    "frequency_masking": {"mask_value": _GIVEN},
}


def needs(op, parameters):
    """{path: what its values must be} of an op."""
    own = {**_OWN[None], **_OWN.get(op, {})}
    return {
        path: own.get(path) or _need(parameter)
        for path, parameter in parameters.items()
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
