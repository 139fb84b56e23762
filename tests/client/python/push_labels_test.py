"""Pushes of named classes, names of columns, and the notes that are sent."""

import itertools
import json
import types

import datasetd
import numpy as np
import pandas
import pytest
from datasetd._push import push
from PIL import Image

_NUMBERS = itertools.count()
_X = np.arange(12.0).reshape(4, 3)
_TEXTS = ["dog", "cat", "dog", "ant"]
_PHOTO = np.zeros((8, 8, 3), np.uint8)


def _name():
    return f"labels-{next(_NUMBERS)}"


@pytest.fixture
def notes(monkeypatch):
    """The notes of the last push, as they are sent."""
    sent = []

    def encode(message):
        sent[:] = [
            (note["text"], note["is_warning"])
            for note in message.get("notes", ())
        ]
        return json.dumps(message).encode()

    monkeypatch.setattr(push, "encode", encode)
    return sent


def _labels(client, data, field="label", **arguments):
    with client.push_dataset(_name(), data, **arguments) as dataset:
        assert {f.name: f.dtype for f in dataset.fields}[field] == "int64"
        return dataset.column(field).tolist(), dataset.class_names


_OF_TEXT = [
    {"x": _X, "label": _TEXTS},
    {"x": _X, "label": np.array(_TEXTS)},
    {"x": _X, "label": np.array(_TEXTS, object)},
    {"x": _X, "label": pandas.Series(_TEXTS, index=[3, 1, 2, 0])},
    pandas.DataFrame({"x": _X[:, 0], "label": _TEXTS}),
    pandas.DataFrame({"x": _X[:, 0], "label": pandas.Categorical(_TEXTS)}),
    (_X, _TEXTS),
    [{"x": x, "label": text} for x, text in zip(_X, _TEXTS)],
    [(x, text) for x, text in zip(_X, _TEXTS)],
    [(_PHOTO, text, 5) for text in _TEXTS],
    {"x": list(_X), "label": _TEXTS},  # of objects
]


@pytest.mark.parametrize("data", _OF_TEXT)
def test_text_labels_are_indices_of_sorted_names(client, data):
    names = ["ant", "cat", "dog"]
    assert _labels(client, data) == ([2, 1, 2, 0], names)
    given = ["dog", "ant", "bee", "cat"]
    assert _labels(client, data, class_names=given) == ([0, 3, 0, 1], given)
    with pytest.raises(
        datasetd.InvalidArgument,
        match="of class 'ant', which class_names does not list: 'cat', 'dog'.*"
        "ignore_other_classes=True",
    ):
        client.push_dataset(_name(), data, class_names=["cat", "dog"])
    some = _labels(
        client, data, class_names=["cat", "dog"], ignore_other_classes=True
    )
    assert some == ([1, 0, 1], ["cat", "dog"])


def test_an_iterator_of_text_labels(client, notes):
    images = [
        Image.new("RGB", (4 + i, 5)) for i in range(4)
    ]  # of several sizes
    pairs = list(zip(images, _TEXTS))
    got = _labels(client, iter(pairs), ragged=True)
    assert got == ([2, 1, 2, 0], ["ant", "cat", "dog"])
    assert notes == [
        ("the text of field 'label' became 3 classes, sorted: 'ant', 'cat', "
         "'dog'", False)
    ]
    _labels(client, iter(pairs), ragged=True, class_names=["dog", "ant"],
            ignore_other_classes=True)
    assert notes == [
        ("left out: 1 samples of classes that are not listed, 'cat'", False)
    ]


def test_the_order_of_a_categorical_column_is_kept(client):
    sizes = pandas.Categorical(
        ["big", "small", "big"], categories=["small", "big"]
    )
    frame = pandas.DataFrame({"x": [1, 2, 3], "category": sizes})
    assert _labels(client, frame, "category") == (
        [1, 0, 1], ["small", "big"])


def test_text_of_another_column_is_refused_or_asked_for(client):
    frame = pandas.DataFrame({"x": [1, 2], "by": ["me", "you"]})
    with pytest.raises(
        datasetd.InvalidArgument,
        match="columns 'by' of the DataFrame contain objects, such as 'me' in "
        "row 0.*leave them out with fields=.*'label'",
    ):
        client.push_dataset(_name(), frame)
    asked = {"x": "auto", "by": "label"}
    assert _labels(client, frame, "by", fields=asked)[0] == [0, 1]
    got = _labels(client, frame, "by", class_names=["you", "me"])
    assert got == ([1, 0], ["you", "me"])
    frame["label"] = ["a", "b"]
    with pytest.raises(
        datasetd.InvalidArgument, match="'by' and 'label' contain text"
    ):
        client.push_dataset(
            _name(), frame, fields={**asked, "label": "label"})


