"""push_dataset under a name that is taken, and of samples that are drawn."""

import io
import itertools
import random
import threading
import time
import types

import datasetd
import numpy as np
import pytest
from conftest import SlowSamples
from datasetd import transforms as T
from datasetd._client import loading
from datasetd._push import push
from PIL import Image

_NUMBERS = itertools.count()
_X = np.arange(600_000, dtype=np.float32).reshape(-1, 3)
_Y = np.arange(200_000)


def _count(samples, drawn):
    class Counted:
        def __len__(self):
            return len(samples)

        def __getitem__(self, i):
            drawn.append(i)
            return samples[i]

    return Counted()


@pytest.fixture
def taken(client):
    with client.push_dataset("taken", {"x": _X, "y": _Y}) as dataset:
        yield dataset
    client.unload_dataset("taken")


def test_the_same_content_attaches(client, taken):
    with client.push_dataset("taken", {"x": _X, "y": _Y}) as again:
        assert again.spec_id == taken.spec_id
    rows = [{"x": x, "y": y} for x, y in zip(_X[:99], _Y[:99])]
    with client.push_dataset("few", rows) as few:
        with client.push_dataset("few", iter(rows)) as again:
            assert again.spec_id == few.spec_id
        columns = {"x": _X[:99], "y": _Y[:99]}
        with client.push_dataset("few", columns) as again:
            assert again.spec_id == few.spec_id


def test_the_same_device_by_other_words_attaches(client, taken):
    for device in ("cpu", "each", ["cpu"]):
        with client.push_dataset(
            "taken", {"x": _X, "y": _Y}, device=device
        ) as again:
            assert again.spec_id == taken.spec_id


def test_images_and_masks_are_compared_whole(client):
    generator = np.random.default_rng(2)
    samples = [
        (
            generator.integers(0, 256, (7, 9, 3), np.uint8),
            generator.integers(0, 9, (4, 4), np.uint8),
            i,
        )
        for i in range(60)
    ]
    arguments = {
        "fields": {"image": "auto", "target": "mask", "label": "auto"},
        "ragged": True,
    }
    with client.push_dataset("ragged", samples, **arguments) as dataset:
        with client.push_dataset("ragged", iter(samples), **arguments) as same:
            assert same.spec_id == dataset.spec_id
        samples[59][0][0, 0, 0] ^= 1
        with pytest.raises(datasetd.AlreadyExists, match="other samples"):
            client.push_dataset("ragged", samples, **arguments)


def test_other_content_is_refused_with_the_ways_out(client, taken):
    other = _Y.copy()
    other[-1] += 1
    for data, words in (
        ({"x": _X, "y": other}, "other samples"),
        ({"x": _X[1:], "y": _Y[1:]}, "200000 samples, and these are 199999"),
        ({"y": _Y, "x": _X}, "has the fields x, y, and these samples y, x"),
        ({"x": _X, "y": _Y.astype("int32")}, "'y' as array of int64 (), and "
         "these samples as array of int32 ()"),
    ):
        with pytest.raises(datasetd.AlreadyExists) as caught:
            client.push_dataset("taken", data)
        assert words in str(caught.value)
        assert "if_exists='keep'" in str(caught.value)
    with pytest.raises(datasetd.AlreadyExists, match="other class names"):
        client.push_dataset("taken", {"x": _X, "y": _Y}, class_names=["a"])
    # A refusal gives up the hold that it took, and no other.
    assert client.get_dataset("taken").num_samples == 200_000


def test_floats_are_compared_by_their_bits(client):
    torch = pytest.importorskip("torch")
    values = np.array([[0.0, np.nan, -1.5]] * 9, np.float32)
    for name, data in (
        ("f32", {"x": values}),
        ("f16", {"x": values.astype(np.float16)}),
        ("bf16", {"x": torch.from_numpy(values).to(torch.bfloat16)}),
    ):
        with client.push_dataset(name, data) as dataset:
            with client.push_dataset(name, data) as same:
                assert same.spec_id == dataset.spec_id
            data["x"][8, 0] = -0.0
            with pytest.raises(datasetd.AlreadyExists, match="other samples"):
                client.push_dataset(name, data)


def _png(value):
    file = io.BytesIO()
    Image.fromarray(value).save(file, "png")
    return file.getvalue()


_SIZES = [np.full((3 + i, 4, 3), i, np.uint8) for i in range(40)]


