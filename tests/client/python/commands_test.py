"""The commands preview, explain and bench: what they are made of.

tests/client/ctl/datasetctl_test.py runs them, as users do.
"""

import argparse
import json
import os
import stat

import datasetd
import numpy as np
import pytest
from conftest import run_python
from datasetd import transforms as T
from datasetd._commands import bench, preview, transforms_text
from datasetd._commands.command_line import UsageError, table, whole
from datasetd.web._png import png
from datasetd.web._views import channels_of, levels_of
from PIL import Image

GROUND = [0xF4] * 3

# -- The sheet ----------------------------------------------------------------


def filled(height, width, *pixel):
    return np.full((height, width, len(pixel)), pixel, np.uint8)


def test_rows_stand_below_each_other_and_epochs_beside_the_original():
    originals = [filled(2, 3, 100 * row, 0, 0) for row in range(2)]
    augmented = [
        [filled(2, 3, 100 * row, epoch, 0) for epoch in (1, 2)]
        for row in range(2)
    ]
    sheet = preview.contact_sheet(originals, augmented, 1)
    # 4, the original, 16, two images with 4 after each.
    assert sheet.shape == (4 + 2 * (2 + 4), 4 + 3 + 16 + 2 * (3 + 4), 3)
    for row in range(2):
        y, red = 4 + row * 6, 100 * row
        for x, pixel in {
            4: [red, 0, 0], 6: [red, 0, 0], 7: GROUND, 22: GROUND,
            23: [red, 1, 0], 26: GROUND, 30: [red, 2, 0],
        }.items():  # fmt: skip
            assert sheet[y, x].tolist() == pixel, (row, x)
        assert (sheet[y - 1] == GROUND).all()


def test_zoom_makes_squares_of_pixels():
    image = np.array([[[10], [20]]], np.uint8)
    sheet = preview.contact_sheet([image], [], 3)
    assert sheet.shape == (4 + 3 + 4, 4 + 6 + 4, 3)
    assert (sheet[4:7, 4:7] == 10).all() and (sheet[4:7, 7:10] == 20).all()
    assert (sheet[:, 10:] == GROUND).all()


def test_alpha_lets_the_ground_through():
    sheet = preview.contact_sheet(
        [filled(1, 1, 200, 100, 0, 255)],
        [[filled(1, 1, 200, 100, 0, 0), filled(1, 1, 0, 0, 0, 128)]],
        1,
    )
    assert sheet[4, 4].tolist() == [200, 100, 0]
    assert sheet[4, 21].tolist() == GROUND
    # 244 * 127 / 255, rounded.
    assert sheet[4, 26].tolist() == [122] * 3


def test_smaller_images_stand_in_the_middle():
    sheet = preview.contact_sheet(
        [filled(5, 1, 1, 1, 1)], [[filled(1, 1, 2, 2, 2)]], 1
    )
    assert sheet[5:8, 21].tolist() == [GROUND, [2] * 3, GROUND]


def test_sheets_beyond_a_gigabyte_are_refused():
    image = filled(4, 4, 1, 1, 1)
    with pytest.raises(datasetd.ResourceExhausted) as caught:
        preview.contact_sheet([image] * 256, [[image] * 64] * 256, 64)
    assert str(caught.value) == (
        "the sheet of the preview would take 3.4 GB, of at most 1.0 GB: ask "
        "for fewer --samples or --epochs, or a smaller --zoom"
    )


def test_the_default_zoom_aims_at_96_pixels():
    sides = (32, 28, 1, 224)
    zooms = [preview.default_zoom(side, side) for side in sides]
    assert zooms == [3, 3, 96, 1]


# -- Numbers as levels --------------------------------------------------------


def to_float(scale):
    return {"to_dtype": {"dtype": "DTYPE_FLOAT32", "scale": scale}}


def levels(dtype, ops, *pixels):
    numbers = np.array([pixels], np.float32).reshape(1, len(pixels), -1)
    return levels_of(numbers, channels_of(dtype, ops)).squeeze(0).tolist()


def test_every_level_comes_back():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ops = [
        to_float(True),
        {"random_horizontal_flip": {}},
        {"normalize": {"mean": list(mean), "std": list(std)}},
    ]
    given = np.arange(256).reshape(-1, 1).repeat(3, 1)
    pixels = (given / 255 - mean) / std
    assert levels("uint8", ops, *pixels) == given.tolist()


def test_without_scale_numbers_are_levels():
    assert levels("uint8", [to_float(False)], 77) == [[77]]
    # One value for all channels.
    ops = [to_float(False), {"normalize": {"mean": [100], "std": [2]}}]
    assert levels("uint8", ops, [0, 0, -10]) == [[100, 100, 80]]


