"""push_dataset of columns: what they may be, and that they come whole."""

import collections
import decimal
import itertools
import types

import datasetd
import h5py
import numpy as np
import pytest
import torch
from datasetd import transforms as T

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(11)
_IMAGES = _RANDOM.integers(0, 256, (1003, 6, 5, 3), np.uint8)
_ROWS = _RANDOM.standard_normal((1003, 16)).astype(np.float32)
_LABELS = _RANDOM.integers(0, 10, 1003)


def _expect(client, data, want, **arguments):
    """Pushes `data`; the dataset has these fields and bits."""
    # A name of its own: the feed of the one before may still be ending.
    name = f"columns-{next(_NUMBERS)}"
    with client.push_dataset(name, data, **arguments) as dataset:
        assert {field.name: field.dtype for field in dataset.fields} == {
            field: values.dtype.name for field, values in want.items()
        }
        got = {field: [] for field in want}
        with datasetd.DataLoader(
            dataset, batch_size=min(100, len(dataset)), framework="numpy"
        ) as loader:
            for batch in loader:
                for field in dataset.fields:
                    values = np.array(getattr(batch, field.name))
                    if field.is_image:
                        values = np.moveaxis(values, 1, -1)
                    got[field.name].append(values)
        for field, values in want.items():
            np.testing.assert_array_equal(
                np.concatenate(got[field]), values, err_msg=field
            )
        return dataset.fields


def test_a_dict_of_arrays(client):
    want = {"x": _ROWS, "label": _LABELS, "image": _IMAGES}
    fields = _expect(client, want, want)
    assert [field.is_image for field in fields] == [False, False, True]


def test_tuples_tensor_datasets_and_one_array(client):
    pair = {"image": _IMAGES, "label": _LABELS}
    _expect(client, (_IMAGES, _LABELS), pair)
    _expect(client, (_IMAGES, _LABELS.tolist()), pair)
    want = {"field_0": np.array([[1, 2], [3, 4]]), "label": _LABELS[:2]}
    _expect(client, ([[1, 2], [3, 4]], _LABELS[:2]), want)
    chw = torch.from_numpy(_IMAGES).permute(0, 3, 1, 2)
    tensors = torch.utils.data.TensorDataset(chw, torch.from_numpy(_LABELS))
    _expect(client, tensors, pair)
    _expect(client, chw, {"image": _IMAGES})
    named = collections.namedtuple("Set", ["x", "y"])(_ROWS, _LABELS)
    _expect(client, named, {"x": _ROWS, "y": _LABELS})
    _expect(client, _ROWS, {"data": _ROWS})
    _expect(client, (_ROWS, _LABELS), {"a": _ROWS, "b": _LABELS},
            fields=["a", "b"])


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64",
              "float16", "float32", "float64", "bool", ">i4", ">u2", ">f8"],
)
def test_every_dtype(client, dtype):
    values = _RANDOM.integers(0, 1 << 32, (517, 3)).astype(dtype)
    want = values.astype("uint8" if dtype == "bool" else
                         values.dtype.newbyteorder("="))
    _expect(client, {"a": values, "b": values[:, 0]},
            {"a": want, "b": want[:, 0]})


def test_dtypes_that_torch_lacks(client):
    values = _RANDOM.integers(0, 1 << 16, (60, 3)).astype(np.uint16)
    signed = torch.arange(-60, 120, dtype=torch.int8).reshape(60, 3)
    data = {"depth": values, "signed": signed, "label": values[:, 0]}
    with client.push_dataset("torch-lacks", data) as dataset:
        as_int64 = {"depth": [T.ToDtype("int64")]}
        with datasetd.DataLoader(
            dataset, batch_size=60, transforms=as_int64, framework="torch"
        ) as loader:
            (batch,) = loader
            assert batch.depth.dtype == batch.label.dtype == torch.int64
            np.testing.assert_array_equal(batch.depth.numpy(), values)
            np.testing.assert_array_equal(batch.label.numpy(), values[:, 0])
            assert torch.equal(batch.signed, signed)
        if not hasattr(torch, "uint16"):
            with pytest.raises(
                datasetd.InvalidArgument,
                match=r"'depth' is uint16, which torch.*ToDtype\('int64'\)",
            ):
                datasetd.DataLoader(dataset, batch_size=60, framework="torch")