@pytest.mark.parametrize(
    "samples, arguments",
    [
        (_SIZES, {"ragged": True}),
        ([*map(_png, _SIZES)], {}),
        ([*map(_png, _SIZES)],
         {"pretransforms": [T.Resize((5, 6)), T.ToDtype("float32")]}),
        ([value[:3] for value in _SIZES],
         {"pretransforms": [T.CenterCrop(2)]}),
        ([*map(_png, _SIZES[:5]), b"", _png(_SIZES[5])],
         {"bad_samples": "skip"}),
        ([*map(_png, _SIZES[:5]), b"", _png(_SIZES[5])],
         {"bad_samples": "replace"}),
    ],
    ids=["ragged", "encoded", "encoded and pretransformed", "pretransformed",
         "with bad samples", "with a sample that was replaced"],
)
def test_every_kind_of_push_is_compared(client, samples, arguments):
    name = f"kind-{next(_NUMBERS)}"
    arguments["fields"] = {"image": "image"}

    def push(values):
        return client.push_dataset(
            name, [{"image": value} for value in values], **arguments)

    with push(samples) as dataset:
        with push(samples) as again:
            assert again.spec_id == dataset.spec_id
            assert again.num_bad_samples == dataset.num_bad_samples
        last = samples[-1]
        if isinstance(last, bytes):
            changed = _png(np.full((42, 4, 3), 99, np.uint8))
        else:
            changed = 255 - last
        with pytest.raises(datasetd.AlreadyExists, match="other samples"):
            push([*samples[:-1], changed])
        with pytest.raises(datasetd.AlreadyExists, match="samples, and these"):
            push(samples[:2])


def test_other_pretransforms_are_refused_before_the_samples(client):
    images = np.zeros((5, 4, 4, 3), np.uint8)
    with client.push_dataset("cropped", (images,),
                             pretransforms=[T.CenterCrop(2)]):
        for pretransforms in ((), [T.CenterCrop(3)]):
            with pytest.raises(
                datasetd.AlreadyExists, match="other pretransforms"
            ):
                client.push_dataset(
                    "cropped", (images,), pretransforms=pretransforms)


def test_what_was_loaded_is_no_push(client, dataset):
    with pytest.raises(datasetd.AlreadyExists, match="loaded from.*npy"):
        client.push_dataset(dataset.name, [1, 2])


def test_keep_takes_what_is_there_and_draws_nothing(client, taken):
    drawn = []
    with client.push_dataset(
        "taken", _count([1], drawn), if_exists="keep"
    ) as kept:
        assert kept.spec_id == taken.spec_id
    assert drawn == []
    with client.push_dataset("kept", [1, 2], if_exists="keep") as new:
        assert len(new) == 2


@pytest.mark.parametrize("wanted", ["private", "pin"])
@pytest.mark.parametrize("if_exists", ["same", "keep"])
def test_what_is_there_must_be_private_or_pinned_as_asked(
    client, taken, wanted, if_exists
):
    with pytest.raises(
        datasetd.FailedPrecondition, match=f"{wanted}: dataset 'taken' is"
    ):
        client.push_dataset(
            "taken", {"x": _X, "y": _Y}, if_exists=if_exists, **{wanted: True}
        )
    name = f"is-{wanted}-{if_exists}"
    for _ in range(2):
        client.push_dataset(name, {"x": _X[:5]}, **{wanted: True})
    states = {
        d["name"]: (d["is_private"], d["is_pinned"])
        for d in client.list_datasets()
    }
    assert states[name] == (wanted == "private", wanted == "pin")
    assert states["taken"] == (False, False)
    client.unload_dataset(name)


def test_replace_pushes_in_its_place(client):
    with client.push_dataset("old", [1, 2, 3]):
        with client.push_dataset("old", [4], if_exists="replace") as new:
            assert len(new) == 1
    assert len(client.get_dataset("old")) == 1


def test_replace_names_the_calls_that_end_loaders(client):
    with client.push_dataset("looped", [1, 2, 3]) as old:
        with datasetd.DataLoader(old, batch_size=1) as loader:
            next(iter(loader))
            with pytest.raises(
                datasetd.FailedPrecondition,
                match=r"loader.close\(\), or client.unload_dataset\('looped', "
                r"force=True\)$",
            ):
                client.push_dataset("looped", [4], if_exists="replace")
        with client.push_dataset("looped", [4], if_exists="replace") as new:
            assert len(new) == 1