def test_resident_floats_go_from_zero_to_one():
    assert levels("float32", [], 0.2) == [[51]]
    # Only bytes are scaled.
    assert levels("float32", [to_float(True)], 1) == [[255]]


def test_what_is_outside_is_cut():
    inf = float("inf")
    cut = levels("uint8", [to_float(True)], -3, 3, inf, -inf, float("nan"))
    assert cut == [[0], [255], [255], [0], [0]]


# -- The file -----------------------------------------------------------------

PICTURE = png(np.arange(31 * 17 * 3, dtype=np.uint8).reshape(17, 31, 3))


def test_what_is_written_is_read_back(tmp_path):
    (tmp_path / "a.png").write_text("old")
    preview.save(PICTURE, str(tmp_path / "a.png"))
    with Image.open(tmp_path / "a.png") as image:
        assert (image.mode, image.size) == ("RGB", (31, 17))
        shown = np.asarray(image).reshape(-1)
    np.testing.assert_array_equal(shown, np.arange(31 * 17 * 3) % 256)
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_file_has_the_mode_that_the_umask_leaves(tmp_path):
    mask = os.umask(0o027)
    try:
        preview.save(PICTURE, str(tmp_path / "a.png"))
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.png").stat().st_mode) == 0o640


def test_a_pipe_is_written_to_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        preview.save(PICTURE, str(path))
        assert os.read(reader, 1 << 16) == PICTURE
    finally:
        os.close(reader)
    assert path.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_links_stay(tmp_path):
    """What they lead to is replaced, or made, or a device."""
    real = tmp_path / "b" / "real.png"
    real.parent.mkdir()
    real.write_text("old")
    os.link(real, tmp_path / "hard.png")
    for name, target in (
        ("replaced", "b/real.png"), ("made", "new.png"), ("null", "/dev/null")
    ):  # fmt: skip
        link = tmp_path / name
        link.symlink_to(target)
        preview.save(PICTURE, str(link))
        assert os.readlink(link) == target
    assert real.read_bytes() == (tmp_path / "new.png").read_bytes() == PICTURE
    # It was replaced, not written to.
    assert (tmp_path / "hard.png").read_text() == "old"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_errors_of_files_name_the_path(tmp_path):
    path = str(tmp_path / "missing" / "a.png")
    with pytest.raises(datasetd.NotFound, match=f"{path}: No such file"):
        preview.save(PICTURE, path)
    with pytest.raises(
        datasetd.FailedPrecondition, match=f"{tmp_path}: Is a directory"
    ):
        preview.save(PICTURE, str(tmp_path))


# -- --transforms -------------------------------------------------------------


def parse(text, height=32, width=32):
    return transforms_text.parse(text, height, width)


def names(ops):
    return [name for op in ops for name in op]


@pytest.mark.parametrize("text", ["", "none", " none\n", "[]", "{}"])
def test_no_transforms(text):
    assert parse(text) == []


def test_presets_are_done_in_their_order():
    ops = parse("flip-crop-altflip-vflip-resizedcrop-rotate-jitter", 24, 40)
    assert names(ops) == [
        "random_horizontal_flip",
        "random_crop",
        "alternating_flip",
        "random_vertical_flip",
        "random_resized_crop",
        "random_rotation",
        "color_jitter",
    ]
    assert ops[4]["random_resized_crop"]["size"] == {"height": 24, "width": 40}
    assert ops[5]["random_rotation"]["degrees"] == {"min": -10, "max": 10}
    assert ops[6]["color_jitter"]["hue"]["max"] == 0.1


@pytest.mark.parametrize(
    "height, width, padding",
    [(24, 40, 5), (32, 32, 4), (4, 4, 1), (1, 64, 0)],
)
def test_crop_pads_an_eighth_but_less_than_a_side(height, width, padding):
    (op,) = parse("crop", height, width)
    crop = op["random_crop"]
    assert (crop["height"], crop["width"]) == (height, width)
    assert set(crop["padding"].values()) == {padding}
    assert crop["padding_mode"] == "PADDING_MODE_REFLECT"


@pytest.mark.parametrize(
    "text",
    [
        '[{"center_crop": {"height": 3, "width": 4}}]',
        '{"transforms": [{"center_crop": {"height": 3, "width": 4}}]}',
        "[{'center_crop': {'height': 3, 'width': 4}}]",
        "[{center_crop: {height: 3, width: 4},}]",
    ],
)
def test_json_is_a_list_or_a_pipeline(text, tmp_path):
    expected = [{"center_crop": {"height": 3, "width": 4}}]
    assert parse(text) == expected
    path = tmp_path / "t.json"
    path.write_text("\n" + " " * 20000 + text)
    assert parse(f"@{path}") == expected