def test_bfloat16_keeps_its_bits(client):
    values = torch.arange(700, dtype=torch.float32).reshape(-1, 7)
    data = {"x": values.to(torch.bfloat16), "y": values}
    with client.push_dataset("bf", data) as dataset:
        assert dataset.fields[0].dtype == "bfloat16"
        batch = client.fetch(dataset, [0, 99], framework="torch")
        assert torch.equal(batch.x, data["x"][[0, 99]])


def test_lists_of_numbers(client):
    _expect(
        client,
        {"a": list(range(50)), "b": [i / 2 for i in range(50)],
         "c": [[1, 2]] * 50},
        {"a": np.arange(50), "b": np.arange(50) / 2,
         "c": np.full((50, 2), [1, 2])},
    )


def test_arrays_that_are_not_contiguous(client):
    _expect(client, {"x": _ROWS[::-2, ::3], "y": _LABELS[::-2]},
            {"x": _ROWS[::-2, ::3], "y": _LABELS[::-2]})


def test_dicts_of_objects_are_samples(client):
    _expect(
        client,
        {"image": list(_IMAGES[:9]), "label": list(range(9))},
        {"image": _IMAGES[:9], "label": np.arange(9)},
    )


class Lazy:
    """An array that is elsewhere; remembers what was read of it."""

    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.reads = []

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        self.reads.append((rows.start, rows.stop))
        return self.array[rows]


def test_what_is_not_in_memory_is_read_once_in_order(client):
    big = Lazy(_RANDOM.integers(0, 99, (300_000, 16)).astype(np.int32))
    _expect(client, {"x": big, "y": np.arange(300_000)},
            {"x": big.array, "y": np.arange(300_000)})
    assert big.reads[0][0] == 0 and big.reads[-1][1] == len(big)
    assert [end for _, end in big.reads[:-1]] == [
        begin for begin, _ in big.reads[1:]
    ]
    # Pieces of about 4 MiB: none by sample, and not all at once.
    assert len(big.reads) == 5


def test_an_array_without_len(client):
    """As those of zarr 3."""

    class Unsized:
        def __init__(self, array):
            self.array = array
            self.shape, self.dtype = array.shape, array.dtype

        def __getitem__(self, rows):
            return self.array[rows]

    x = Unsized(np.arange(12.0).reshape(4, 3))
    _expect(client, {"x": x, "y": np.arange(4)},
            {"x": x.array, "y": np.arange(4)})
    with pytest.raises(datasetd.InvalidArgument, match="'x' has 4, 'y' has 1"):
        client.push_dataset("wrong", {"x": x, "y": ["a"]})