@pytest.mark.parametrize(
    "values, words",
    [
        (["0", "10", "2"], "row 0 is '0', a number as text.*class_names"),
        (["cat", "2.5"], "row 1 is '2.5', a number as text"),
        (["cat", None], "row 1 is None, but other rows are text"),
        (["cat", float("nan")], "row 1 is nan"),
        (["cat", 3], "row 1 is 3"),
        ([1, "?"], "'label'"),
    ],
)
@pytest.mark.parametrize("make", [dict, pandas.DataFrame])
def test_labels_that_are_partly_text(client, make, values, words):
    data = make({"x": list(range(len(values))), "label": values})
    with pytest.raises(datasetd.InvalidArgument, match=words):
        client.push_dataset(_name(), data)


class _Pairs:
    """As a torchvision dataset."""

    def __init__(self, classes, labels):
        self.classes, self.labels = classes, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return _PHOTO, self.labels[i]


def test_own_classes_become_those_that_are_given(client):
    val = _Pairs(["ant", "cow"], [0, 1, 1])
    assert _labels(client, val) == ([0, 1, 1], ["ant", "cow"])
    train = _Pairs(["ant", "bee", "cow"], [0, 1, 2])
    for names in (train.classes, train):
        got = _labels(client, val, class_names=names)
        assert got == ([0, 2, 2], train.classes)
    # Other names for the same classes.
    got = _labels(client, val, class_names=["Ameise", "Kuh"])
    assert got == ([0, 1, 1], ["Ameise", "Kuh"])
    with pytest.raises(
        datasetd.InvalidArgument,
        match="sample 1, field 'label' is of class 'cow', which class_names",
    ):
        client.push_dataset(_name(), val, class_names=["ant", "bee", "dog"])


def test_a_hugging_face_class_label_becomes_that_which_is_given():
    from datasetd._push.data import classes_of

    label = type("ClassLabel", (), {"names": ["cat", "dog"]})()
    data = types.SimpleNamespace(features={"fine": label, "x": None})
    assert classes_of(data) == (["cat", "dog"], "fine")


_ODD = {
    "sepal length (cm)": "sepal_length__cm_",
    "Unnamed: 0": "Unnamed__0",
    "a.1": "a_1",
    "a-1": "a_1_2",
    "größe": "gr__e",
    "1st": "field_1st",
    "": "field_",
    "plain": "plain",
}


@pytest.mark.parametrize("make", [dict, pandas.DataFrame])
def test_names_of_columns_that_are_no_names_of_fields(client, notes, make):
    data = make({name: [i, 7] for i, name in enumerate(_ODD)})
    with client.push_dataset(
        _name(), data, fields={name: "array" for name in _ODD}
    ) as dataset:
        assert [f.name for f in dataset.fields] == list(_ODD.values())
        for i, field in enumerate(_ODD.values()):
            assert dataset.column(field).tolist() == [i, 7]
    assert notes[0][0].startswith(
        "renamed fields, whose names have letters, digits and _: 'sepal length "
        "(cm)' is 'sepal_length__cm_', 'Unnamed: 0' is 'Unnamed__0'"
    )
    for chosen in ("a-1", "a_1_2"):
        with client.push_dataset(_name(), data, fields=[chosen]) as dataset:
            assert [f.name for f in dataset.fields] == ["a_1_2"]
            assert dataset.column("a_1_2").tolist() == [3, 7]


def test_columns_that_are_numbered(client):
    with client.push_dataset(_name(), pandas.DataFrame(_X)) as dataset:
        assert [f.name for f in dataset.fields] == [
            "field_0", "field_1", "field_2"]
    rows = [{"a b": i, 0: i + 1} for i in range(3)]
    with client.push_dataset(_name(), rows) as dataset:
        assert dataset.column("a_b").tolist() == [0, 1, 2]
        assert dataset.column("field_0").tolist() == [1, 2, 3]


def test_columns_that_are_not_sent_are_told(client, notes):
    data = {"x": _X, "y": _TEXTS, "z": _X}
    client.push_dataset(_name(), data, fields=["x"]).close()
    assert notes == [("left out: 'y', 'z'", False)]


def test_more_fields_than_a_loader_has(client, notes):
    frame = pandas.DataFrame({f"c{i}": [i] for i in range(9)})
    words = "9 fields, and a loader has at most 8: .*fields=.*(N, K)"
    with pytest.warns(UserWarning, match=words.replace("(", r"\(")
                      .replace(")", r"\)")):
        client.push_dataset(_name(), frame).close()
    assert notes[-1][1]


def test_planes_that_are_no_image(client, notes):
    planes = np.zeros((2, 3, 16, 16), np.uint8)
    words = r"'image' of \(3, 16, 16\) is an array.*'image_chw'"
    with pytest.warns(UserWarning, match=words):
        client.push_dataset(_name(), {"image": planes}).close()
    client.push_dataset(_name(), [{"x": planes[0]}] * 2).close()
    assert "fields={'x': 'image_chw'}" in notes[0][0] and not notes[0][1]
    with client.push_dataset(
        _name(), {"image": planes}, fields={"image": "image_chw"}
    ) as dataset:
        assert dataset.fields[0].shape == (16, 16, 3)
        assert notes == []