def test_enums_may_lack_their_prefix():
    ops = parse(
        '[{"pad": {"padding_mode": "reflect"}},'
        ' {"resize": {"interpolation": "Nearest-exact"}},'
        ' {"resize": {"interpolation": "INTERPOLATION_MODE_BICUBIC"}},'
        ' {"random_apply": {"transforms": [{"to_dtype": {"dtype":'
        ' "float16"}}]}}]'
    )
    assert ops == [
        {"pad": {"padding_mode": "PADDING_MODE_REFLECT"}},
        {"resize": {"interpolation": "INTERPOLATION_MODE_NEAREST_EXACT"}},
        {"resize": {"interpolation": "INTERPOLATION_MODE_BICUBIC"}},
        {
            "random_apply": {
                "transforms": [{"to_dtype": {"dtype": "DTYPE_FLOAT16"}}]
            }
        },
    ]


@pytest.mark.parametrize(
    "text, words",
    [
        ("crop-spin", ["'spin'", "altflip"]),
        ("[", ["as JSON", "expected a list"]),
        ("[5]", ["as JSON", "expected a list"]),
        ('{"image": []}', ["image", "expected a list"]),
        ('[{"random_horizontal_flip": {"p": NaN}}]', ["NaN"]),
        ("@/nonexistent/t.json", ["/nonexistent/t.json: No such file"]),
        ("@/tmp", ["/tmp: Is a directory"]),
        ("@/dev/null", ["/dev/null holds no transforms; write [] for none"]),
    ],
)
def test_wrong_transforms_are_errors_of_the_command_line(text, words):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value).startswith("--transforms")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ('[{"spin": {}}]', ["(transforms[0]) spin", "random_crop"]),
        ('[{"pad": {"padding_mode": "wrap"}}]', ["WRAP"]),
        ('[{"to_dtype": {"size": 1}}]', ["size"]),
    ],
)
def test_what_is_no_message_is_an_error_of_the_command_line(
    client, text, words
):
    with pytest.raises(UsageError, match="^--transforms as JSON") as caught:
        transforms_text.check_form(client, "none", "image", parse(text))
    for word in words:
        assert word in str(caught.value)
    # What the daemon says of messages is not asked for.
    ops = parse('[{"normalize": {}}]')
    transforms_text.check_form(client, "none", "image", ops)


def test_only_the_last_number_ops_are_taken():
    ops = parse(
        '[{"to_dtype": {}}, {"random_vertical_flip": {}}, {"toDtype": {}},'
        ' {"normalize": {}}]'
    )
    assert transforms_text.take_number_ops(ops) == ["to_dtype", "normalize"]
    assert names(ops) == ["to_dtype", "random_vertical_flip"]
    assert transforms_text.take_number_ops(ops) == []


# -- The command line ---------------------------------------------------------


def test_numbers_are_whole_and_in_range():
    assert [whole(-1, 12)(text) for text in ("-1", "012")] == [-1, 12]
    for text in ("-2", "13", "0x1", "1e0", " 1", "+1", "", "1.0"):
        with pytest.raises(
            argparse.ArgumentTypeError, match="whole number from -1 to 12"
        ):
            whole(-1, 12)(text)


def test_columns_of_numbers_are_aligned_to_the_right():
    text = table([["N", "NAME"], ["5", "a\x1b\nb"], ["12", "ö"]])
    assert text == " N  NAME\n 5  a\\x1b\\nb\n12  ö\n"


def test_a_report_of_another_version_is_an_error(tmp_path):
    (tmp_path / "1.json").write_text('{"pid": "seven"}')
    with pytest.raises(datasetd.Internal, match="pid='seven'.*type must be"):
        bench._reports(str(tmp_path))