def test_a_memmap_is_sent_from_where_it_is(client, tmp_path):
    path = tmp_path / "big.npy"
    np.save(path, _IMAGES)
    mapped = np.load(path, mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    _expect(client, {"image": mapped}, {"image": _IMAGES})
    _expect(client, {"image": mapped, "label": _LABELS},
            {"image": _IMAGES, "label": _LABELS})


def test_chunks_of_a_file_are_read_whole(client, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        column = file.create_dataset(
            "x", data=_IMAGES, chunks=(400, 6, 5, 3), compression="gzip"
        )
        _expect(client, {"image": column}, {"image": _IMAGES})


def test_samples_larger_than_a_block(client):
    big = np.arange(3 * 1000 * 1001, dtype=np.int32).reshape(3, -1)
    _expect(client, {"x": big, "y": big}, {"x": big, "y": big})


def test_a_dataset_of_torch_with_its_own_items(client):
    class Doubled(torch.utils.data.TensorDataset):
        def __getitem__(self, index):
            rows, label = super().__getitem__(index)
            return 2 * rows, label

    tensors = torch.from_numpy(_ROWS), torch.from_numpy(_LABELS)
    want = {"field_0": 2 * _ROWS, "label": _LABELS}
    _expect(client, Doubled(*tensors), want)
    with client.push_dataset("part", {"x": _ROWS}) as part:

        class Concatenated(torch.utils.data.ConcatDataset):
            def __getitem__(self, index):
                return super().__getitem__(index).x * 2

        _expect(client, Concatenated([part]), {"data": 2 * _ROWS})


_NUMBERS_OF_PYTHON = [
    ([16777217, 2**63 - 1, -(2**63)], "int64"),
    ([16777217.0, 1e300, 0.1], "float64"),
    ([16777217, 0.1, True], "float64"),
    ([True, False, 2**40], "int64"),
    ([True, False, True], "uint8"),
    ([np.float64(1e300), 2.5, 3], "float64"),
    ([np.float32(0.1), np.float32(3)], "float32"),
    ([[16777217, 3], [0.1, 2**53]], "float64"),
]


@pytest.mark.parametrize("numbers, dtype", _NUMBERS_OF_PYTHON)
def test_numbers_of_python_stay_as_they_are(client, numbers, dtype):
    want = np.array(numbers, dtype)
    assert want.tolist() == numbers
    _expect(client, {"x": numbers}, {"x": want})
    if len({type(n) for n in numbers} - {list}) == 1:
        _expect(client, [{"x": number} for number in numbers], {"x": want})


@pytest.mark.parametrize(
    "numbers, words",
    [
        ([0.5, 2**53 + 1], "'x'.*: 9007199254740993 is among floats.*a separate field"),
        ([2**53 + 1, 0.5], "'x'.*: 9007199254740993 is among floats"),
        ([[2**53 + 1, 0.5]], "'x'.*: 9007199254740993 is among floats"),
        ([2**63], "'x'.*(not a 64-bit integer|cast it to int64)"),
        ([0.5, 10**400], "'x'.*0 is not a 64-bit integer"),
        ([decimal.Decimal("0.1")] * 2, r"'x'.*float\(value\)"),
        ([1, None], "'x'.*(such as None|dtype object)"),
        ([1, "2"], "'x'.*not a number"),
        ([[1], [2, 3]], "'x'.*pad them to one length"),
    ],
)
def test_numbers_of_python_that_no_dtype_holds(client, numbers, words):
    for data in ({"x": numbers}, [{"x": numbers}]):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            client.push_dataset(f"columns-{next(_NUMBERS)}", data)


def test_frames_beside_arrays_are_columns(client):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_ROWS)
    labels = pandas.Series(_LABELS)
    want = {"field_0": _ROWS, "label": _LABELS}
    _expect(client, (frame, labels), want)
    _expect(client, (frame, _LABELS), want)
    frame["text"] = "t"
    with pytest.raises(datasetd.InvalidArgument, match="'text'.*cat.codes"):
        client.push_dataset("frame", (frame, labels))


def test_nullable_columns_of_frames(client):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "a": pandas.array(_LABELS, "Int64"),
            "b": pandas.array(_ROWS[:, 0], "Float32"),
            "c": pandas.array(_LABELS > 4, "boolean"),
        }
    )
    want = {"a": _LABELS, "b": _ROWS[:, 0], "c": (_LABELS > 4).view(np.uint8)}
    _expect(client, frame, want)
    frame.loc[3, "a"] = pandas.NA
    with pytest.raises(
        datasetd.InvalidArgument, match="'a' has missing values.*fillna"
    ):
        client.push_dataset("frame", frame)
    _expect(client, frame, {"b": _ROWS[:, 0]}, fields=["b"])


def test_columns_of_frames_are_read_by_position(client):
    """Whatever their index: as after sample(), sort_values() or a mask."""
    pandas = pytest.importorskip("pandas")
    images = [np.full((4, 4, 3), i, np.uint8) for i in range(3)]
    frame = pandas.DataFrame({"image": images, "label": [0, 1, 2]})
    image, label = np.stack(images), np.arange(3)
    for index in ([2, 0, 1], [5, 9, 7], [2.0, 1.0, 0.0]):
        frame.index = index
        data = {"image": frame["image"], "label": frame["label"]}
        _expect(client, data, {"image": image, "label": label})
        _expect(client, frame["image"], {"image": image})
        _expect(client, frame["label"], {"label": label})
        _expect(client, frame["label"].astype("Int64"), {"label": label})


