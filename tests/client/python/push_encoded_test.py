"""push_dataset of encoded images, which the daemon decodes."""

import io
import itertools
import struct
import zlib

import datasetd
import numpy as np
import pandas
import pytest
from datasetd import transforms as T
from datasetd._push import push as pushing
from PIL import Image, ImageOps

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(3)
_KINDS = ("jpeg", "png", "bmp")


def _name():
    # The feed of the one before may still be ending.
    return f"encoded-{next(_NUMBERS)}"


def _picture(height, width, mode="RGB"):
    shape = (height, width, len(mode))
    pixels = _RANDOM.integers(0, 256, shape, np.uint8)
    return Image.fromarray(pixels.squeeze(), mode)


def _file(image, kind, **arguments):
    buffer = io.BytesIO()
    image.save(buffer, kind, **arguments)
    return buffer.getvalue()


_FILES = [
    _file(_picture(5 + i % 7, 4 + i % 3), _KINDS[i % 3]) for i in range(40)
]
_LABELS = [0] * 25 + [1] * 15
_COLUMNS = {"image": _FILES, "label": _LABELS}


def _write_folder(root, files, labels):
    for i, (data, label) in enumerate(zip(files, labels)):
        folder = root / f"class-{label}"
        folder.mkdir(parents=True, exist_ok=True)
        kind = "png" if data.startswith(b"\x89PNG") else "jpg"
        (folder / f"{i:03}.{kind}").write_bytes(data)


@pytest.fixture(scope="module", name="folder")
def _folder(data_root):
    root = data_root / "folder"
    _write_folder(root, _FILES, _LABELS)
    return root


def _hash(client, data, **arguments):
    with client.push_dataset(_name(), data, **arguments) as dataset:
        return dataset.content_hash


def _values(dataset, **arguments):
    values = {field.name: [] for field in dataset.fields}
    with datasetd.DataLoader(
        dataset, batch_size=1, framework="numpy", **arguments
    ) as loader:
        for batch in loader:
            for name, rows in values.items():
                rows.append(np.array(getattr(batch, name)[0]))
    return values


def test_images_are_those_of_an_image_folder(client, folder):
    with client.load_dataset(_name(), "image_folder", folder) as loaded:
        want = loaded.content_hash
        fields = loaded.fields
    with client.push_dataset(_name(), _COLUMNS) as pushed:
        assert pushed.content_hash == want
        assert pushed.fields == fields
        assert pushed.num_bad_samples == 0
    objects = np.empty(len(_FILES), object)
    objects[:] = _FILES
    structs = [{"bytes": data, "path": None} for data in _FILES]
    for images in (tuple(_FILES), objects, structs,
                   list(map(bytearray, _FILES)), list(map(memoryview, _FILES))):
        assert _hash(client, {"image": images, "label": _LABELS}) == want
    frame = pandas.DataFrame({"image": _FILES, "label": _LABELS})
    assert _hash(client, frame) == want
    samples = list(zip(_FILES, _LABELS))
    assert _hash(client, samples) == want
    assert _hash(client, iter(samples)) == want
    rows = [{"label": k, "image": data} for data, k in samples]
    assert _hash(client, rows, fields=["image", "label"]) == want


def test_pretransforms_and_options_are_those_of_an_image_folder(
    client, folder
):
    resize = [T.Resize([6, 7]), T.HorizontalFlip()]
    for options, pretransforms in (
        ({}, resize),
        ({"channels": 1}, []),
        ({"channels": 4}, resize),
        ({"fast_decode": True}, resize),
    ):
        with client.load_dataset(
            _name(), "image_folder", folder, options=options,
            pretransforms=pretransforms,
        ) as loaded:
            assert loaded.content_hash == _hash(
                client, _COLUMNS, options=options, pretransforms=pretransforms)


def test_exif_turns_an_image(client):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = _picture(4, 9)
    data = [_file(image, "jpeg", exif=exif)]
    for options, shape in (({}, (4, 9, 3)), ({"apply_exif": True}, (9, 4, 3))):
        with client.push_dataset(
            _name(), {"image": data}, options=options
        ) as dataset:
            assert dataset.fields[0].shape == shape


