"""Rows of ops and chains as drawn: explain's parameters go to torchvision."""

import affine_rows
import explained
import geometry_rows
import numpy as np
import numpy_judge
from row import REFERENCE, Case, Row

NEAREST, BILINEAR, BICUBIC = explained.MODES
NEAREST_EXACT = explained.NEAREST_EXACT

# The bound is of the draws: explained.allow.
CHAIN_BOUND = (None, None)


def between(low, high):
    return {"min": low, "max": high}


def drawn_row(op, parameters, pipelines, most=(0, 0), remark="", **others):
    """A row of pipelines, or of what makes them of a shape."""

    def cases(shape):
        allow = explained.allow(shape) if most == CHAIN_BOUND else None
        for ops in pipelines(shape) if callable(pipelines) else pipelines:
            yield Case(ops, explained.expect(ops), allow)

    return Row(op, parameters + "; as drawn", cases, *most, is_drawn=True,
               remark=remark, **others)


def _edge_row(op, parameters, pipelines):
    """Nearest, off the grid: see NEAREST_REMARK."""

    def cases(shape):
        for ops in pipelines(shape):
            (values,) = ops[0].values()
            center = values.get("center")
            center = center and (center["x"], center["y"])

            def is_edge(shape, drawn, center=center):
                affine = drawn[0]["parameters"]
                return affine_rows.edges(
                    shape,
                    affine["angle"][0],
                    affine["translate"],
                    affine["scale"][0],
                    affine["shear"],
                    center,
                )

            yield Case(ops, explained.expect(ops), is_edge=is_edge)

    return Row(op, parameters + "; as drawn", cases, 0, 0, is_drawn=True,
               bound_text="1 in 1,000",
               remark=affine_rows.NEAREST_REMARK)


def _mask_row(op, parameters, transform, is_exact):
    """A mask is sampled nearest, whatever its op's interpolation is."""
    (name, values), = transform.items()
    nearest = [{name: {**values, "interpolation": NEAREST,
                       "antialias": False}}]

    def is_edge(shape, drawn):
        return affine_rows.edges(
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
               is_exact else affine_rows.NEAREST_REMARK)


JITTER = {
    "brightness": between(0.6, 1.4),
    "contrast": between(0.6, 1.4),
    "saturation": between(0.6, 1.4),
    "hue": between(-0.1, 0.1),
}
SMALL_JITTER = {
    "brightness": between(0.95, 1.05),
    "contrast": between(0.95, 1.05),
    "saturation": between(0.95, 1.05),
    "hue": between(-0.05, 0.05),
}


def _jitter(ranges):
    listed = ", ".join(
        f"{part} {ends['min']:g} to {ends['max']:g}"
        for part, ends in ranges.items()
    )
    return drawn_row("ColorJitter", listed, [[{"color_jitter": ranges}]],
                most=CHAIN_BOUND)


WIDE_JITTER = {
    "brightness": between(0, 2),
    "contrast": between(0, 2),
    "saturation": between(0, 3),
    "hue": between(-0.5, 0.5),
}


RESIZED_CROP = {
    "size": {"height": 40, "width": 28},
    "scale": between(0.08, 1.0),
    "ratio": between(3 / 4, 4 / 3),
    "interpolation": BILINEAR,
    "antialias": True,
}
# Scale and ratio: both ends; an area of nothing, which no try accepts.
AREAS = (
    (between(0.08, 1.0), between(3 / 4, 4 / 3)),
    (between(0, 0), between(3 / 4, 4 / 3)),
    (between(1, 1), between(1, 1)),
    (between(0.01, 0.3), between(0.1, 10)),
)


def _resized_crops(interpolation, antialias):
    return [
        [
            {
                "random_resized_crop": {
                    "size": {"height": height, "width": width},
                    "scale": scale,
                    "ratio": ratio,
                    "interpolation": interpolation,
                    "antialias": antialias,
                }
            }
        ]
        for height, width in ((40, 28), (1, 1))
        for scale, ratio in AREAS
    ]