def test_a_dataset_that_was_replaced_is_not_served_as_the_one_before(
    client, daemon
):
    """Its length, classes and the indices of its subsets are another's."""
    old = client.push_dataset("train", {"x": np.arange(100)})
    rest = old.select(np.arange(50, 100))
    with daemon.connect() as other:
        new = other.push_dataset(
            "train", {"x": np.arange(1000, 1060)}, if_exists="replace"
        )
        replaced = pytest.raises(
            datasetd.FailedPrecondition, match=r"call get_dataset\('train'\)"
        )
        with replaced:
            datasetd.DataLoader(old)
        with replaced:
            datasetd.DataLoader(old, reconnect=30)
        with replaced:  # the daemon finds 60 out of range
            datasetd.DataLoader(rest)
        with replaced:  # and as many weights wrong
            datasetd.DataLoader(old, weights=np.ones(100))
        for use in (
            lambda: old[0],
            lambda: old.column("x"),
            lambda: client.fetch(rest, [0]),
        ):
            with replaced:
                use()
        with pytest.raises(datasetd.OutOfRange, match="75 is out of range"):
            datasetd.DataLoader(new, subset=[75])
        assert client.get_dataset("train").column("x")[0] == 1000


def test_error_is_one_before_a_sample_is_drawn(client, taken):
    drawn = []
    with pytest.raises(datasetd.AlreadyExists, match="'taken' is there"):
        client.push_dataset("taken", _count([1], drawn), if_exists="error")
    assert drawn == []
    with pytest.raises(datasetd.InvalidArgument, match="if_exists is 'maybe'"):
        client.push_dataset("taken", [1], if_exists="maybe")


def test_who_comes_second_waits_for_the_first(client, daemon):
    slow = SlowSamples()
    results = []

    def push_first():
        with daemon.connect() as other:
            results.append(other.push_dataset("slow", slow).spec_id)

    first = threading.Thread(target=push_first)
    first.start()
    assert slow.is_begun.wait(60)

    class Opens(SlowSamples):
        """Source of the second push."""

        def __getitem__(self, i):
            return np.full(500, i)

    def push_second():
        with daemon.connect() as other:
            results.append(other.push_dataset("slow", Opens()).spec_id)

    second = threading.Thread(target=push_second)
    second.start()
    slow.go_on.set()
    first.join(60)
    second.join(60)
    assert len(results) == 2 and results[0] == results[1]


def test_get_dataset_waits_for_a_push(client, daemon, monkeypatch):
    slow = SlowSamples()

    def push():
        with daemon.connect() as other:
            pushed = other.push_dataset("awaited", slow)
            results.append(pushed.content_hash)
            is_found.wait(60)

    def pause(seconds):
        slow.go_on.set()
        time.sleep(seconds)

    results, is_found = [], threading.Event()
    monkeypatch.setattr(loading, "time", types.SimpleNamespace(sleep=pause))
    thread = threading.Thread(target=push)
    thread.start()
    assert slow.is_begun.wait(60)
    with client.get_dataset("awaited") as dataset:
        is_found.set()
        thread.join(60)
        assert len(dataset) == 5000 and dataset.fields[0].shape == (500,)
        assert [dataset.content_hash] == results
        with datasetd.DataLoader(dataset, batch_size=50) as batches:
            assert len(batches) == 100


def test_who_waited_in_vain_pushes(client, daemon, monkeypatch):
    """The push that was faster fails while the second waits for it."""
    is_begun, is_waiting = threading.Event(), threading.Event()
    errors = []

    class Failing:
        def __len__(self):
            return 5000

        def __getitem__(self, i):
            if i == 4000:
                is_begun.set()
                assert is_waiting.wait(60)
                raise RuntimeError("the disk burns")
            return np.full(500, i)

    def push_first():
        with daemon.connect() as other:
            try:
                other.push_dataset("vain", Failing())
            except RuntimeError as error:
                errors.append(str(error))

    first = threading.Thread(target=push_first)

    class Late:
        """Another push begins after the look for the name."""

        def __len__(self):
            return 100

        def __getitem__(self, i):
            if not errors and not first.ident:
                first.start()
                assert is_begun.wait(60)
            return np.full(3, i)

    class Sender(push._Sender):
        def __init__(self, handle, header):
            if header["num_samples"] == 100:
                is_waiting.set()
            super().__init__(handle, header)

    monkeypatch.setattr(push, "_Sender", Sender)
    with client.push_dataset("vain", Late()) as dataset:
        assert len(dataset) == 100
    first.join(60)
    assert errors == ["samples[4000]: the disk burns"]


