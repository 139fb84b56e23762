"""Rows of ops and chains as drawn: explain's parameters go to torchvision."""

import explained
import geometry_rows
from row import Case, Row

NEAREST, BILINEAR, BICUBIC = explained.MODES

# The bound is of the draws: explained.allow.
CHAIN_BOUND = (None, None)


def _range(low, high):
    return {"min": low, "max": high}


def _row(op, parameters, transforms, least=1, most=(0, 0), remark="", **others):
    """A row of `transforms`, of shapes of at least `least` pixels each way."""

    def cases(shape):
        if min(shape.height, shape.width) < least:
            return
        ops = transforms(shape) if callable(transforms) else transforms
        allow = explained.allow(shape) if most == CHAIN_BOUND else None
        yield Case(ops, explained.expect(ops), allow)

    return Row(op, parameters + "; as drawn", cases, *most, is_drawn=True,
               remark=remark, **others)


def _edge_row(op, parameters, transforms):
    """Nearest, off the grid: see NEAREST_REMARK."""

    def is_edge(shape, drawn):
        affine = drawn[0]["parameters"]
        return geometry_rows.edges(
            shape,
            affine["angle"][0],
            affine["translate"],
            affine["scale"][0],
            affine["shear"],
            None,
        )

    def cases(shape):
        yield Case(transforms, explained.expect(transforms), is_edge=is_edge)

    return Row(op, parameters + "; as drawn", cases, 0, 0, is_drawn=True,
               bound_text="1 in 1,000",
               remark=geometry_rows.NEAREST_REMARK)


def _mask_row(op, parameters, transform, is_exact):
    """Of a mask: whatever its op's interpolation is, it is sampled nearest."""
    (name, values), = transform.items()
    nearest = [{name: {**values, "interpolation": NEAREST,
                       "antialias": False}}]

    def is_edge(shape, drawn):
        return geometry_rows.edges(
            shape, drawn[0]["parameters"]["angle"][0], (0, 0), 1.0, (0, 0),
            None,
        )

    def cases(shape):
        yield Case([transform], explained.expect(nearest), is_mask=True,
                   is_edge=None if is_exact else is_edge)

    return Row(op, parameters + " of a mask; as drawn", cases, 0, 0,
               is_drawn=True, dtypes=("uint8",), channels=(1,),
               bound_text="" if is_exact else "1 in 1,000",
               remark="sampled nearest, as torchvision samples masks" if
               is_exact else geometry_rows.NEAREST_REMARK)


JITTER = {
    "brightness": _range(0.6, 1.4),
    "contrast": _range(0.6, 1.4),
    "saturation": _range(0.6, 1.4),
    "hue": _range(-0.1, 0.1),
}
SMALL_JITTER = {
    "brightness": _range(0.95, 1.05),
    "contrast": _range(0.95, 1.05),
    "saturation": _range(0.95, 1.05),
    "hue": _range(-0.05, 0.05),
}


def _jitter(*parts):
    ranges = ", ".join(
        f"{part} {JITTER[part]['min']:g} to {JITTER[part]['max']:g}"
        for part in parts
    )
    return _row(
        "ColorJitter",
        ranges,
        [{"color_jitter": {part: JITTER[part] for part in parts}}],
        most=CHAIN_BOUND,
    )


RESIZE_224 = {
    "size": {"height": 224, "width": 224},
    "interpolation": BILINEAR,
    "antialias": True,
}
RESIZED_CROP = {
    "size": {"height": 40, "width": 28},
    "scale": _range(0.08, 1.0),
    "ratio": _range(3 / 4, 4 / 3),
    "interpolation": BILINEAR,
    "antialias": True,
}
AFFINE = {
    "degrees": _range(-30, 30),
    "translate": {"x": 0.1, "y": 0.2},
    "scale": _range(0.7, 1.3),
    "shear_x": _range(-10, 10),
    "shear_y": _range(-5, 5),
}


def _normalize(shape):
    return [
        {"to_dtype": {"dtype": "DTYPE_FLOAT32", "scale": True}},
        {
            "normalize": {
                "mean": [0.485, 0.456, 0.406][: shape.channels],
                "std": [0.229, 0.224, 0.225][: shape.channels],
            }
        },
    ]


def _w2(shape):
    return [{"resize": RESIZE_224}] + _normalize(shape)


def _imagenet(shape):
    return [
        {"random_resized_crop": RESIZED_CROP},
        {"random_horizontal_flip": {}},
    ] + _normalize(shape)


W4 = [
    {
        "resize": {
            "size": {"height": 160, "width": 160},
            "interpolation": BILINEAR,
            "antialias": True,
        }
    },
    {"random_horizontal_flip": {}},
    {"random_vertical_flip": {}},
    {"random_rotation": {"degrees": _range(-10, 10),
                         "interpolation": BILINEAR}},
    {"color_jitter": SMALL_JITTER},
]