AFFINES = (
    {
        "degrees": between(-30, 30),
        "translate": {"x": 0.1, "y": 0.2},
        "scale": between(0.7, 1.3),
        "shear_x": between(-10, 10),
        "shear_y": between(-5, 5),
    },
    {"degrees": between(-180, 180)},
    {"degrees": between(0, 0), "translate": {"x": 1, "y": 1}},
    {"degrees": between(5, 7), "translate": {"x": 0, "y": 0},
     "scale": between(1, 1), "shear_x": between(3, 20)},
    {"degrees": between(-7, -5), "shear_x": between(-20, -3),
     "shear_y": between(2, 12), "scale": between(0.8, 0.9)},
)
ROTATIONS = tuple(
    {"degrees": between(*degrees)}
    for degrees in ((-10, 10), (-180, 180), (-90.5, -30), (20, 30))
)
ABOUT = "about the middle and a point; no fill, one"


def _affines(name, parameters, interpolation):
    """All of `parameters`, the last two of them with a center and a fill."""

    def pipelines(shape):
        fill = [11] if shape.dtype == "uint8" else [0.3]
        others = (
            {},
            {"fill": fill},
            {"center": {"x": shape.width / 3, "y": shape.height * 0.7}},
        )
        for values in parameters:
            for other in others:
                yield [
                    {name: {**values, **other, "interpolation": interpolation}}
                ]

    return pipelines


GATES = (0, 0.5, 1)
# Scale and ratio; a box as large as the image is not accepted.
BOXES = (
    (between(0.02, 0.33), between(0.3, 3.3)),
    (between(0, 0), between(1, 1)),
    (between(0.3, 0.9), between(0.1, 10)),
    (between(1, 1), between(1, 1)),
)


def _erasing(shape):
    value = [63, 127, 255] if shape.dtype == "uint8" else [0.25, 0.5, 1]
    for p in GATES:
        for values in (None, value[:1], value[: shape.channels]):
            for scale, ratio in BOXES:
                op = {"p": p, "scale": scale, "ratio": ratio}
                if values is not None:
                    op["value"] = values
                yield [{"random_erasing": op}]


def _erase_normal(image, drawn):
    if not drawn or not drawn[0]["is_applied"]:
        return image
    box = explained.box(drawn[0]["parameters"])
    # The first op of the first field has op index 0.
    normal = numpy_judge.normal_image(
        *image.shape, drawn.seed, 0, drawn.epoch, drawn.sample
    )
    return numpy_judge.erase_normal(image, box, normal)


def _normal_cases(shape):
    del shape
    for p in GATES:
        for scale, ratio in BOXES:
            op = {"p": p, "scale": scale, "ratio": ratio,
                  "is_value_random": True}
            yield Case([{"random_erasing": op}], _erase_normal)


def _noise(mean, sigma, clip):
    def expect(image, drawn):
        # A ToDtype has op index 0.
        index = drawn[-1]["position"]
        if image.dtype == np.uint8:
            image = image / np.float32(255)
        noise = numpy_judge.normal_image(
            *image.shape, drawn.seed, index, drawn.epoch, drawn.sample
        )
        noisy = image + mean + sigma * noise
        return (np.clip(noisy, 0, 1) if clip else noisy).astype(np.float32)

    return expect


def _noise_cases(shape):
    before = []
    if shape.dtype == "uint8":
        before = [{"to_dtype": {"dtype": "DTYPE_FLOAT32", "scale": True}}]
    for mean in (-0.25, 0, 0.5):
        for sigma in (0, 0.1, 2):
            for clip in (True, False):
                op = {"mean": mean, "sigma": sigma, "clip": clip}
                yield Case(before + [{"gaussian_noise": op}],
                           _noise(mean, sigma, clip))


def _cutout(shape):
    most = min(shape.height, shape.width)
    for size in sorted({1, min(8, most), most}):
        yield [{"cutout": {"size": size}}]
        fill = [9, 99, 199] if shape.dtype == "uint8" else [0.1, 0.5, 0.9]
        yield [{"cutout": {"size": size, "fill": fill[: shape.channels]}}]


def _blur(shape):
    for width, height in ((5, 5), (3, 7), (1, 1)):
        size = {
            "width": min(width, 2 * shape.width - 1),
            "height": min(height, 2 * shape.height - 1),
        }
        for sigma in (between(0.1, 2), between(1, 1), between(3, 10)):
            yield [{"gaussian_blur": {"kernel_size": size, "sigma": sigma}}]