def _begin(daemon, name, slow, outcomes):
    """Starts a push of `slow` as another process would, up to its pause."""

    def run():
        with daemon.connect() as other:
            try:
                other.push_dataset(name, slow)
                outcomes.append("pushed")
            except datasetd.Error as error:
                outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert slow.is_begun.wait(60)
    return thread


def _let_go_on(monkeypatch, slow):
    def sleep(seconds):
        slow.go_on.set()
        time.sleep(seconds)

    monkeypatch.setattr(push, "time", types.SimpleNamespace(sleep=sleep))


def test_replace_waits_for_a_push(client, daemon, monkeypatch):
    slow, outcomes = SlowSamples(), []
    thread = _begin(daemon, "rival", slow, outcomes)
    _let_go_on(monkeypatch, slow)
    with client.push_dataset("rival", [1, 2], if_exists="replace") as new:
        thread.join(60)
        assert outcomes == ["pushed"]
        assert len(new) == len(client.get_dataset("rival")) == 2


def test_replace_waits_for_a_push_that_was_faster(client, daemon, monkeypatch):
    """The other begins after the look for the name."""
    slow, outcomes, threads = SlowSamples(), [], []
    _let_go_on(monkeypatch, slow)

    class Sender(push._Sender):
        def __init__(self, handle, header):
            if header["num_samples"] == 2 and not threads:
                threads.append(_begin(daemon, "racing", slow, outcomes))
            super().__init__(handle, header)

    monkeypatch.setattr(push, "_Sender", Sender)
    client.push_dataset("racing", [1]).close()
    with client.push_dataset("racing", [1, 2], if_exists="replace") as new:
        threads[0].join(60)
        assert outcomes == ["pushed"]
        assert len(new) == len(client.get_dataset("racing")) == 2


def test_replace_leaves_a_push_alone_that_begins_meanwhile(
    client, daemon, monkeypatch
):
    """After the look at the dataset that it replaces."""
    slow, outcomes, threads = SlowSamples(), [], []
    _let_go_on(monkeypatch, slow)
    client.push_dataset("raced", [1]).close()
    look = push._await

    def look_first(session, name):
        monkeypatch.setattr(push, "_await", look)
        found = look(session, name)
        client.unload_dataset(name)
        threads.append(_begin(daemon, name, slow, outcomes))
        return found

    monkeypatch.setattr(push, "_await", look_first)
    with client.push_dataset("raced", [1, 2], if_exists="replace") as new:
        threads[0].join(60)
        assert outcomes == ["pushed"]
        assert len(new) == len(client.get_dataset("raced")) == 2


def test_a_push_that_is_unloaded_says_so(client, daemon):
    slow, outcomes = SlowSamples(), []
    thread = _begin(daemon, "ended-rival", slow, outcomes)
    client.unload_dataset("ended-rival")
    slow.go_on.set()
    thread.join(60)
    (error,) = outcomes
    assert isinstance(error, datasetd.Aborted)
    assert "'ended-rival': it was unloaded meanwhile" in str(error)


@pytest.mark.parametrize(
    "if_exists, num_pauses", [("same", 0), ("keep", 5), ("replace", 5)]
)
def test_a_name_that_is_taken_unseen(
    client, monkeypatch, if_exists, num_pauses
):
    """As by the private dataset of another user."""
    pauses = []

    def refuse(handle, header):
        raise datasetd.AlreadyExists("the name 'hidden' is taken")

    monkeypatch.setattr(push, "_Sender", refuse)
    monkeypatch.setattr(
        push, "time", types.SimpleNamespace(sleep=pauses.append))
    with pytest.raises(datasetd.AlreadyExists, match="'hidden' is taken"):
        client.push_dataset("hidden", [1], if_exists=if_exists)
    assert len(pauses) == num_pauses


def test_a_wrong_name_is_found_before_a_sample_is_read(client):
    drawn = []

    def samples():
        for i in range(3):
            drawn.append(i)
            yield i

    for name in ("a/b", "", "x" * 129, "-a", 3):
        with pytest.raises(datasetd.InvalidArgument, match="1 to 128 char"):
            client.push_dataset(name, samples())
    assert drawn == []


def test_samples_without_a_number_are_read_up_to_the_budget(data_root):
    with datasetd.start_local(
        device="cpu", data_roots=data_root, memory_budget_mib=64
    ) as local, local.connect() as small:
        drawn = []

        def samples():
            for i in range(100):
                drawn.append(i)
                yield np.zeros(1 << 20, np.uint8)

        with pytest.raises(datasetd.ResourceExhausted) as caught:
            small.push_dataset("endless", samples())
        assert "the first 65 samples have 68157440 bytes" in str(caught.value)
        assert "budget is 67108864" in str(caught.value)
        assert len(drawn) == 65


