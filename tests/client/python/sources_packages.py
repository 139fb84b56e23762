"""Run by sources_full_test.py: files that each library wrote itself."""

import io
import itertools
import json
import os
import warnings

import datasetd
import numpy as np
import pytest
from datasetd import sources
from PIL import Image

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(8)
_IMAGES = _RANDOM.integers(0, 256, (300, 8, 9, 3), np.uint8)
_ROWS = _RANDOM.standard_normal((300, 16)).astype(np.float32)
_LABELS = np.arange(300) % 10


def _png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


def _expect(client, data, want, classes=(), **arguments):
    with client.push_dataset(
        f"source-{next(_NUMBERS)}", data, **arguments
    ) as dataset:
        assert [field.name for field in dataset.fields] == list(want)
        assert dataset.class_names == list(classes)
        batch = client.fetch(dataset, range(len(dataset)), framework="numpy")
        for field in dataset.fields:
            values = np.array(getattr(batch, field.name))
            if field.is_image:
                values = np.moveaxis(values, 1, -1)
            assert field.dtype == want[field.name].dtype.name
            np.testing.assert_array_equal(values, want[field.name])


if os.environ["SOURCES_ENVIRONMENT"] == "mxnet":

    def test_recordio(client, tmp_path):
        import mxnet.recordio

        path = str(tmp_path / "a.rec")
        file = mxnet.recordio.MXRecordIO(path, "w")
        for i in range(300):
            header = mxnet.recordio.IRHeader(0, float(_LABELS[i]), i, 0)
            file.write(mxnet.recordio.pack(header, _png(_IMAGES[i])))
        file.close()
        _expect(
            client,
            sources.recordio(path),
            {"image": _IMAGES, "label": _LABELS},
        )
        file = mxnet.recordio.MXRecordIO(path, "w")
        for i in range(300):
            header = mxnet.recordio.IRHeader(0, _ROWS[i], i, 0)
            file.write(mxnet.recordio.pack(header, _png(_IMAGES[i])))
        file.close()
        _expect(
            client, sources.recordio(path), {"image": _IMAGES, "label": _ROWS}
        )

    def test_recordio_labels_are_of_one_dtype(client, tmp_path):
        import mxnet.recordio

        def write(labels):
            path = str(tmp_path / "a.rec")
            file = mxnet.recordio.MXRecordIO(path, "w")
            for i, label in enumerate(labels):
                header = mxnet.recordio.IRHeader(0, label, i, 0)
                file.write(mxnet.recordio.pack(header, _png(_IMAGES[i])))
            file.close()
            return path

        labels = np.array([0.5, 1, 2], np.float32)
        want = {"image": _IMAGES[:3], "label": labels}
        _expect(client, sources.recordio(write([0.5, 1.0, 2.0])), want)
        path = write([1.0, 0.5, 2.0])
        with pytest.raises(
            datasetd.InvalidArgument, match="record 1 is 0.5.*label_dtype="
        ):
            client.push_dataset("mixed", sources.recordio(path))
        want["label"] = labels[[1, 0, 2]]
        _expect(client, sources.recordio(path, label_dtype="float32"), want)
        with pytest.raises(datasetd.InvalidArgument, match="is 'int8'"):
            sources.recordio(path, label_dtype="int8")

elif os.environ["SOURCES_ENVIRONMENT"] == "zarr3":

    @pytest.mark.parametrize("version", [2, 3])
    def test_zarr_3(client, tmp_path, version):
        """Its arrays have no len()."""
        import zarr

        path = str(tmp_path / "a")
        group = zarr.open_group(path, mode="w", zarr_format=version)
        want = {"image": _IMAGES, "label": _LABELS, "x": _ROWS}
        chunks = {"image": (70, 8, 9, 3), "label": (300,), "x": (7, 16)}
        for name, values in want.items():
            is_sharded = version == 3 and name == "x"
            group.create_array(
                name,
                shape=values.shape,
                dtype=values.dtype,
                chunks=chunks[name],
                shards=(70, 16) if is_sharded else None,
            )[:] = values

        def expect(data, names):
            _expect(client, data, {name: want[name] for name in names})

        expect(sources.zarr(path, list(want)), want)
        assert list(sources.zarr(path)) == ["image", "label", "x"]
        expect(sources.zarr(path + "/x", "x"), ["x"])
        expect({"x": group["x"], "label": _LABELS}, ["x", "label"])
        expect((group["image"], group["label"]), ["image", "label"])
        with client.load_dataset(
            f"loaded-{version}", "zarr", path
        ) as dataset:
            assert len(dataset) == 300
        with pytest.raises(datasetd.InvalidArgument, match="'x' has 300"):
            client.push_dataset("two", {"x": group["x"], "y": [1]})
        with pytest.raises(datasetd.FailedPrecondition, match="'zarr<3'"):
            sources.n5(path)