def test_other_columns_go_along(client):
    masks = [_picture(*Image.open(io.BytesIO(data)).size[::-1], mode="L")
             for data in _FILES]
    floats = _RANDOM.standard_normal((len(_FILES), 2, 3)).astype(np.float32)
    data = {
        "x": floats,
        "image": _FILES,
        "label": np.array(_LABELS, np.int16),
        "mask": [_file(mask, "png") for mask in masks],
    }
    with client.push_dataset(_name(), data) as dataset:
        kinds = [(f.name, f.dtype, f.is_image, f.is_mask)
                 for f in dataset.fields]
        assert kinds == [
            ("x", "float32", False, False), ("image", "uint8", True, False),
            ("label", "int16", False, False), ("mask", "uint8", True, True)]
        values = _values(dataset, transforms=[
            T.Crop(0, 0, 4, 4, fields=["image", "mask"])])
    np.testing.assert_array_equal(values["x"], floats)
    np.testing.assert_array_equal(values["label"], _LABELS)
    for i, data in enumerate(_FILES):
        image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(
            values["image"][i], image[:4, :4].transpose(2, 0, 1))
        np.testing.assert_array_equal(
            values["mask"][i][0], np.asarray(masks[i])[:4, :4])


def test_many_and_large_images_cross_blocks(client):
    images = [_picture(700, 900) for _ in range(3)] + [
        _picture(3, 3) for _ in range(3000)
    ]
    files = [_file(image, "png", compress_level=0) for image in images]
    with client.push_dataset(_name(), {"image": files}) as dataset:
        values = _values(dataset, transforms=[T.Crop(0, 0, 3, 3)])["image"]
    for value, image in zip(values, images):
        np.testing.assert_array_equal(
            value, np.asarray(image)[:3, :3].transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["webp", "gif", "tiff"])
def test_what_pillow_alone_reads_is_decoded_by_it(client, kind):
    files = [_file(_picture(5, 6), kind), _file(_picture(5, 6), "jpeg"),
             _file(_picture(5, 6), kind)]
    with client.push_dataset(_name(), {"image": files}) as dataset:
        values = _values(dataset)["image"]
    for value, data in zip(values, files):
        image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(value, image.transpose(2, 0, 1))