def test_the_package_has_the_commands(
    daemon, dataset, tmp_path, run_command
):
    """Without datasetctl."""
    at = f"--address={daemon.address}"
    done = run_python(
        "-m", "datasetd", at, "preview", "hundred", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("preview.png: ")
    assert os.listdir(tmp_path) == ["preview.png"]
    done = run_command(at, "explain", "hundred", "--transforms=none")
    assert (done.returncode, done.stdout) == (0, "no ops\n")
    done = run_command(at, "preview", "hundred", "--samples=0")
    assert done.returncode == 2
    assert done.stderr == (
        "datasetd: argument --samples/--rows: '0': expected a whole number "
        "from 1 to 256\n"
    )
    done = run_command(at, "bench", "true")
    assert done.returncode == 2
    assert "expected -- COMMAND, with its arguments" in done.stderr


# -- Windows and sequences ----------------------------------------------------

_SIGNAL = np.random.default_rng(2).standard_normal((700, 2), np.float32)
_LOG_MEL = [
    T.Gain(-12, 12, p=1),
    T.MelSpectrogram(n_fft=32, n_mels=12),
    T.AmplitudeToDB(),
]


@pytest.fixture
def signals(client):
    """A stream `x`, and recordings `audio` of several lengths."""
    sounds = [{"audio": _SIGNAL[:n, 0]} for n in (300, 90, 501)]
    with client.push_dataset("waves", {"x": _SIGNAL}) as stream:
        with client.push_dataset("sounds", sounds, ragged=True) as recordings:
            yield stream, recordings


@pytest.fixture
def commanded(daemon, tmp_path, monkeypatch, run_command):
    """Returns what a command prints, as JSON, and the picture that it writes."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        done = run_command(
            f"--address={daemon.address}", "--json", *arguments,
            "--transforms", json.dumps([op.to_message() for op in _LOG_MEL]),
            "--seed=5", "--epoch=3",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        path = tmp_path / "preview.png"
        sheet = np.asarray(Image.open(path)) if path.exists() else None
        return json.loads(done.stdout), sheet

    return run


@pytest.mark.parametrize("place, field, text, windows", [
    (0, "x", "blocks(100, stride=60)", datasetd.blocks(100, 60)),
    (0, "x", "random_windows(100)", datasetd.random_windows(100)),
    (1, "audio", "crops(100, random)", datasetd.crops(100, "random")),
])  # fmt: skip
def test_windows_and_their_ops_are_shown(
    client, commanded, signals, place, field, text, windows
):
    dataset = signals[place]
    made, drawn = [], []
    for epoch in (3, 4):
        with datasetd.DataLoader(
            dataset, 3, seed=5, windows=windows, framework="numpy",
            transforms={field: _LOG_MEL}, fields=field,
        ) as job:  # fmt: skip
            job.set_epoch(epoch)
            batch = next(iter(job))
            made.append(getattr(batch, field).reshape(3, -1, 12, 7)[:, 0].copy())
            drawn = drawn or batch.indices.tolist()
    arguments = [dataset.name, "--field", field, "--windows", text]
    arguments += ["--samples=3"]
    result, sheet = commanded(
        "preview", *arguments, "--epochs=2", "--zoom=1"
    )
    assert (result["num_samples"], result["num_epochs"]) == (3, 2)
    both = np.stack(made, 1)  # [3, 2, 12, 7]
    low = both.min((1, 2, 3), keepdims=True)
    high = both.max((1, 2, 3), keepdims=True)
    want = np.rint((both - low) / (high - low) * 255)[:, :, ::-1]
    left = 4 + 256 + 16
    for row in range(3):
        # Originals are waveforms of 96 pixels' height.
        top = 4 + row * 100 + 42
        for epoch in range(2):
            at = left + epoch * 11
            got = sheet[top : top + 12, at : at + 7, 0].astype(int)
            assert abs(got - want[row, epoch]).max() <= 1
    told, _ = commanded("explain", *arguments)
    ops = client.explain(
        dataset, {field: _LOG_MEL}, 5, 3,
        drawn if text.startswith("blocks") else range(3), windows,
    )  # fmt: skip
    for sample, expected in zip(told["samples"], ops):
        assert [op["name"] for op in sample["ops"]] == [
            op.name for op in expected
        ]
        for op, other in zip(sample["ops"], expected):
            assert {p["name"]: tuple(p["values"]) for p in op["parameters"]} == (
                other.parameters
            )


@pytest.mark.parametrize("text, words", [
    ("blocks(0)", "length"),
    ("blocks(8, size=3)", "unexpected keyword"),
    ("documents(8)", "expected a length, or blocks"),
    ("__import__('os')", "expected a length, or blocks"),
    ("blocks", "expected a length"),
    ("((((", "expected a length"),
    ("crops(8, middle)", "place='middle'"),
])  # fmt: skip
def test_wrong_windows_are_named(daemon, signals, run_command, text, words):
    done = run_command(
        f"--address={daemon.address}", "explain", "waves",
        "--transforms=none", "--windows", text,
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_preview_without_pictures_names_the_fields(
    daemon, signals, run_command
):
    preview = [f"--address={daemon.address}", "preview", "waves"]
    done = run_command(*preview, "--field=y")
    assert done.returncode == 1 and "its fields: x" in done.stderr
    done = run_command(*preview, "--windows=500", "--first=2", "--field=x")
    assert done.returncode == 2
    assert "has 1 windows in an epoch" in done.stderr
