"""What the names of columns say: field names, labels and masks."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List

_MAX_NAME = 64
_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

# Text of such a column becomes classes.
_LABEL_WORDS = frozenset(
    "category categories class classes label labels species target targets"
    .split()
)
# An image of one channel with one of these words in its name is a mask. The
# daemon's list is in server/readers/mask_names.cc.
MASK_WORDS = (
    "annotation", "annotations", "labelmap", "mask", "masks", "seg", "segm",
    "segmap", "segmentation", "segmentations", "semseg", "trimap",
)  # fmt: skip
# So is one of these names; an image called label can only be classes.
MASK_NAMES = ("class_map", "label", "label_image", "label_map", "labels")
# And one of these beside an image of colours.
TARGET_NAMES = (
    "ground_truth", "groundtruth", "gt", "target", "targets", "y",
)  # fmt: skip


def field_name(name: Any) -> str:
    """Returns the field for a column of this name: every character but ASCII
    letters, digits and _ becomes _, what begins with a digit gets field_ before
    it, and 64 characters are kept."""
    text = _OTHERS.sub("_", str(name))
    if not text or text[0].isdigit():
        text = "field_" + text
    return text[:_MAX_NAME]


def field_names(names: Iterable[Any]) -> Dict[str, Any]:
    """Returns each column's name by its field. Of several that would have one
    field, the later ones get _2, _3 and so on."""
    columns = list(names)
    # Names that can stay, do.
    taken = {name for name in columns if name == field_name(name)}
    fields: Dict[str, Any] = {}
    for name in columns:
        field = base = field_name(name)
        number = 2
        while field != name and (field in taken or field in fields):
            ending = f"_{number}"
            field = base[: _MAX_NAME - len(ending)] + ending
            number += 1
        fields[field] = name
    return fields


def _words(name: str) -> List[str]:
    return [word.lower() for word in _WORD.findall(name)]


def is_label(name: Any) -> bool:
    """True for y, and for names whose last word, before a `name`, is one of
    the labels': label, class_name, Species, target_class."""
    words = _words(str(name))
    if len(words) > 1 and words[-1] in ("name", "names"):
        words.pop()
    return words == ["y"] or bool(words) and words[-1] in _LABEL_WORDS


def is_mask(name: str, is_bytes: bool, beside_colours: bool) -> bool:
    """True if an image of one channel of this name holds classes: `is_bytes`
    if it is uint8, `beside_colours` if the sample has an image of colours,
    too."""
    words = _words(name)
    text = "_".join(words)
    names = MASK_NAMES + TARGET_NAMES if beside_colours else MASK_NAMES
    return is_bytes and text in names or any(w in MASK_WORDS for w in words)
