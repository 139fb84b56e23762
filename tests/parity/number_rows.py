"""Rows of the ops on the numbers that pixels are."""

import torch
from row import Case, Row
from torchvision.transforms import functional

_DTYPES = {
    "DTYPE_FLOAT16": torch.float16,
    "DTYPE_BFLOAT16": torch.bfloat16,
    "DTYPE_FLOAT32": torch.float32,
}


def _array(tensor):
    """As product.py reads it: NumPy has no bfloat16."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.to(torch.float32)
    return tensor.numpy()


def _to_dtype(shape):
    if shape.dtype == "uint8":
        yield Case([{"to_dtype": {"dtype": "DTYPE_UINT8"}}],
                   lambda image, _: image)
    for name, dtype in _DTYPES.items():
        for scale in (False, True):
            yield Case(
                [{"to_dtype": {"dtype": name, "scale": scale}}],
                lambda image, _, dtype=dtype, scale=scale: _array(
                    functional.convert_image_dtype(
                        torch.from_numpy(image), dtype
                    )
                    if scale
                    else torch.from_numpy(image).to(dtype)
                ),
            )


def _normalize(shape):
    for mean, std in (
        ([0.0], [1.0]),
        ([-0.5, 0.25, 1.0], [0.01, 0.5, 1.0]),
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ([120.0], [60.0]),
    ):
        mean, std = mean[: shape.channels], std[: shape.channels]
        scale = mean[0] < 100
        transforms = [{"normalize": {"mean": mean, "std": std}}]
        if shape.dtype == "uint8":
            to_dtype = {"dtype": "DTYPE_FLOAT32", "scale": scale}
            transforms.insert(0, {"to_dtype": to_dtype})
        yield Case(
            transforms,
            lambda image, _, mean=mean, std=std, scale=scale: (
                functional.normalize(
                    functional.convert_image_dtype(
                        torch.from_numpy(image), torch.float32
                    )
                    if scale
                    else torch.from_numpy(image).to(torch.float32),
                    mean,
                    std,
                ).numpy()
            ),
        )


ROWS = [
    Row("ToDtype", "float16, bfloat16, float32; scale or not", _to_dtype, 0,
        0),
    Row("Normalize", "one value, one per channel; std 0.01 to 60", _normalize,
        0, 0, remark="uint8 after ToDtype"),
]
