"""Rows of chains as drawn, whose bound follows from their draws."""

from drawn_rows import (
    BILINEAR,
    CHAIN_BOUND,
    JITTER,
    RESIZED_CROP,
    SMALL_JITTER,
    between,
    drawn_row,
)

RESIZE_224 = {
    "size": {"height": 224, "width": 224},
    "interpolation": BILINEAR,
    "antialias": True,
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
    return [[{"resize": RESIZE_224}] + _normalize(shape)]


def _imagenet(shape):
    return [
        [
            {"random_resized_crop": RESIZED_CROP},
            {"random_horizontal_flip": {}},
        ]
        + _normalize(shape)
    ]


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
    {"random_rotation": {"degrees": between(-10, 10),
                         "interpolation": BILINEAR}},
    {"color_jitter": SMALL_JITTER},
]


def _contrastive(shape):
    ops = [
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
                "sigma": between(0.1, 2.0),
            }
        },
    ]
    return [ops + _normalize(shape)]


ROWS = [
    drawn_row("Resize, ToDtype, Normalize", "224x224, bilinear, antialias",
              _w2, most=CHAIN_BOUND),
    drawn_row(
        "RandomResizedCrop, RandomHorizontalFlip, ToDtype, Normalize",
        "to 40x28", _imagenet, most=CHAIN_BOUND),
    drawn_row(
        "Resize, both flips, RandomRotation, ColorJitter",
        "160x160, bilinear, 10 degrees, 0.05 each", [W4], most=CHAIN_BOUND),
    drawn_row(
        "RandomResizedCrop, RandomHorizontalFlip, RandomApply(ColorJitter), "
        "RandomGrayscale, GaussianBlur, ToDtype, Normalize",
        "to 40x28, jitter 0.4 and 0.1, blur 5x5", _contrastive,
        most=CHAIN_BOUND),
]