def _crops(mode):
    def pipelines(shape):
        fill = 7 if shape.dtype == "uint8" else 0.25
        reach = 4
        if mode in ("reflect", "symmetric"):
            reach = min(4, min(shape.height, shape.width)
                        - (mode == "reflect"))
        base = {"padding_mode": "PADDING_MODE_" + mode.upper()}
        if mode == "constant":
            yield [{"random_crop": {"height": shape.height,
                                    "width": shape.width,
                                    "padding": _sides(4, 4, 4, 4), **base}}]
            base["fill"] = [fill]
        for sides in ((reach,) * 4, (0, reach, 1 if reach else 0, 0)):
            for height, width in ((shape.height, shape.width), (1, 1)):
                yield [{"random_crop": {"height": height, "width": width,
                                        "padding": _sides(*sides), **base}}]
        # Padded as far as needed, on both sides.
        yield [{"random_crop": {"height": shape.height + reach // 2,
                                "width": shape.width + reach,
                                "pad_if_needed": True, **base}}]

    return pipelines


def _sides(left, top, right, bottom):
    return {"left": left, "top": top, "right": right, "bottom": bottom}


def _gated(op, parameters, name, **others):
    """With p at both ends and between; `parameters` or what makes them."""

    def pipelines(shape):
        values = parameters(shape) if callable(parameters) else parameters
        for value in values:
            for p in GATES:
                yield [{name: {**value, "p": p}}]

    listed = others.pop("listed", "")
    return drawn_row(op, listed + "p 0, 0.5, 1", pipelines, **others)


def _posterize_float(image, drawn):
    if not drawn or not drawn[0]["is_applied"]:
        return image
    return numpy_judge.posterize(image, int(drawn[0]["parameters"]["bits"][0]))


def _equalize_float(image, drawn):
    is_applied = drawn and drawn[0]["is_applied"]
    return numpy_judge.equalize(image) if is_applied else image


def _float_row(op, name, parameters, listed, expect, bound):
    """For float32, for which torchvision 0.14 does not have the op."""

    def cases(shape):
        del shape
        for value in parameters:
            for p in GATES:
                yield Case([{name: {**value, "p": p}}], expect)

    return Row(op, listed + "p 0, 0.5, 1; as drawn", cases, 0, bound,
               is_drawn=True, judge=REFERENCE, dtypes=("float32",),
               remark="torchvision 0.14 has it for uint8 only")


def _thresholds(shape):
    return [{"threshold": part * shape.bound} for part in (0, 0.5, 1)]


def _group(shape):
    del shape
    for p in GATES:
        yield [{"random_apply": {"transforms": [{"invert": {}},
                                                {"vertical_flip": {}}],
                                 "p": p}}]


NO_FACTOR = [{}]
BITS = [{"bits": bits} for bits in (0, 3, 8)]
FACTORS = [{"sharpness_factor": factor} for factor in (0, 0.5, 2)]