def _contrastive(shape):
    return [
        {"random_resized_crop": RESIZED_CROP},
        {"random_horizontal_flip": {}},
        {
            "random_apply": {
                "transforms": [{"color_jitter": JITTER}],
                "p": 0.8,
            }
        },
        {"random_grayscale": {"p": 0.2}},
        {
            "gaussian_blur": {
                "kernel_size": {"width": 5, "height": 5},
                "sigma": _range(0.1, 2.0),
            }
        },
    ] + _normalize(shape)


def _erasing(shape):
    value = [63, 127, 255] if shape.dtype == "uint8" else [0.25, 0.5, 1]
    return [
        {
            "random_erasing": {
                "p": 0.9,
                "scale": _range(0.02, 0.33),
                "ratio": _range(0.3, 3.3),
                "value": value[: shape.channels],
            }
        }
    ]


def _crop(mode):
    return lambda shape: [
        {
            "random_crop": {
                "height": shape.height,
                "width": shape.width,
                "padding": {"left": 4, "top": 4, "right": 4, "bottom": 4},
                "padding_mode": "PADDING_MODE_" + mode.upper(),
            }
        }
    ]


def _gated(op, parameters, name, **others):
    listed = "".join(f"{key} {value:g}, " for key, value in parameters.items())
    return _row(op, listed + "p 0.5", [{name: {**parameters, "p": 0.5}}],
                **others)


ROWS = [
    _row("RandomHorizontalFlip", "p 0.5", [{"random_horizontal_flip": {}}]),
    _row("RandomVerticalFlip", "p 0.3",
          [{"random_vertical_flip": {"p": 0.3}}]),
    _row("RandomCrop", "padding 4, constant", _crop("constant")),
    _row("RandomCrop", "padding 4, reflect", _crop("reflect"), least=5),
    _row("RandomResizedCrop", "bilinear, antialias; to 40x28",
          [{"random_resized_crop": RESIZED_CROP}],
          most=(1, geometry_rows.RESIZED)),
    _row("RandomRotation", "bilinear; degrees -10 to 10",
          [{"random_rotation": {"degrees": _range(-10, 10),
                                "interpolation": BILINEAR}}],
          most=(1, geometry_rows.ROTATED)),
    _edge_row("RandomRotation", "nearest; degrees -10 to 10",
              [{"random_rotation": {"degrees": _range(-10, 10),
                                    "interpolation": NEAREST}}]),
    _row("RandomAffine",
          "bilinear; degrees 30, translate 0.1 and 0.2, scale 0.7 to 1.3, "
          "shear 10 and 5",
          [{"random_affine": {**AFFINE, "interpolation": BILINEAR}}],
          most=(1, geometry_rows.ROTATED)),
    _edge_row("RandomAffine", "nearest; the same",
              [{"random_affine": {**AFFINE, "interpolation": NEAREST}}]),
    _mask_row("RandomResizedCrop", "bilinear,",
              {"random_resized_crop": RESIZED_CROP}, True),
    _mask_row("RandomRotation", "bilinear, degrees -10 to 10,",
              {"random_rotation": {"degrees": _range(-10, 10),
                                   "interpolation": BILINEAR}}, False),
    _jitter("brightness"),
    _jitter("contrast", "hue"),
    _jitter("brightness", "contrast", "saturation", "hue"),
    _gated("RandomGrayscale", {}, "random_grayscale", most=(0, 1e-5)),
    _gated("RandomInvert", {}, "random_invert"),
    _gated("RandomPosterize", {"bits": 3}, "random_posterize",
           dtypes=("uint8",)),
    _gated("RandomSolarize", {"threshold": 0.5}, "random_solarize"),
    _gated("RandomAdjustSharpness", {"sharpness_factor": 2},
           "random_adjust_sharpness", most=(1, 1e-5)),
    _gated("RandomAutocontrast", {}, "random_autocontrast", most=(0, 1e-5)),
    _gated("RandomEqualize", {}, "random_equalize", dtypes=("uint8",)),
    _row("GaussianBlur", "kernel 5x5, sigma 0.1 to 2",
          [{"gaussian_blur": {"kernel_size": {"width": 5, "height": 5},
                              "sigma": _range(0.1, 2.0)}}],
          least=3, most=(1, 1e-5)),
    _row("RandomErasing", "p 0.9, scale 0.02 to 0.33, ratio 0.3 to 3.3",
          _erasing),
    _row("Cutout", "size 8", [{"cutout": {"size": 8}}], least=8,
          remark="not in torchvision: the drawn box, erased"),
    _row("Resize, ToDtype, Normalize", "224x224, bilinear, antialias", _w2,
          most=CHAIN_BOUND),
    _row("RandomResizedCrop, RandomHorizontalFlip, ToDtype, Normalize",
          "to 40x28", _imagenet, most=CHAIN_BOUND),
    _row("Resize, both flips, RandomRotation, ColorJitter",
          "160x160, bilinear, 10 degrees, 0.05 each", W4, most=CHAIN_BOUND),
    _row("RandomResizedCrop, RandomHorizontalFlip, RandomApply(ColorJitter), "
          "RandomGrayscale, GaussianBlur, ToDtype, Normalize",
          "to 40x28, jitter 0.4 and 0.1, blur 5x5", _contrastive,
          most=CHAIN_BOUND),
]
