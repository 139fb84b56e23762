"""Encoded images of Hugging Face's datasets and of pyarrow, as they are pushed."""

import io

import datasetd
import datasets
import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from PIL import Image

_RANDOM = np.random.default_rng(17)


def _png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "png")
    return file.getvalue()


ARRAYS = _RANDOM.integers(0, 256, (37, 12, 10, 3), np.uint8)
FILES = [_png(array) for array in ARRAYS]
LABELS = np.arange(37) % 5


@pytest.fixture
def client(daemon):
    with daemon.connect() as client:
        yield client


def _expect(dataset, arrays):
    with datasetd.DataLoader(
        dataset, batch_size=len(arrays), framework="numpy"
    ) as loader:
        (batch,) = loader
        np.testing.assert_array_equal(np.moveaxis(batch.image, 1, 3), arrays)
        np.testing.assert_array_equal(batch.label, LABELS)


def test_hugging_face_images_with_classes(client):
    features = datasets.Features(
        {"image": datasets.Image(),
         "label": datasets.ClassLabel(names=list("abcde"))}
    )
    data = datasets.Dataset.from_dict(
        {"image": [{"bytes": file, "path": None} for file in FILES],
         "label": LABELS.tolist()},
        features=features,
    )
    with client.push_dataset("hf-images", data) as pushed:
        assert list(pushed.class_names) == list("abcde")
        _expect(pushed, ARRAYS)


def test_hugging_face_images_by_path(client, tmp_path):
    paths = []
    for i, file in enumerate(FILES):
        path = tmp_path / f"{i}.png"
        path.write_bytes(file)
        paths.append(str(path))
    data = datasets.Dataset.from_dict(
        {"image": paths, "label": LABELS.tolist()}
    ).cast_column("image", datasets.Image())
    with client.push_dataset("hf-paths", data) as pushed:
        _expect(pushed, ARRAYS)


def test_a_table_that_names_a_file(client, tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(FILES[5])
    values = [{"bytes": f, "path": None} for f in FILES]
    values[5] = {"bytes": None, "path": str(path)}
    table = pyarrow.table({"image": values, "label": LABELS})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for data in (
        table,
        datasetd.sources.parquet(tmp_path / "a.parquet"),
        datasetd.sources.arrow(tmp_path / "a.arrow"),
    ):
        with pytest.raises(
            datasetd.InvalidArgument,
            match="column 'image', row 5 is a path without bytes",
        ):
            client.push_dataset("arrow-path", data)


@pytest.mark.parametrize("kind", ["binary", "large_binary", "struct"])
def test_arrow_columns(client, kind):
    if kind == "struct":
        column = pyarrow.array([{"bytes": f, "path": ""} for f in FILES])
    else:
        column = pyarrow.array(FILES, getattr(pyarrow, kind)())
    table = pyarrow.table({"image": column, "label": LABELS})
    with client.push_dataset(f"arrow-{kind}", table) as pushed:
        _expect(pushed, ARRAYS)


def test_a_bad_sample_of_a_table_is_left_out(client):
    table = pyarrow.table(
        {"image": pyarrow.array([*FILES[:5], FILES[5][:60], *FILES[6:]]),
         "label": LABELS}
    )
    with pytest.raises(datasetd.Error, match="sample 5"):
        client.push_dataset("arrow-bad", table)
    with client.push_dataset("arrow-bad", table, bad_samples="skip") as pushed:
        assert pushed.num_samples == 36
        assert [bad.index for bad in pushed.bad_samples] == [5]


def test_recordings(client, tmp_path):
    """By soundfile, without the decoder that datasets needs."""
    import soundfile

    waves = _RANDOM.integers(-9000, 9000, (3, 80, 2), np.int16)
    paths = []
    for i, wave in enumerate(waves):
        paths.append(str(tmp_path / f"{i}.wav"))
        soundfile.write(paths[-1], wave[: 60 + i], 8000)
    for feature, keeps in (({}, False), ({"num_channels": 2}, True)):
        files = [{"bytes": None, "path": path} for path in paths]
        table = pyarrow.table({"audio": files})
        data = datasets.Dataset(table).cast_column(
            "audio", datasets.Audio(**feature)
        )
        with client.push_dataset(None, data) as clips:
            for i, got in enumerate(clips.column("audio")):
                want = waves[i, : 60 + i] / 2**15
                want = want if keeps else want.mean(1)
                np.testing.assert_allclose(got, want, atol=1e-7)