def test_a_name_that_is_being_pushed_is_taken_at_once(client, daemon):
    errors = []

    def push_again():
        try:
            client.push_dataset("busy", [1], if_exists="error")
        except datasetd.AlreadyExists as error:
            errors.append(str(error))

    class Slow:
        def __len__(self):
            return 5000

        def __getitem__(self, i):
            if i == 4000:
                again = threading.Thread(target=push_again, daemon=True)
                again.start()
                again.join(60)
            return np.full(500, i)

    with daemon.connect() as other:
        with other.push_dataset("busy", Slow()) as dataset:
            assert len(dataset) == 5000
            assert len(errors) == 1 and "'busy' is there" in errors[0]


def test_a_random_transform_is_refused(client):
    class Random:
        def __init__(self, noise):
            self.noise = noise

        def __len__(self):
            return 100

        def __getitem__(self, i):
            return np.full(3, i, np.float32) + self.noise()

    class Seldom(Random):
        def __init__(self, first):
            self.first = first

        def __getitem__(self, i):
            return np.float32(random.random() if i >= self.first else i)

    with pytest.raises(datasetd.InvalidArgument) as caught:
        client.push_dataset("random", Random(random.random))
    assert "samples[0] is not the same twice" in str(caught.value)
    assert "DataLoader" in str(caught.value)
    # One that draws the same at first is found out by the next samples.
    draws = iter([0.0] * 7 + [1.0] + [0.0] * 1000)
    with pytest.raises(datasetd.InvalidArgument, match=r"samples\[3\]"):
        client.push_dataset("random", Random(lambda: next(draws)))
    # One that seldom draws: found out later.
    with pytest.raises(datasetd.InvalidArgument, match=r"samples\[64\]"):
        client.push_dataset("random", Seldom(64))
    samples = Random(random.random)
    assert "(samples[i] for i in range(len(samples)))" in str(caught.value)
    with client.push_dataset(
        "random", (samples[i] for i in range(100))
    ) as dataset:
        assert len(dataset) == 100


def _palette():
    image = Image.fromarray(np.array([[0, 20], [255, 20]], np.uint8), "P")
    image.putpalette([i ^ 85 for i in range(256) for _ in range(3)])
    return image


def _pushed(client, samples, **arguments):
    with client.push_dataset(
        f"pictures-{next(_NUMBERS)}", samples, **arguments
    ) as dataset:
        batch = client.fetch(dataset, range(len(dataset)), framework="numpy")
        values = {f.name: np.array(getattr(batch, f.name))
                  for f in dataset.fields}
        return dataset.fields, values


def test_a_mask_of_a_palette_keeps_its_classes(client):
    picture = Image.fromarray(np.zeros((2, 2, 3), np.uint8))
    for kinds in (
        {"image": "image", "target": "mask"},
        ["image", "mask"],
    ):
        fields, values = _pushed(
            client, [(picture, _palette())] * 2, fields=kinds
        )
        assert fields[1].is_mask and fields[1].shape == (2, 2, 1)
        np.testing.assert_array_equal(
            values[fields[1].name][0, 0], [[0, 20], [255, 20]]
        )


def test_a_palette_of_an_image_gives_its_colours(client):
    want = np.asarray(_palette().convert("RGB")).transpose(2, 0, 1)
    for arguments in ({}, {"fields": {"picture": "image"}}):
        fields, values = _pushed(client, [_palette()] * 2, **arguments)
        assert not fields[0].is_mask
        np.testing.assert_array_equal(values[fields[0].name][0], want)


def test_a_palette_of_a_field_called_image(client):
    for kind in ("mask", "array"):
        _, values = _pushed(client, [_palette()] * 2, fields={"image": kind})
        np.testing.assert_array_equal(
            values["image"][0].squeeze(), [[0, 20], [255, 20]]
        )


