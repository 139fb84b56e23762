"""Encoded images that are not read: files that data names, and what Pillow
refuses."""

import io
import itertools
import os

import datasetd
import numpy as np
import pandas
import pytest
from datasetd._push import encoded
from PIL import Image

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(9)


def _name():
    return f"refused-{next(_NUMBERS)}"


def _picture(height, width):
    return Image.fromarray(_RANDOM.integers(0, 256, (height, width, 3), np.uint8))


def _file(image, kind):
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


_FILES = [_file(_picture(5, 4), "png"), _file(_picture(6, 5), "jpeg")]


def test_a_value_that_names_a_file(client, tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(_FILES[1])
    named = [{"bytes": _FILES[0], "path": None},
             {"bytes": None, "path": str(path)}]
    for data, where in (
        ({"image": named}, "column 'image', row 1"),
        (pandas.DataFrame({"image": named}), "column 'image', row 1"),
        ([{"image": value} for value in named], "sample 1, field 'image'"),
    ):
        with pytest.raises(
            datasetd.InvalidArgument, match=f"{where} is a path without bytes"
        ):
            client.push_dataset(_name(), data)


def test_a_file_that_is_named_is_a_regular_one(tmp_path):
    """As of a Hugging Face dataset."""

    def read(path):
        value = {"bytes": None, "path": str(path)}
        return encoded.FileRows(
            1, lambda begin, end: [value], "column 'x'", may_open=True
        ).first()

    path = tmp_path / "a.png"
    path.write_bytes(_FILES[0])
    assert read(path) == _FILES[0]
    os.mkfifo(tmp_path / "fifo")
    for other, words in (
        (tmp_path / "fifo", "fifo is no regular file"),
        ("/dev/zero", "/dev/zero is no regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
        ("a\0b", "null byte"),
    ):
        with pytest.raises(
            datasetd.DataLoss, match=f"column 'x', row 0: .*{words}"
        ):
            read(other)


def test_an_image_that_pillow_refuses_is_a_bad_sample(client, monkeypatch):
    large = _file(_picture(60, 60), "gif")
    files = [_file(_picture(5, 6), "gif"), large, _FILES[1]]
    columns, samples = {"image": files}, [{"image": data} for data in files]

    def refused():
        for data in (columns, samples):
            with client.push_dataset(
                _name(), data, bad_samples="skip"
            ) as dataset:
                assert [bad.index for bad in dataset.bad_samples] == [1]
                assert len(dataset) == 2
            with pytest.raises(datasetd.Error, match="sample 1: .*BMP image"):
                client.push_dataset(_name(), data)

    with monkeypatch.context() as patch:
        # Twice as many pixels are an error, which is no ValueError.
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 60 * 60 // 2 - 1)
        refused()
    # Its PNG has 10,800 bytes of pixels.
    with monkeypatch.context() as patch:
        patch.setattr(encoded, "_MAX_IMAGE_BYTES", 10_800)
        refused()
        patch.setattr(encoded, "_MAX_IMAGE_BYTES", 12_000)
        with client.push_dataset(_name(), columns) as dataset:
            assert len(dataset) == 3
