import datasetd
import numpy as np
import pytest
import torch
from datasetd import transforms as T
from datasetd.transforms._pipeline import pipelines_message


def message(op):
    (value,) = op.to_message().values()
    return value


@pytest.mark.parametrize(
    "size, expected",
    [(32, (32, 32)), ([32], (32, 32)), ((24, 30), (24, 30))],
)
def test_size(size, expected):
    for op in (T.CenterCrop(size), T.RandomCrop(size)):
        assert (message(op)["height"], message(op)["width"]) == expected


@pytest.mark.parametrize("size", [0, -1, 2.5, "32", (1, 2, 3), (), True, None])
def test_bad_size_is_named(size):
    with pytest.raises(datasetd.InvalidArgument, match="RandomCrop: size="):
        T.RandomCrop(size)


@pytest.mark.parametrize(
    "padding, expected",
    [
        (4, (4, 4, 4, 4)),
        ([4], (4, 4, 4, 4)),
        ((1, 2), (1, 2, 1, 2)),
        ((1, 2, 3, 4), (1, 2, 3, 4)),
    ],
)
def test_padding_is_left_top_right_bottom(padding, expected):
    for op in (T.Pad(padding), T.RandomCrop(8, padding=padding)):
        value = message(op)["padding"]
        assert (
            value["left"],
            value["top"],
            value["right"],
            value["bottom"],
        ) == expected


@pytest.mark.parametrize("padding", [-1, 1.5, (1, 2, 3), "4", [1, -1]])
def test_bad_padding_is_named(padding):
    with pytest.raises(datasetd.InvalidArgument, match="Pad: padding="):
        T.Pad(padding)


def test_fill():
    assert message(T.Pad(1, fill=None))["fill"] == [0.0]
    for op in (
        T.Rotate(3, fill=None), T.RandomRotation(3, fill=None),
        T.Affine(3, (0, 0), 1, 0, fill=None),
        T.RandomAffine(3, fill=None),
        T.RandomAffine(3, fill={"image": None}),
    ):
        assert message(op)["fill"] == []
    assert message(T.Pad(1, fill=(1, 2, 3)))["fill"] == [1.0, 2.0, 3.0]
    assert message(T.Pad(1, fill={"image": 3}))["fill"] == [3.0]
    for fill in ({"image": "red"}, {3: 1}, "red", [], [float("nan")]):
        with pytest.raises(datasetd.InvalidArgument, match="fill="):
            T.Pad(1, fill=fill)


@pytest.mark.parametrize(
    "dtype",
    ["float16", torch.float16, "torch.float16", np.float16, np.dtype("f2")],
)
def test_dtype(dtype):
    assert message(T.ToDtype(dtype, scale=True)) == {
        "dtype": "DTYPE_FLOAT16",
        "scale": True,
    }


@pytest.mark.parametrize("dtype", ["float8", torch.complex64, None, 3])
def test_bad_dtype(dtype):
    with pytest.raises(datasetd.InvalidArgument, match="ToDtype: dtype="):
        T.ToDtype(dtype)


def test_normalize():
    op = T.Normalize(torch.tensor([0.5, 0.25]), (1, 2))
    assert message(op) == {"mean": [0.5, 0.25], "std": [1.0, 2.0]}
    assert T.Normalize(torch.tensor(0.5), np.array(2)) == T.Normalize(0.5, 2)
    with pytest.raises(datasetd.InvalidArgument, match="mean has 2 values"):
        T.Normalize((0.5, 0.5), (1, 1, 1))
    with pytest.raises(datasetd.InvalidArgument, match="std="):
        T.Normalize((0.5,), (0.0,))


def test_equality_and_repr():
    assert T.Pad(1) == T.Pad((1, 1)) and T.Pad(1) != T.Pad(2)
    assert T.RandomHorizontalFlip() != T.RandomVerticalFlip()
    assert "p=0.25" in repr(T.RandomHorizontalFlip(0.25))


def test_torchvisions_own_ops_are_refused():
    with pytest.raises(datasetd.InvalidArgument, match="not of a datasetd"):
        pipelines_message("transforms", [torch.nn.Identity()])
    # As of keras, which has no len().
    sequential = type("Sequential", (), {})()
    with pytest.raises(datasetd.InvalidArgument, match="expected a list of"):
        pipelines_message("transforms", sequential)