def test_frames(client):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": _ROWS[:, 0], "b": _LABELS})
    _expect(client, frame, {"a": _ROWS[:, 0], "b": _LABELS})
    frame["text"] = "t"
    with pytest.raises(datasetd.InvalidArgument, match="'text'.*cat.codes"):
        client.push_dataset("frame", frame)
    _expect(client, frame, {"b": _LABELS}, fields=["b"])
    for twice in (["a", "b", "a"], [1, "b", "1"]):
        frame.columns = twice
        with pytest.raises(
            datasetd.InvalidArgument,
            match=f"DataFrame has 2 columns called '{twice[0]}'",
        ):
            client.push_dataset("frame", frame)
        _expect(client, frame, {"b": _LABELS}, fields=["b"])
        with pytest.raises(datasetd.InvalidArgument, match=f"columns '{twice[2]}'"):
            client.push_dataset("frame", (frame, _LABELS))
    with pytest.raises(datasetd.InvalidArgument, match="at most 64 fields"):
        client.push_dataset("frame", pandas.DataFrame(np.zeros((2, 65))))


def test_masked_arrays(client):
    masked = np.ma.masked_array(_ROWS, np.zeros(_ROWS.shape, bool))
    data = {"x": masked, "y": Lazy(masked)}
    _expect(client, data, {"x": _ROWS, "y": _ROWS})
    masked[-1, -1] = np.ma.masked
    for data, where in (
        ({"x": masked}, "column 'x'"),
        ({"x": Lazy(masked)}, "column 'x'"),
        ((masked, _LABELS), "column 0"),
        (list(masked), "sample 1002, field 'data'"),
    ):
        with pytest.raises(
            datasetd.InvalidArgument, match=f"{where} has masked.*filled"
        ):
            client.push_dataset(f"columns-{next(_NUMBERS)}", data)


def _one(series):
    return 1


def _of_package(package, name, base=dict, **members):
    return type(name, (base,), dict(members, __module__=package))