ROWS = [
    _gated("RandomHorizontalFlip", NO_FACTOR, "random_horizontal_flip"),
    _gated("RandomVerticalFlip", NO_FACTOR, "random_vertical_flip"),
    drawn_row("AlternatingFlip", "", [[{"alternating_flip": {}}]],
              remark="not in torchvision: the drawn flip"),
    drawn_row("RandomCrop", "padding 0 to 4, pad_if_needed; constant, fill",
              _crops("constant")),
    drawn_row("RandomCrop", "the same; edge", _crops("edge")),
    drawn_row("RandomCrop", "the same as far as it can be; reflect",
              _crops("reflect")),
    drawn_row("RandomCrop", "the same as far as it can be; symmetric",
              _crops("symmetric")),
    drawn_row("RandomResizedCrop",
              "nearest; to 40x28, 1x1; scale 0 to 1, ratio 0.1 to 10",
              _resized_crops(NEAREST, False)),
    drawn_row("RandomResizedCrop", "nearest-exact; the same",
              _resized_crops(NEAREST_EXACT, False),
              remark="against torch's interpolate"),
    drawn_row("RandomResizedCrop", "bilinear; the same",
              _resized_crops(BILINEAR, False), most=(1, geometry_rows.RESIZED)),
    drawn_row("RandomResizedCrop", "bilinear, antialias; the same",
              _resized_crops(BILINEAR, True), most=(1, geometry_rows.RESIZED)),
    drawn_row("RandomResizedCrop", "bicubic; the same",
              _resized_crops(BICUBIC, False), most=(1, geometry_rows.RESIZED)),
    drawn_row("RandomResizedCrop", "bicubic, antialias; the same",
              _resized_crops(BICUBIC, True), most=(1, geometry_rows.RESIZED)),
    drawn_row("RandomRotation",
              "bilinear; degrees -10 to 10, -180 to 180, -90.5 to -30, 20 to "
              "30; " + ABOUT,
              _affines("random_rotation", ROTATIONS, BILINEAR),
              most=(1, affine_rows.ROTATED)),
    _edge_row("RandomRotation", "nearest; the same",
              _affines("random_rotation", ROTATIONS, NEAREST)),
    drawn_row("RandomAffine",
              "bilinear; degrees up to 180, translate 0 to 1, scale 0.7 to "
              "1.3, shear up to 20; " + ABOUT,
              _affines("random_affine", AFFINES, BILINEAR),
              most=(1, affine_rows.ROTATED)),
    _edge_row("RandomAffine", "nearest; the same",
              _affines("random_affine", AFFINES, NEAREST)),
    _mask_row("RandomResizedCrop", "bilinear,",
              {"random_resized_crop": RESIZED_CROP}, True),
    _mask_row("RandomRotation", "bilinear, degrees -10 to 10,",
              {"random_rotation": {"degrees": between(-10, 10),
                                   "interpolation": BILINEAR}}, False),
    _jitter({"brightness": JITTER["brightness"]}),
    _jitter({part: JITTER[part] for part in ("contrast", "hue")}),
    _jitter(JITTER),
    _jitter(SMALL_JITTER),
    _jitter(WIDE_JITTER),
    _gated("RandomGrayscale", NO_FACTOR, "random_grayscale", most=(0, 1e-5)),
    _gated("RandomInvert", NO_FACTOR, "random_invert"),
    _gated("RandomPosterize", BITS, "random_posterize",
           listed="bits 0, 3, 8, ", dtypes=("uint8",)),
    _float_row("RandomPosterize", "random_posterize", BITS, "bits 0, 3, 8, ",
               _posterize_float, 0),
    _gated("RandomSolarize", _thresholds, "random_solarize",
           listed="threshold 0, 1/2, 1 of the bound, "),
    _gated("RandomAdjustSharpness", FACTORS, "random_adjust_sharpness",
           listed="sharpness_factor 0, 0.5, 2, ", most=(1, 1e-5)),
    _gated("RandomAutocontrast", NO_FACTOR, "random_autocontrast",
           most=(0, 1e-5)),
    _gated("RandomEqualize", NO_FACTOR, "random_equalize",
           dtypes=("uint8",)),
    _float_row("RandomEqualize", "random_equalize", NO_FACTOR, "",
               _equalize_float, 1e-6),
    drawn_row("GaussianBlur", "kernel 1x1 to 3x7, sigma 0.1 to 10", _blur,
              most=(1, 1e-5)),
    Row("GaussianNoise", "mean -0.25, 0, 0.5; sigma 0, 0.1, 2; clip or not; "
        "as drawn", _noise_cases, 1e-5 * 255, 1e-5, bound_text="1e-05", judge=REFERENCE,
        is_drawn=True,
        remark="Philox and Box and Muller in double precision; uint8 after "
        "ToDtype"),
    drawn_row("RandomErasing",
              "p 0, 0.5, 1; scale 0 to 1, ratio 0.1 to 10; no value, one, one "
              "per channel", _erasing),
    Row("RandomErasing", "the same; value random; as drawn", _normal_cases, 0,
        1e-5, judge=REFERENCE, is_drawn=True,
        remark="Philox and Box and Muller in double precision"),
    drawn_row("Cutout", "size 1 to the image's; no fill, one per channel",
              _cutout, remark="not in torchvision: the drawn box, erased"),
    drawn_row("RandomApply", "Invert and VerticalFlip, p 0, 0.5, 1", _group),
]