def test_images_of_modes_that_no_transform_knows(client):
    colours = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    for mode in ("CMYK", "RGBX"):
        image = Image.frombytes(mode, (4, 3), colours.tobytes())
        want = np.asarray(image.convert("RGB"))
        fields, values = _pushed(client, [image] * 2)
        np.testing.assert_array_equal(
            values["image"][0], want.transpose(2, 0, 1)
        )
        _, values = _pushed(client, [image] * 2, fields={"x": "array"})
        np.testing.assert_array_equal(values["x"][0], colours)
    # These have the same shape and other colours.
    bits = Image.fromarray(np.eye(3, dtype=bool))
    grey = Image.fromarray(np.full((3, 3), 7, np.uint8))
    _, values = _pushed(client, [bits, grey])
    np.testing.assert_array_equal(values["image"][0, 0], np.eye(3) * 255)
    _, values = _pushed(client, [bits], fields={"x": "mask"})
    np.testing.assert_array_equal(values["x"][0, 0], np.eye(3))


def test_encoded_images_are_no_arrays(client):
    for ending in ("png", "jpeg", "webp", "gif", "tiff"):
        file = io.BytesIO()
        Image.new("RGB", (2, 2)).save(file, ending)
        with pytest.raises(datasetd.InvalidArgument, match="decode_image"):
            client.push_dataset(
                "encoded",
                {"image": [file.getvalue()]},
                fields={"image": "array"},
            )


def test_a_palette_of_another_field_is_refused(client):
    with pytest.raises(datasetd.InvalidArgument) as caught:
        client.push_dataset("p", [(_palette(), _palette())])
    assert "field 'field_1' of the first sample is a palette" in str(
        caught.value
    )
    assert "fields={'field_1': 'mask'} keeps its classes" in str(caught.value)


@pytest.mark.parametrize(
    "values, dtype",
    [
        (np.array([[0, 2000], [25500, 65535]], np.uint16), "int32"),
        (np.array([[0, -2000], [1 << 30, 7]], np.int32), "int32"),
        (np.array([[0, 2.857], [36.43, -1]], np.float32), "float32"),
    ],
)
def test_deep_images_are_kept_exactly(client, values, dtype):
    fields, got = _pushed(client, [Image.fromarray(values)] * 2)
    assert fields[0].dtype == dtype
    np.testing.assert_array_equal(got[fields[0].name][0].squeeze(), values)


def test_a_deep_image_that_shall_be_an_image_is_refused(client):
    deep = Image.fromarray(np.zeros((2, 2), np.uint16))
    for kind in ("image", "mask"):
        with pytest.raises(datasetd.InvalidArgument, match="cast it to uint8"):
            client.push_dataset("deep", [deep], fields={"x": kind})


def test_masks_of_arrays_and_tensors(client):
    torch = pytest.importorskip("torch")
    classes = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for data in (
        {"target": classes},
        {"target": torch.from_numpy(classes)[:, None]},
        [{"target": values} for values in classes],
    ):
        fields, got = _pushed(client, data, fields={"target": "mask"})
        assert fields[0].is_mask and fields[0].shape == (3, 4, 1)
        np.testing.assert_array_equal(got["target"][:, 0], classes)
    # Geometry samples a mask by nearest: no new class comes.
    with client.push_dataset(
        "masks", {"target": classes}, fields={"target": "mask"}
    ) as dataset:
        batch = client.fetch(
            dataset, [0, 1], framework="numpy",
            transforms={"target": [T.Resize((9, 11))]},
        )
        assert set(np.unique(batch.target)) <= set(range(24))


def test_pretransforms_of_a_mask_are_those_of_masks(client):
    image = np.full((2, 2, 3), 9, np.uint8)
    classes = np.array([[1, 2], [3, 4]], np.uint8)
    for name, kind in (("mask", "auto"), ("target", "mask")):
        both = ["image", name]
        _, values = _pushed(
            client,
            [{"image": image, name: classes}],
            fields={"image": "auto", name: kind},
            pretransforms=[T.Pad(1, fill=7, fields=both)],
        )
        assert values["image"][0, :, 0, 0].tolist() == [7, 7, 7]
        # The padding is the background.
        np.testing.assert_array_equal(
            values[name][0, 0], np.pad(classes, 1)
        )
        with pytest.raises(datasetd.InvalidArgument, match="that is a mask"):
            client.push_dataset(
                "grey", {name: classes[None]}, fields={name: kind},
                pretransforms={name: [T.AdjustBrightness(2)]},
            )


def test_grey_among_colours_says_what_helps(client):
    grey, colour = np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(datasetd.InvalidArgument) as caught:
        client.push_dataset("modes", [(colour, 1), (grey, 2)])
    assert "convert('RGB')" in str(caught.value)
    assert "ragged" not in str(caught.value)
    with pytest.raises(datasetd.InvalidArgument, match="ragged=True"):
        client.push_dataset("modes", [(colour, 1), (colour[1:], 2)])