@pytest.mark.parametrize(
    "data, words",
    [
        ({"x": np.zeros(3, np.uint64)}, r"'x'.*cast it to int64.*2\*\*63"),
        ({"x": np.zeros(3, np.complex64)}, "view it as float32"),
        ({"x": np.zeros(3, "M8[s]")}, "cast it to int64"),
        ({"x": np.array(["a"])}, "not a number; leave it out with fields="),
        ({"x": np.zeros(3), "y": np.zeros(4)}, "'x' has 3, 'y' has 4"),
        ((np.zeros(3), np.zeros(4)), "tuple of arrays means columns.*3, 4"),
        ({"x": [np.zeros(2)], "y": [1, 2]}, "'x' has 1, 'y' has 2"),
        ({"x": 3}, "'x' is int: a dict contains columns"),
        ({"x": "abc"}, "'x' is str"),
        ({"x": np.array(3)}, "'x' is ndarray: a dict contains columns"),
        ({"x": torch.tensor(3)}, "'x' is Tensor: a dict contains columns"),
        ({"x": [[1], [2, 3]]}, "'x'"),
        ({"x": {"y": [1]}}, "'x' is dict: a dict contains columns"),
        ({"x": {1, 2}}, "'x' is set: a dict contains columns"),
        ({"x": [-1, 2**63]}, "'x': 9223372036854775808 is not a 64-bit integer"),
        ({"x": [[1, 2**63], [-2, 3]]}, "'x': 9223372036854775808 is not a 64-bit"),
        ({"x": [1, 2**70]}, "'x': 1180591620717411303424 is not a 64-bit integer"),
        ({"x": [[-(2**70)]]}, "'x': -1180591620717411303424 is not a 64-bit"),
        ({"x": torch.eye(3).to_sparse()},
         r"'x' of the first .*\(torch.sparse_coo\).* tensor.to_dense\(\)$"),
        ([(torch.eye(3).to_sparse(), 1)], r"value 0 of .* tensor.to_dense\(\)$"),
        ({"x": torch.quantize_per_tensor(torch.ones(3), 1, 0, torch.quint8)},
         r"'x' of the first .*torch.quint8 .* tensor.dequantize\(\)$"),
        ([{"image": np.zeros((4, 4, 3), np.uint8), "by": "cat"}],
         "'by' of the first sample is str.*; replace it by a number, such as "
         "the index of its class"),
        (
            {"x": _of_package(
                "polars.series", "Series", list, null_count=_one)([1])},
            r"'x' has missing values: fill them, e.g. column.fill_null\(0\)",
        ),
        (_of_package("polars.dataframe", "DataFrame")(a=[1]),
         r"a polars DataFrame: push its columns, frame.to_arrow\(\)"),
        (3, r"data is int: expected columns, such as \{'x': X, 'y': y\}"),
        (np.float32(3), "data is float32: expected columns"),
        (np.array(3), "data is ndarray: expected columns"),
        (torch.tensor(3), "data is Tensor: expected columns"),
        ({"x": np.zeros((0, 3))}, "no sample to push"),
        ((np.zeros((0, 3)),), "no sample to push"),
        ("data.h5", "is a path.*datasetd.sources"),
        (torch.utils.data.DataLoader([1, 2]), "loader.dataset"),
        (
            _of_package("datasets.dataset_dict", "DatasetDict")(train=[]),
            r"DatasetDict.*samples\['train'\]",
        ),
    ],
)
def test_what_cannot_be_pushed_is_named_with_the_way_out(client, data, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        client.push_dataset("wrong", data)
    assert "wrong" not in {d["name"] for d in client.list_datasets()}


def test_a_list_of_columns_is_told_from_samples(client):
    with pytest.raises(datasetd.InvalidArgument, match=r"a tuple \(X, y\)"):
        client.push_dataset("list", [np.zeros(3), np.zeros(4)])


@pytest.mark.parametrize(
    "data",
    [
        ([1, 2, 3], [4, 5, 6]),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 0]),
        (range(3), [0, 1, 0]),
    ],
)
def test_a_tuple_of_lists_may_be_both(client, data):
    with pytest.raises(
        datasetd.InvalidArgument, match=r"columns as a dict.*samples as a list"
    ):
        client.push_dataset("lists", data)


def test_a_column_that_changes_its_shape(client):
    class Liar(Lazy):
        def __getitem__(self, rows):
            values = super().__getitem__(rows)
            return values if rows.start == 0 else values[:, :1]

    liar = Liar(np.zeros((3_000_000, 2), np.float32))
    with pytest.raises(datasetd.InvalidArgument, match="'x'.*read later"):
        client.push_dataset("liar", {"x": liar})


def test_a_column_whose_pieces_differ_in_shape(client):
    class Liar(Lazy):
        def __getitem__(self, rows):
            values = super().__getitem__(rows)
            return values if rows.start == 0 else values[:, :1]

    # A block lies in two pieces of 4 MiB.
    liar = Liar(np.zeros((300_000, 3)))
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"'x' has values of shape \(1,\) and \(3,\): .*pad or cut them",
    ):
        client.push_dataset("liar", {"x": liar})


def test_progress_counts_rows(client):
    seen = []
    with client.push_dataset(
        "rows", {"x": np.zeros((100_000, 8))}, progress=seen.append
    ):
        counts = [m["progress"]["num_samples_loaded"] for m in seen]
        assert counts == sorted(counts) and counts[-1] == 100_000
        assert len(counts) == 7  # blocks of 1 MiB
        assert seen[-1]["progress"]["loaded_bytes"] == 6_400_000



def test_class_names_of_other_libraries(client):
    label = type("ClassLabel", (), {"names": ["cat", "dog"]})()
    hugging = types.SimpleNamespace(features={"label": label, "x": None})
    torchvision = types.SimpleNamespace(classes=["even", "odd"])
    subset = types.SimpleNamespace(dataset=torchvision, indices=[1])
    from datasetd._push.data import classes_of

    assert classes_of(hugging) == (["cat", "dog"], "label")
    assert classes_of(subset) == (["even", "odd"], "label")
    assert classes_of([1, 2]) == ([], "")
