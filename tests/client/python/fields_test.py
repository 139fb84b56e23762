"""Ops on several fields: what each field is told."""

import re

import datasetd
import pytest
from datasetd import transforms as T
from datasetd.transforms._pipeline import pipelines_message

PAIR = ["image", "mask"]


def spread(ops, masks=("mask",)):
    return pipelines_message("transforms", ops, masks)


def test_a_list_is_for_the_image():
    assert spread([T.VerticalFlip(), T.Invert()]) == {
        "image": [{"vertical_flip": {}}, {"invert": {}}]
    }
    assert spread(T.VerticalFlip()) == {"image": [{"vertical_flip": {}}]}
    assert spread([]) == {}
    assert spread(None) == {}


def test_a_dict_is_by_field():
    assert spread({"photo": [T.Invert()], "mask": []}) == {
        "photo": [{"invert": {}}],
        "mask": [],
    }
    with pytest.raises(datasetd.InvalidArgument, match="names fields"):
        spread({"photo": [T.VerticalFlip(fields=["photo"])]})


def test_fields_share_their_draws_and_nothing_else_does():
    flip = T.RandomHorizontalFlip(fields=PAIR)
    messages = spread(
        [flip, T.RandomVerticalFlip(), flip, T.VerticalFlip(fields="mask")]
    )
    first, alone, second = messages["image"]
    assert messages["mask"] == [first, second, {"vertical_flip": {}}]
    assert first["random_horizontal_flip"] == {"p": 0.5}
    assert "draw_id" not in alone
    # The same object in two places draws twice.
    assert first["draw_id"] != second["draw_id"]
    assert 0 not in (first["draw_id"], second["draw_id"])


def test_masks_are_sampled_nearest():
    messages = spread(
        [
            T.RandomResizedCrop(8, interpolation="bicubic", fields=PAIR),
            T.RandomRotation(9, interpolation="bilinear", fields=PAIR),
            T.Resize(4, "nearest-exact", fields=PAIR),
        ]
    )
    modes = [
        [
            parameters["interpolation"].replace("INTERPOLATION_MODE_", "")
            for message in messages[field]
            for parameters in message.values()
            if isinstance(parameters, dict)
        ]
        for field in PAIR
    ]
    assert modes == [
        ["BICUBIC", "BILINEAR", "NEAREST_EXACT"],
        ["NEAREST", "NEAREST", "NEAREST_EXACT"],
    ]
    assert messages["image"][0]["random_resized_crop"]["antialias"] is True
    assert messages["mask"][0]["random_resized_crop"]["antialias"] is False


@pytest.mark.parametrize(
    "fill, image, mask",
    [
        (3, [3.0], [0.0]),
        ((1, 2, 3), [1.0, 2.0, 3.0], [0.0]),
        ({"mask": 255}, [0.0], [255.0]),
        ({"image": (1, 2, 3), "mask": 255}, [1.0, 2.0, 3.0], [255.0]),
        ({"mask": None}, [0.0], [0.0]),
    ],
)
def test_fill_of_masks(fill, image, mask):
    messages = spread([T.Pad(1, fill=fill, fields=PAIR)])
    assert messages["image"][0]["pad"]["fill"] == image
    assert messages["mask"][0]["pad"]["fill"] == mask


_ROTATE = T.Rotate(3, fill={"maks": 255})


@pytest.mark.parametrize(
    "ops, fields",
    [
        ([T.Pad(1, fill={"maks": 255}, fields=PAIR)], PAIR),
        ([T.RandomApply([_ROTATE], fields=PAIR)], PAIR),
        ([_ROTATE], ["image"]),
        ([T.RandomApply([_ROTATE])], ["image"]),
        ({"mask": [_ROTATE]}, ["mask"]),
        ({"mask": [T.RandomApply([_ROTATE])]}, ["mask"]),
    ],
)
def test_a_fill_is_of_a_field_of_the_op(ops, fields):
    with pytest.raises(
        datasetd.InvalidArgument,
        match="fill has the key 'maks'; expected some of its fields, "
        + re.escape(str(fields)),
    ):
        spread(ops)


def test_a_fill_of_the_field_that_is_the_image():
    op = T.Pad(1, fill={"photo": 3})
    messages = pipelines_message("transforms", [op], image="photo")
    assert messages["photo"][0]["pad"]["fill"] == [3.0]
    with pytest.raises(datasetd.InvalidArgument, match="the key 'photo'"):
        spread([op])


def test_two_images_are_filled_alike():
    messages = spread([T.Pad(1, fill=3, fields=["left", "right"])])
    assert messages["left"] == messages["right"]


@pytest.mark.parametrize(
    "op",
    [
        T.ColorJitter(0.5, fields=PAIR),
        T.GaussianBlur(3, fields=["mask"]),
        T.RandomErasing(fields=PAIR),
        T.Cutout(2, fields=PAIR),
        T.MixUp(num_classes=2, fields=["mask"]),
        T.RandomApply([T.VerticalFlip(), T.Invert()], fields=PAIR),
    ],
)
def test_masks_take_no_colour_op(op):
    with pytest.raises(datasetd.InvalidArgument, match="'mask': that is a m"):
        spread([op])
    if "mask" in (op.fields or ()) and len(op.fields) > 1:
        assert set(spread([op], masks=())) == set(PAIR)


def test_groups_go_to_their_fields():
    group = T.RandomApply(
        [
            T.ColorJitter(0.5, fields=["image"]),
            T.RandomRotation(10),
            T.RandomVerticalFlip(fields=["mask"]),
        ],
        p=0.25,
        fields=PAIR,
    )
    messages = spread([group])
    (image,), (mask,) = messages["image"], messages["mask"]
    assert image["draw_id"] == mask["draw_id"] != 0
    assert image["random_apply"]["p"] == 0.25
    jitter, rotation = image["random_apply"]["transforms"]
    same_rotation, flip = mask["random_apply"]["transforms"]
    assert "color_jitter" in jitter and "draw_id" not in jitter
    assert rotation["draw_id"] == same_rotation["draw_id"]
    assert rotation["draw_id"] not in (0, image["draw_id"])
    assert "random_vertical_flip" in flip and "draw_id" not in flip


def test_a_group_without_ops_for_a_field_is_left_out():
    group = T.RandomApply([T.Invert(fields=["image"])], fields=PAIR)
    assert set(spread([group])) == {"image"}


def test_a_group_says_which_field_is_missing():
    group = T.RandomApply([T.VerticalFlip(fields=PAIR)])
    with pytest.raises(datasetd.InvalidArgument, match="add 'mask' to its"):
        spread([group])


def test_batch_ops_are_last():
    mix = T.MixUp(num_classes=3)
    assert list(spread([T.Invert(), mix])["image"][-1]) == ["mix_up"]
    spread([mix, T.VerticalFlip(fields="mask")])
    for after in (T.Invert(), T.CutMix(num_classes=3), mix):
        with pytest.raises(datasetd.InvalidArgument, match="must be the last"):
            spread([mix, after])
    with pytest.raises(datasetd.InvalidArgument, match="must be the last"):
        spread({"photo": [mix, T.Invert()]})