elif os.environ["SOURCES_ENVIRONMENT"] == "common":
    import datasets
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    def _table():
        return pyarrow.table(
            {
                "label": _LABELS,
                "fixed": pyarrow.FixedSizeListArray.from_arrays(
                    _ROWS.reshape(-1), 16
                ),
                "lists": pyarrow.array(
                    [row.tolist() for row in _ROWS],
                    pyarrow.list_(pyarrow.float32()),
                ),
            }
        )

    _WANT = {"label": _LABELS, "fixed": _ROWS, "lists": _ROWS}

    def test_tables(client, tmp_path):
        table = _table()
        _expect(client, table, _WANT)
        pieces = [table[:7], table[7:200], table[200:]]
        _expect(client, pyarrow.concat_tables(pieces), _WANT)
        _expect(client, table.to_batches()[0], _WANT)
        number = pyarrow.int32()
        for kind, value, words in (
            (pyarrow.map_(number, number), [(1, 2)], "which is not a number"),
            (pyarrow.list_view(number), [1], "convert it: pyarrow"),
        ):
            column = pyarrow.array([value] * 2, kind)
            with pytest.raises(
                datasetd.InvalidArgument, match=f"'x' is {kind}, {words}"
            ):
                client.push_dataset("no", pyarrow.table({"x": column}))
        tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(_IMAGES)
        _expect(
            client, pyarrow.table({"image": tensors}), {"image": _IMAGES}
        )
        twice = pyarrow.Table.from_arrays(
            [pyarrow.array(values) for values in (_LABELS, _ROWS[:, 0], _LABELS)],
            ["a", "b", "a"],
        )
        with pytest.raises(
            datasetd.InvalidArgument, match="table has 2 columns called 'a'"
        ):
            client.push_dataset("wrong", twice)
        _expect(client, twice, {"b": _ROWS[:, 0]}, fields=["b"])
        with pyarrow.ipc.new_file(tmp_path / "a.arrow", twice.schema) as writer:
            writer.write_table(twice)
        pyarrow.parquet.write_table(twice, tmp_path / "a.parquet")
        for read in (sources.arrow, sources.parquet):
            path = tmp_path / f"a.{read.__name__}"
            for fields in (None, ["b", "a"]):
                with pytest.raises(
                    datasetd.InvalidArgument, match=f"{path} has 'a' 2 times"
                ):
                    read(path, fields)
        for column, words in (
            (["a", "b"], "'x' is string, which is not a number"),
            ([1, None], "'x' has nulls"),
            ([[1], None, [2, 3]], "'x' has nulls"),
            ([[[1], [2, 3]], [[4]]], "'x' has lists of 1 to 2 values"),
        ):
            with pytest.raises(datasetd.InvalidArgument, match=words):
                client.push_dataset("wrong", pyarrow.table({"x": column}))
        for column, words in (
            (pyarrow.array([[1], [2, 3]]), "'x' has lists of 1 to 2 values"),
            (
                pyarrow.chunked_array([[[1, 2]], [[], [3, 4, 5]]]),
                "'x' has lists of 0 to 3 values|pad or cut",
            ),
        ):
            table = pyarrow.table({"x": column})
            with pytest.raises(datasetd.InvalidArgument, match=words):
                client.push_dataset("wrong", table, {"x": "array"})
            dataset = client.push_dataset(None, table)
            assert dataset.fields[0].shape == (-1,)
            rows = [row.tolist() for row in dataset.column("x")]
            assert rows == column.to_pylist()

    def test_hugging_face_lists_are_sequences(client):
        import datasets

        rows = [[7, 8, 9], [], [10], [11, 12]]
        data = datasets.Dataset.from_dict(
            {"input_ids": rows, "pairs": [[[i, 1]] * i for i in range(4)],
             "label": [0, 1, 0, 1]},
            features=datasets.Features(
                {"input_ids": datasets.Sequence(datasets.Value("int32")),
                 "pairs": datasets.Sequence(
                     datasets.Sequence(datasets.Value("float32"), 2)),
                 "label": datasets.ClassLabel(names=["a", "b"])}
            ),
        ).select([3, 0, 1, 2])  # fmt: skip
        dataset = client.push_dataset("tokenised", data)
        ids, pairs, _ = dataset.fields
        assert (ids.dtype, ids.shape, ids.largest) == ("int32", (-1,), (3,))
        assert (pairs.dtype, pairs.shape) == ("float32", (-1, 2))
        order = [3, 0, 1, 2]
        assert [row.tolist() for row in dataset.column("input_ids")] == [
            rows[i] for i in order
        ]
        assert [row.tolist() for row in dataset.column("pairs")] == [
            [[i, 1]] * i for i in order
        ]
        with datasetd.DataLoader(
            dataset, 4, windows=datasetd.crops(2), framework="numpy"
        ) as loader:
            (batch,) = loader
            assert batch.input_ids.tolist() == [
                [11, 12], [7, 8], [0, 0], [10, 0]
            ]  # fmt: skip
            assert batch.input_ids_lengths.tolist() == [2, 2, 0, 1]

    def _clips(tmp_path, channels=1, rate=16000):
        """Waveforms, and files of them that an Audio feature takes."""
        import soundfile

        waves, files = [], []
        for i, length in enumerate((50, 7, 90)):
            wave = _RANDOM.integers(-9000, 9000, (length, channels), np.int16)
            path = tmp_path / f"{i}.wav"
            soundfile.write(path, wave, rate)
            waves.append((wave / 2**15).astype(np.float32))
            files.append(
                str(path) if i else {"bytes": path.read_bytes(), "path": None}
            )
        return waves, files

    def _audio(files, **feature):
        return datasets.Dataset.from_dict(
            {"clip": files, "label": [1, 0, 1]},
            datasets.Features({
                "clip": datasets.Audio(**feature),
                "label": datasets.ClassLabel(names=["no", "yes"]),
            }),
        )  # fmt: skip

    def test_hugging_face_audio(client, tmp_path):
        waves, files = _clips(tmp_path)
        for data in (_audio(files), _audio(files, sampling_rate=16000)):
            with client.push_dataset("clips", data.select([2, 0, 1])) as clips:
                clip, label = clips.fields
                assert (clip.dtype, clip.shape) == ("float32", (-1,))
                assert clips.class_names == ["no", "yes"]
                assert "16000 samples per second" in " ".join(clips.notes)
                for got, i in zip(clips.column("clip"), (2, 0, 1)):
                    np.testing.assert_array_equal(got, waves[i][:, 0])
                assert list(clips.column("label")) == [1, 1, 0]
        rows = datasets.Dataset.from_dict({"label": [1, 0, 1]})

        def decoded(batch):
            return {
                "clip": [
                    {"array": waves[i][:, 0], "sampling_rate": 16000}
                    for i in range(len(batch["label"]))
                ],
                **batch,
            }

        one = rows.select([0]).with_transform(decoded)
        with client.push_dataset("decoded", one) as clips:
            (got,) = clips.column("clip")
            np.testing.assert_array_equal(got, waves[0][:, 0])
        table = _audio(files[:1] * 3).data.table
        with client.push_dataset("table", table) as clips:
            np.testing.assert_array_equal(
                clips.column("clip")[2], waves[0][:, 0]
            )

    def test_hugging_face_audio_keeps_channels_that_its_feature_keeps(
        client, tmp_path
    ):
        waves, files = _clips(tmp_path, channels=2)
        with client.push_dataset("mean", _audio(files)) as clips:
            for got, want in zip(clips.column("clip"), waves):
                np.testing.assert_allclose(got, want.mean(1), atol=1e-7)
        with client.push_dataset("both", _audio(files, mono=False)) as clips:
            for got, want in zip(clips.column("clip"), waves):
                np.testing.assert_array_equal(got, want)

    def test_hugging_face_audio_is_not_resampled(client, tmp_path):
        _, files = _clips(tmp_path)
        (tmp_path / "slow").mkdir()
        _, slow = _clips(tmp_path / "slow", rate=8000)
        for data, words in (
            (_audio(files, sampling_rate=8000),
             "'clip', row 0 has 16000.*sampling_rate=8000.*with_transform"),
            (_audio(files[:2] + slow[2:]),
             "sample 2, field 'clip' has 8000.*first sample 16000"),
            (_audio([files[0], None, files[1]]), "'clip', row 1 is None"),
            (_audio([str(tmp_path / "no.wav")] * 3), "row 0.*No such file"),
        ):  # fmt: skip
            with pytest.raises(datasetd.errors.Error, match=words):
                client.push_dataset("wrong", data)

    def test_text_labels_of_tables(client):
        texts = [f"class {i}" for i in _LABELS]
        names = [f"class {i}" for i in range(10)]
        want = {"x": _ROWS[:, 0], "label": _LABELS}
        columns = {"x": _ROWS[:, 0], "label": pyarrow.array(texts)}
        _expect(client, pyarrow.table(columns), want, names)
        coded = {**columns, "label": columns["label"].dictionary_encode()}
        _expect(client, pyarrow.table(coded), want, names)
        hugging = datasets.Dataset(pyarrow.table(columns))
        _expect(client, hugging, want, names)
        images = datasets.Dataset.from_dict(
            {"image": [Image.fromarray(image) for image in _IMAGES[:20]],
             "label": texts[:20]}
        )
        _expect(client, images,
                {"image": _IMAGES[:20], "label": _LABELS[:20]}, names)

    def test_parquet(client, tmp_path):
        pyarrow.parquet.write_table(_table(), tmp_path / "a.parquet")
        _expect(client, sources.parquet(tmp_path / "a.parquet"), _WANT)
        _expect(
            client,
            sources.parquet(tmp_path, {"x": "fixed", "y": "label"}),
            {"x": _ROWS, "y": _LABELS},
        )

    def test_a_pyarrow_that_runs_code(tmp_path, monkeypatch):
        pyarrow.parquet.write_table(_table(), tmp_path / "a.parquet")
        monkeypatch.setattr(pyarrow, "__version__", "14.0.0")
        for read in (sources.parquet, sources.arrow):
            with pytest.raises(
                datasetd.FailedPrecondition, match="pyarrow>=14.0.1"
            ):
                read(tmp_path / "a.parquet")

    @pytest.mark.parametrize("make", ["new_file", "new_stream"])
    def test_arrow(client, tmp_path, make):
        path, table = tmp_path / "a.arrow", _table()
        with getattr(pyarrow.ipc, make)(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=77)
        _expect(client, sources.arrow(path), _WANT)
        _expect(
            client, sources.arrow(path, ["label"]), {"label": _LABELS}
        )

    def test_hugging_face_columns(client):
        names = [f"class {i}" for i in range(10)]
        features = datasets.Features(
            {
                "x": datasets.Sequence(datasets.Value("float32")),
                "label": datasets.ClassLabel(names=names),
                "mask": datasets.Array2D((8, 9), "uint8"),
            }
        )
        dataset = datasets.Dataset.from_dict(
            {"x": _ROWS.tolist(), "label": _LABELS.tolist(),
             "mask": _IMAGES[..., 0]},
            features=features,
        )
        want = {"x": _ROWS, "label": _LABELS, "mask": _IMAGES[..., :1]}
        _expect(client, dataset, want, names)
        order = _RANDOM.permutation(300)
        chosen = {name: values[order] for name, values in want.items()}
        _expect(client, dataset.select(order), chosen, names)
        _expect(client, dataset.with_format("torch"), want, names)
        _expect(
            client,
            dataset.with_format("numpy", columns=["x"]),
            {"x": _ROWS},
            names,
        )
        _expect(client, dataset, {"mask": want["mask"]}, names,
                fields=["mask"])
        doubled = dataset.with_transform(
            lambda batch: {"x": [[2 * v for v in x] for x in batch["x"]]}
        )
        _expect(client, doubled, {"x": 2 * _ROWS.astype(np.float64)}, names)
        with pytest.raises(
            datasetd.InvalidArgument, match=r"samples\['train'\]"
        ):
            client.push_dataset(
                "dict", datasets.DatasetDict({"train": dataset})
            )

    def test_hugging_face_images(client):
        dataset = datasets.Dataset.from_dict(
            {"img": [Image.fromarray(image) for image in _IMAGES[:20]],
             "label": _LABELS[:20].tolist()}
        )
        _expect(
            client, dataset, {"img": _IMAGES[:20], "label": _LABELS[:20]}
        )

    def test_hugging_face_images_as_their_feature_says(client):
        exif = Image.Exif()
        exif[0x112] = 6
        files = []
        for image in _IMAGES[:20]:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "png", exif=exif)
            files.append({"bytes": file.getvalue(), "path": None})
        for mode in (None, "L"):
            dataset = datasets.Dataset.from_dict(
                {"image": files},
                datasets.Features({"image": datasets.Image(mode=mode)}),
            )
            want = np.stack([np.asarray(row["image"]) for row in dataset])
            assert want.shape[1:3] == (9, 8)
            want = want.reshape(20, 9, 8, -1)
            _expect(client, dataset, {"image": want})

    def test_empty_pieces_of_a_table(client):
        table = _table().select(["label", "lists"])
        pieces = pyarrow.concat_tables([table[:0], table, table[:0]])
        assert pieces.column(0).num_chunks > 1
        _expect(client, pieces, {"label": _LABELS, "lists": _ROWS})

    def test_safetensors(client, tmp_path):
        import safetensors.numpy

        path = tmp_path / "a.safetensors"
        content = {"image": _IMAGES, "label": _LABELS}
        safetensors.numpy.save_file(content, path)
        _expect(client, sources.safetensors(path), content)
        _expect(
            client, sources.safetensors(path, {"y": "label"}), {"y": _LABELS}
        )

    @pytest.mark.parametrize("is_n5", [False, True])
    def test_zarr_and_n5(client, tmp_path, is_n5):
        import zarr

        path = str(tmp_path / "a")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # N5 goes with zarr 3
            store = zarr.N5Store(path) if is_n5 else path
            group = zarr.open_group(store, mode="w")
            group.array("image", _IMAGES, chunks=(70, 8, 9, 3))
            group.array("label", _LABELS)
            read = sources.n5 if is_n5 else sources.zarr
            want = {"image": _IMAGES, "label": _LABELS}
            _expect(client, read(path), want)
            _expect(client, read(path, {"y": "label"}), {"y": _LABELS})
            alone = os.path.join(path, "label")
            if not is_n5:
                _expect(client, read(alone, "y"), {"y": _LABELS})
                _expect(client, read(alone, {"y": "data"}), {"y": _LABELS})
                with pytest.raises(datasetd.InvalidArgument, match="no 'y'"):
                    read(alone, ["y"])

    @pytest.mark.parametrize(
        "read, place, key",
        [
            (sources.zarr, ".zarray", "compressor"),
            (sources.zarr, ".zarray", "filters"),
            (sources.n5, "attributes.json", "compression"),
        ],
    )
    def test_chunks_that_are_pickles(tmp_path, read, place, key):
        import zarr

        path = tmp_path / "a"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # N5 goes with zarr 3
            is_n5 = read is sources.n5
            store = zarr.N5Store(str(path)) if is_n5 else str(path)
            zarr.open_group(store, mode="w").array("x", _LABELS)
            description = path / "x" / place
            content = json.loads(description.read_text())
            codec = {"type" if is_n5 else "id": "pickle"}
            content[key] = [codec] if key == "filters" else codec
            description.write_text(json.dumps(content))
            with pytest.raises(
                datasetd.InvalidArgument, match="'x' are pickles"
            ):
                read(path)