def test_an_image_of_16_bits_in_a_tuple_is_image(client):
    deep = Image.fromarray(np.full((4, 5), 999, np.uint16))
    with client.push_dataset(_name(), [(deep, 3)] * 2) as dataset:
        assert [(f.name, f.dtype) for f in dataset.fields] == [
            ("image", "int32"), ("label", "int64")]


class _Custom(Exception):
    def __init__(self, code, place):
        super().__init__(code, place)

    def __str__(self):
        return f"custom {self.args[0]}"


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (OSError("bad file"), OSError, r"samples\[2\]: bad file"),
        (FileNotFoundError(2, "No such file", "a.jpg"), FileNotFoundError,
         r"samples\[2\]: No such file: 'a.jpg'"),
        (KeyError("name"), KeyError, r"samples\[2\]: name"),
        (ValueError(), datasetd.DataLoss, r"samples\[2\]: ValueError"),
        (_Custom(3, 4), datasetd.DataLoss, r"samples\[2\]: _Custom: custom 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sample_that_raises_is_named(client, error, kind, text):
    class Samples:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            if i == 2:
                raise error
            return i

    with pytest.raises(kind, match=text) as caught:
        client.push_dataset(_name(), Samples())
    if kind is datasetd.DataLoss:
        assert caught.value.__cause__ is error
    else:
        assert caught.value is error


def test_an_iterator_that_raises_is_named(client):
    def samples():
        yield 1
        raise OSError("bad file")

    with pytest.raises(OSError, match="sample 1: bad file"):
        client.push_dataset(_name(), samples())


@pytest.mark.parametrize(
    "data",
    [
        [np.zeros(3), np.zeros(4)],
        {"x": [[1, 2], [3]]},
        [{"boxes": np.zeros((2, 4))}, {"boxes": np.zeros((3, 4))}],
    ],
)
def test_arrays_of_several_lengths(client, data):
    with pytest.raises(
        datasetd.InvalidArgument,
        match="sequences .* in T; or pad them to one length",
    ):
        client.push_dataset(_name(), data)


def test_a_transform_of_an_array_names_what_makes_an_image_of_it(client):
    from datasetd import transforms as T

    with client.push_dataset(
        _name(), {"mel": np.zeros((4, 8, 9), np.float32)}
    ) as dataset:
        with pytest.raises(
            datasetd.InvalidArgument,
            match=r"push_dataset\(fields=\{'mel': 'image'\}\).*'image_chw'",
        ):
            datasetd.DataLoader(
                dataset, 2, transforms={"mel": [T.RandomHorizontalFlip()]}
            )


def test_a_name_of_the_content(client):
    random = np.random.default_rng(0)

    def named(data, **arguments):
        with client.push_dataset(None, data, **arguments) as dataset:
            return dataset.name, dataset.content_hash

    first, second = ({"x": random.random((9, 3))} for _ in range(2))
    assert named(first)[0].startswith("push-")
    assert named(first) == named({"x": first["x"].copy()})
    assert named(first)[0] != named(second)[0]
    assert named(first)[0] != named(first, class_names=["a"])[0]
    samples = [{"x": i} for i in range(5)]
    assert named(samples) == named(iter(samples)) != named(samples[1:])
    files = [Image.new("L", (3, 4)), Image.new("L", (3, 5))]
    assert named(files, ragged=True) == named(iter(files), ragged=True)
    with pytest.raises(datasetd.InvalidArgument, match="give the dataset a name"):
        client.push_dataset(None, first, part=(0, 2))
    with client.push_dataset("same-name", first):
        with pytest.raises(
            datasetd.AlreadyExists,
            match="other samples.*drawn anew in each run.*'replace'.*name=None",
        ):
            client.push_dataset("same-name", second)


def test_class_names_that_are_not_unique(client):
    """As "crane" in ImageNet; a text has one index."""
    names = ["crane", "ant", "crane"]
    assert _labels(client, {"label": [2, 0]}, class_names=names) == (
        [2, 0], names)
    for data in ({"label": ["ant"]}, _Pairs(["ant", "crane"], [0, 1])):
        with pytest.raises(
            datasetd.InvalidArgument, match="class_names has 'crane' 2 times"
        ):
            client.push_dataset(_name(), data, class_names=names)


def test_the_parts_of_a_dataset_have_the_classes_of_all(client):
    """The second part alone has fewer."""
    texts = ["dog", "ant", "cat", "cat"]
    columns = {"x": [0, 1, 2, 3], "label": texts}
    want = [1, 1], ["ant", "cat", "dog"]
    assert _labels(client, columns, part=(1, 2)) == want
    samples = [{"x": i, "label": text} for i, text in enumerate(texts)]
    names = want[1]
    assert _labels(client, samples, part=(1, 2), class_names=names) == want
    with pytest.raises(
        datasetd.InvalidArgument, match="other classes on each node: give class"
    ):
        client.push_dataset(_name(), samples, part=(1, 2))
    some = _labels(client, columns, part=(1, 2), class_names=["ant", "cat"],
                   ignore_other_classes=True)
    assert some == ([1, 1], ["ant", "cat"])