@pytest.mark.parametrize("turned", [1, 6])
@pytest.mark.parametrize("kind", ["png", "tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_upper_bits_of_deep_images_are_taken(client, kind, channels,
                                                 turned):
    values = _RANDOM.integers(0, 1 << 16, (5, 6)).astype(np.uint16)
    want = (values >> 8).astype(np.uint8)
    exif = Image.Exif()
    if turned == 6:
        exif[0x112] = 6
        want = np.rot90(want, -1)
    file = _file(Image.fromarray(values), kind, exif=exif)
    options = {"channels": channels, "apply_exif": True}
    for data in ({"image": [file] * 2}, [{"image": file}] * 2):
        name = _name()
        with client.push_dataset(name, data, options=options) as dataset:
            for value in _values(dataset)["image"]:
                np.testing.assert_array_equal(value, [want] * channels)
            with client.push_dataset(name, data, options=options) as again:
                assert again.spec_id == dataset.spec_id


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_wider_values_are_a_bad_sample(client, dtype):
    wide = _file(Image.fromarray(np.ones((5, 6), dtype)), "tiff")
    files = [_FILES[0], wide, _FILES[1]]
    with client.push_dataset(
        _name(), {"image": files}, bad_samples="skip"
    ) as dataset:
        assert [bad.index for bad in dataset.bad_samples] == [1]
    mode = "F" if dtype == np.float32 else "I"
    with pytest.raises(datasetd.InvalidArgument, match=f"mode {mode} does not"):
        datasetd.sources.decode_image(wide)
    kept = datasetd.sources.decode_image(wide, None)
    assert np.asarray(kept).dtype == dtype


@pytest.mark.parametrize("kind", ["jpeg", "webp", "tiff"])
def test_images_are_turned_as_exif_says(client, kind):
    exif = Image.Exif()
    exif[0x112] = 6
    files = [_file(_picture(5, 6), kind, exif=exif) for _ in range(2)]
    with client.push_dataset(
        _name(), {"image": files}, options={"apply_exif": True}
    ) as dataset:
        values = _values(dataset)["image"]
    for value, data in zip(values, files):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        if kind != "tiff":  # which Pillow turns itself
            image = ImageOps.exif_transpose(image)
        image = np.asarray(image)
        assert image.shape == (6, 5, 3)
        np.testing.assert_array_equal(value, image.transpose(2, 0, 1))


def test_bad_samples_are_those_of_an_image_folder(client, data_root):
    files = list(_FILES)
    files[4] = b""
    files[9] = files[9][: len(files[9]) // 2]
    files[39] = b"\xff\xd8\xff no image"
    root = data_root / "spoilt"
    _write_folder(root, files, _LABELS)
    data = {"image": files, "label": _LABELS}
    for policy in ("skip", "replace"):
        with client.load_dataset(
            _name(), "image_folder", root, bad_samples=policy
        ) as loaded, client.push_dataset(
            _name(), data, bad_samples=policy
        ) as pushed:
            assert pushed.content_hash == loaded.content_hash
            assert pushed.num_bad_samples == loaded.num_bad_samples == 3
            assert [(bad.index, bad.reason) for bad in pushed.bad_samples] == [
                (bad.index, bad.reason) for bad in loaded.bad_samples]
            assert [bad.path for bad in pushed.bad_samples] == [
                "sample 4", "sample 9", "sample 39"]
    with pytest.raises(datasetd.InvalidArgument) as caught:
        client.push_dataset(_name(), data)
    assert "sample 4: empty; set bad_samples to skip or replace" in str(
        caught.value)
    with pytest.raises(datasetd.Error, match="max_bad_samples is 2"):
        client.push_dataset(
            _name(), data, bad_samples="skip", max_bad_samples=2)
    with pytest.raises(datasetd.InvalidArgument, match="'ignore'"):
        client.push_dataset(_name(), data, bad_samples="ignore")
    with pytest.raises(datasetd.Error) as caught:
        client.push_dataset(
            _name(), {"image": [files[39]] * 3}, bad_samples="skip")
    assert "none of the first 3 samples can be decoded" in str(caught.value)


def test_a_second_push_is_compared(client):
    squares = [_file(_picture(4, 4), "png") for _ in range(70)]
    name = _name()
    data = {"image": squares, "label": list(range(70))}
    with client.push_dataset(name, data):
        for same in (data, zip(squares, range(70))):
            with client.push_dataset(name, same) as again:
                assert len(again) == 70
        other = [*squares[:69], _file(_picture(4, 4), "png")]
        with pytest.raises(datasetd.AlreadyExists, match="other samples"):
            client.push_dataset(
                name, {"image": other, "label": list(range(70))})
        with pytest.raises(datasetd.DataLoss, match="sample 69"):
            client.push_dataset(
                name, {"image": squares[:69] + [b"\xff\xd8\xff"],
                       "label": list(range(70))})
        with client.push_dataset(
            name, {"image": other}, if_exists="keep"
        ) as kept:
            assert len(kept) == 70


def test_a_part_and_its_progress(client):
    seen = []
    with client.push_dataset(
        _name(), _COLUMNS, part=(1, 2), progress=seen.append
    ) as dataset:
        assert len(dataset) == 20
        assert _hash(
            client, {"image": _FILES[20:], "label": _LABELS[20:]}
        ) == dataset.content_hash
    assert seen[-1]["progress"]["num_samples_loaded"] == 20
    assert seen[-1]["progress"]["loaded_bytes"] > sum(map(len, _FILES[20:]))


def test_what_cannot_be_pushed(client):
    def refused(data, match, **arguments):
        with pytest.raises(datasetd.InvalidArgument, match=match):
            client.push_dataset(_name(), data, **arguments)

    refused({"x": [b"hello"]}, "leave it out of a dict with fields=")
    refused(_COLUMNS, "decode_image", fields={"image": "array"})
    refused({"image": [_FILES[0], 7]}, "row 1 is int, and the first")
    refused([_FILES[0], None], "sample 1, field 'image' is NoneType")
    refused(_COLUMNS, "no 'quality'; it has apply_exif", options={"quality": 1})
    refused(_COLUMNS, "channels is '2'", options={"channels": 2})
    refused(_COLUMNS, "max_pixels is '0'", options={"max_pixels": 0})
    refused({"x": [1]}, "no field is one", options={"channels": 1})
    palette = _file(_picture(4, 4).quantize(9), "png")
    refused({"mask": [_FILES[1]]}, "an encoded mask, but not a PNG with one")
    refused({"image": [palette]}, "a kind that the daemon would convert",
            options={"channels": "as_is"})
    refused(_COLUMNS, "no field 'other'",
            pretransforms={"other": [T.HorizontalFlip()]})
    refused(_COLUMNS, "a random op", pretransforms=[T.RandomHorizontalFlip()])
    grey = _file(_picture(4, 4, "L"), "png")
    refused({"image": [_FILES[1], grey]}, "sample 1: 1 channels",
            options={"channels": "as_is"})
    raws = [_picture(3, 4), _picture(4, 3)]
    refused([{"a": r, "image": d} for r, d in zip(raws, _FILES)],
            "encode this one, too, as PNG", ragged=True)


def _png(pixels, bits, colour):
    """A PNG file of rows of packed samples."""

    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    shifts = np.arange(bits)[::-1]
    rows = [
        b"\0" + np.packbits((row[:, None] >> shifts) & 1).tobytes()
        for row in pixels
    ]
    palette = chunk(b"PLTE", bytes(range(48))) if colour == 3 else b""
    return b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), palette,
        chunk(b"IDAT", zlib.compress(b"".join(rows))), chunk(b"IEND", b"")])


_CLASSES = np.arange(16).reshape(4, 4)


@pytest.mark.parametrize(
    "other, way",
    [
        (_png(_CLASSES, 16, 0), r"value, None\)$"),
        (_file(_picture(4, 4), "png"), r"value, None\)$"),
        (_file(_picture(4, 4, "L"), "jpeg"), r"value, None\)$"),
        (_file(_picture(4, 4, "L"), "tiff"), r"value, None\)$"),
    ],
    ids=["16 bits", "RGB", "JPEG", "TIFF"],
)
def test_a_mask_whose_classes_would_not_be_kept(client, other, way):
    fields = {"codes": "mask"}
    mask = _png(_CLASSES, 8, 0)
    first = f"field 'codes' of the first sample is an encoded mask.*{way}"
    for masks, match in (
        ([other, mask], first),
        ([*[mask] * 70, other],
         f"column 'codes', row 70 is an encoded mask.*{way}"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=match):
            client.push_dataset(_name(), {"codes": masks}, fields=fields)
    for masks, match in (
        ([other, mask], first),
        ([mask, other], f"sample 1, field 'codes' is an encoded mask.*{way}"),
    ):
        rows = [{"codes": data} for data in masks]
        for samples in (rows, iter(rows)):
            with pytest.raises(datasetd.InvalidArgument, match=match):
                client.push_dataset(_name(), samples, fields=fields)


@pytest.mark.parametrize(
    "bits, colour", [(8, 3), (4, 3), (1, 3), (8, 0), (4, 0), (2, 0), (1, 0)]
)
def test_a_mask_has_the_values_in_its_file(client, bits, colour):
    classes = _CLASSES % 2**bits
    mask = _png(classes, bits, colour)
    name = _name()
    for data in ({"mask": [mask] * 3}, [{"mask": mask}] * 3):
        # The second one attaches: what is compared are these values.
        with client.push_dataset(name, data) as dataset:
            assert dataset.fields[0].is_mask
            for value in _values(dataset)["mask"]:
                np.testing.assert_array_equal(value[0], classes)
            other = {"mask": [mask] * 2 + [_png(np.roll(classes, 1, 1), bits, colour)]}
            with pytest.raises(datasetd.AlreadyExists, match="other samples"):
                client.push_dataset(name, other)


def test_a_damaged_mask_is_a_bad_sample(client):
    mask = _png(_CLASSES, 8, 0)
    masks = [mask, b"", mask[:20], mask[:12] + mask[:20], mask[:60], mask]
    for data in ({"mask": masks}, [{"mask": mask} for mask in masks]):
        with client.push_dataset(
            _name(), data, bad_samples="skip"
        ) as dataset:
            assert [bad.index for bad in dataset.bad_samples] == [1, 2, 3, 4]
            for value in _values(dataset)["mask"]:
                np.testing.assert_array_equal(value[0], _CLASSES)


def _header(num_samples, **field):
    image = {"name": "image", "dtype": "DTYPE_UINT8", "shape": [-1, -1, 3],
             "is_image": True, "is_encoded": True}
    return {"name": _name(), "num_samples": num_samples,
            "fields": [{**image, **field},
                       {"name": "label", "dtype": "DTYPE_UINT8", "shape": []}]}


def _send(client, header, stream):
    with client._session.connection().used() as handle:
        sender = pushing._Sender(handle, header)
        try:
            sender.write_block(stream)
            return sender.finish()
        finally:
            sender.close()


def test_a_stream_that_is_not_what_the_header_says(client):
    png = _file(_picture(4, 4), "png")
    sample = struct.pack("<I", len(png)) + png + b"\7"
    assert _send(client, _header(2), sample * 2)["num_samples"] == "2"
    one = _send(client, _header(2, shape=[4, 4, 3]), sample * 2)
    assert one["fields"][0]["shape"] == ["4", "4", "3"]
    for header, stream, match in (
        (_header(3), sample * 2, "ended after 2 of 3"),
        (_header(1), sample * 2, "more was sent than the 1"),
        (_header(2), sample + sample[:-1], "ended after 1 of 2"),
        (_header(1), b"", "ended after 0 of 1"),
        (_header(1), b"\xff\xff\xff\x7fx", "its file has 2147483647 bytes"),
        (_header(1), bytes(5), "sample 0: empty"),
        (_header(1, shape=[4, 5, 3]), sample, "the push declares 4x5"),
        (_header(1, shape=[-1, -1, 2]), b"", "C of 1, 3 or 4"),
        (_header(1, shape=[-1, 4, 3]), b"", "every extent is at least 1"),
        (_header(1, dtype="DTYPE_FLOAT32"), b"", "an image of uint8"),
        (_header(1, num_pixels=16), b"", "leave them out"),
        (_header(1, is_encoded=False), b"", "largest is 0 x 0"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=match):
            _send(client, header, stream)
    assert all(not d["name"].startswith("encoded-")
               or d["state"] != "DATASET_STATE_LOADING"
               for d in client.list_datasets())


def test_a_stream_that_is_compared_and_is_not_what_the_header_says(client):
    png = _file(_picture(4, 4), "png")
    sample = struct.pack("<I", len(png)) + png + b"\7"
    name = _name()
    header = {**_header(2), "name": name, "accepts_same": True}
    plain = {"name": _name(), "num_samples": 3, "accepts_same": True,
             "fields": [{"name": "x", "dtype": "DTYPE_INT32", "shape": [2]}]}
    made = [_send(client, header, sample * 2), _send(client, plain, bytes(24))]
    for sent, stream, match in (
        (header, sample, "ended after 1 of 2"),
        (header, sample * 3, "more was sent than the 2"),
        (header, b"\xff\xff\xff\x7fx", "its file has 2147483647 bytes"),
        (plain, bytes(23), "ended after 2 of 3"),
        (plain, bytes(25), "more was sent than the 3"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=match):
            _send(client, sent, stream)
    # What is there stays as it was.
    assert _send(client, header, sample * 2)["spec_id"] == made[0]["spec_id"]
    assert _send(client, plain, bytes(24))["spec_id"] == made[1]["spec_id"]


def test_samples_by_field_that_are_not_what_the_header_says(client):
    header = {"name": _name(), "num_samples": 3, "accepts_same": True,
              "fields": [{"name": "x", "dtype": "DTYPE_INT32", "shape": [2]}]}
    rows = np.arange(6, dtype=np.int32).reshape(3, 2)

    def send(*blocks):
        with client._session.connection().used() as handle:
            sender = pushing._Sender(handle, header)
            try:
                for arrays in blocks:
                    sender.write_rows(arrays)
                return sender.finish()
            finally:
                sender.close()

    made = send([rows[:1]], [rows[1:]])
    for blocks, match in (
        ([[rows, rows]], "3 samples of 2 fields, expected 0 or more of 1"),
        ([[rows], [rows[:1]]], "more was sent than the 3"),
        ([[rows[:2]]], "ended after 2 of 3"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=match):
            send(*blocks)
    assert send([rows])["spec_id"] == made["spec_id"]
