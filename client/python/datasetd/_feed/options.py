"""Feed options of a loader by field, checked against the dataset."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .._datasets.mixture import Whole
from .._descriptions import Field
from .._warnings import warn_once
from ..errors import InvalidArgument
from ..transforms._pipeline import (
    Pipelines,
    Spread,
    moves_masks,
    spread_pipelines,
)

FieldNames = Union[None, str, Sequence[str]]
Views = Optional[Mapping[str, Any]]
Layout = Union[str, Mapping[str, str]]

_LAYOUTS = ("NCHW", "NHWC")


def chosen_fields(
    dataset: Whole,
    fields: FieldNames,
    views: Views = None,
    derived: Optional[Mapping[str, Mapping[str, Any]]] = None,
) -> List[Field]:
    """Returns the fields of a batch that `fields` names, in its order; None:
    all. `views` stand in the place of the image. `derived` are FieldOptions of
    fields that are made of others, and come behind those."""
    there: Dict[str, Field] = {}
    image = None if views is None else _viewed(dataset, views)
    for field in dataset.fields:
        if field.name != image:
            there[field.name] = field
            for name, options in (derived or {}).items():
                if options["source"] == field.name:
                    there[name] = field._replace(name=name)
            continue
        for view in views or ():
            there[view] = field._replace(name=view)
    if fields is None:
        return list(there.values())
    names = [fields] if isinstance(fields, str) else list(fields)
    for name in names:
        if not isinstance(name, str) or name not in there:
            if views is not None and name == image:
                raise InvalidArgument(
                    f"fields: the views replace {name!r}: name some of "
                    f"{list(there)}, or None for all"
                )
            raise InvalidArgument(
                f"fields: dataset '{dataset.name}' has no field {name!r}; it "
                f"has {list(there)}"
            )
    if len(set(names)) < len(names):
        raise InvalidArgument(f"fields: {names} names a field twice")
    if not names:
        raise InvalidArgument(
            f"fields is empty; expected some of {list(there)}, or None for all"
        )
    return [there[name] for name in names]


def _viewed(dataset: Whole, views: Any) -> str:
    """Returns the name of the image that `views` are of; checks them."""
    images = [f.name for f in dataset.fields if f.is_image and not f.is_mask]
    image = image_field(dataset.fields)
    if image not in images:
        raise InvalidArgument(
            f"views: dataset '{dataset.name}' has the images {images}; "
            "expected one, or one that is called 'image'"
        )
    if not isinstance(views, Mapping) or not views:
        raise InvalidArgument(
            f"views={views!r}; expected a dict of lists of transforms by name "
            "of the view"
        )
    for view in views:
        others = [f.name for f in dataset.fields if f.name != image]
        if not isinstance(view, str) or not view or view in others:
            raise InvalidArgument(
                f"views: {view!r}; expected a name other than {others}"
            )
    return image


def fields_message(
    dataset: Whole,
    fields: List[Field],
    transforms: Pipelines,
    layout: Layout,
    views: Views = None,
) -> Dict[str, Any]:
    """Returns FeedOptions.fields: transforms and layout of each field."""
    images = [f.name for f in fields if f.is_image]
    # Those that were not chosen, too: the draws depend on them.
    masks = [f.name for f in dataset.fields if f.is_mask]
    image = image_field(fields if views is None else dataset.fields)
    spread = spread_pipelines("transforms", transforms, masks, image, masks)
    warn_of_kinds("transforms", dataset.name, fields, spread, image)
    pipelines = spread.messages
    if moves_masks(transforms):
        if views is None and image in pipelines:
            check_one_image("transforms", fields, image)
        chosen = [f.name for f in fields]
        for mask in masks:
            if mask not in chosen:
                pipelines.pop(mask, None)
    if views is not None and image in pipelines:
        raise InvalidArgument(
            f"transforms: {image!r} has views: set their transforms in views="
        )
    spread_views = spread_pipelines("views", views)
    pipelines.update(spread_views.messages)
    for op in spread.batch_ops + spread_views.batch_ops:
        _check_labels(dataset, fields, op, pipelines)
    layouts = (
        dict(layout)
        if isinstance(layout, Mapping)
        else {field: layout for field in images}
    )
    _check_keys(dataset, fields, "transforms", pipelines)
    _check_keys(dataset, fields, "layout", layouts)
    if not isinstance(layout, Mapping) and layout not in _LAYOUTS:
        raise InvalidArgument(f"layout={layout!r}; expected one of {_LAYOUTS}")
    message: Dict[str, Any] = {}
    for field, ops in pipelines.items():
        message.setdefault(field, {})["transforms"] = ops
    for field, value in layouts.items():
        if value not in _LAYOUTS or field not in images:
            raise InvalidArgument(
                f"layout[{field!r}]={value!r}; expected one of "
                f"{_LAYOUTS}, for an image field ({images})"
            )
        message.setdefault(field, {})["layout"] = "LAYOUT_" + value
    for number, view in enumerate(views or ()):
        if view in message:
            message[view].update(source=image, view=number)
    return message


def warn_of_kinds(
    argument: str, name: str, fields: List[Field], spread: Spread, image: str
) -> None:
    """Warns once where transforms would leave a mask behind its image, or mix
    the classes of an image that may be a mask."""
    masks = [f.name for f in fields if f.is_mask]
    for op in spread.unshared:
        behind = [
            mask
            for mask in masks
            if not any(
                type(op) is type(other) and mask in (other.fields or ())
                for other in spread.shared
            )
        ]
        if behind:
            warn_once(
                f"{argument} {name} {type(op).__name__}",
                f"{argument}: {op!r} moves the pixels of {image!r}, which then "
                f"no longer match the mask {behind[0]!r} of dataset {name!r}: "
                f"fields={[image, *behind]} changes them alike; "
                f"fields=[{image!r}] confirms that this is intended",
            )
    colours = [f for f in fields if f.is_image and f.shape[2] > 1]
    if not any(_interpolates(spread.messages.get(f.name)) for f in colours):
        return
    for field in fields:
        is_grey = field.is_image and field.shape[2] == 1
        if (
            is_grey
            and not field.is_mask
            and field.dtype == "uint8"
            and _interpolates(spread.messages.get(field.name))
        ):
            warn_once(
                f"{argument} {name} {field.name}",
                f"{argument}: the values of {field.name!r} of dataset "
                f"{name!r} are interpolated, like those of an image. If they "
                "are classes, declare it as a mask where it is loaded: "
                f"fields={{{field.name!r}: 'mask'}} of push_dataset, or "
                f"options={{'masks': {field.name!r}}} of npy",
            )


def _interpolates(message: Any) -> bool:
    """True for messages of ops of which one mixes the values of pixels."""
    if isinstance(message, dict):
        mode = message.get("interpolation", "NEAREST")
        return "NEAREST" not in mode or any(
            map(_interpolates, message.values())
        )
    return isinstance(message, list) and any(map(_interpolates, message))


def check_one_image(argument: str, fields: List[Field], image: str) -> None:
    """Rejects a pipeline of torchvision's v2 for several images: torchvision
    changes them alike."""
    images = [f.name for f in fields if f.is_image and not f.is_mask]
    if len(images) < 2:
        return
    masks = [f.name for f in fields if f.is_mask]
    one = image if image in images else images[0]
    alone = (
        f"T.from_torchvision(pipeline, masks={masks}, image={one!r})"
        if masks
        else f"{{{one!r}: pipeline}}"
    )
    other = next(name for name in images if name != one)
    raise InvalidArgument(
        f"{argument}: torchvision's v2 changes all images of a sample alike, "
        f"here {images}, but its pipeline is converted for one image: use the "
        "ops of datasetd.transforms with fields=, such as "
        f"T.CenterCrop(224, fields={images}); for {one!r} alone pass "
        f"{alone}; if {other!r} is a mask, declare it where it is loaded, such "
        f"as push_dataset(..., fields={{{other!r}: 'mask'}})"
    )


def image_field(fields: List[Field]) -> str:
    """Returns the field that a list of transforms is for: `image`, or the only
    image that is no mask."""
    names = [f.name for f in fields if f.is_image and not f.is_mask]
    return names[0] if len(names) == 1 else "image"


def _check_keys(
    dataset: Whole,
    fields: List[Field],
    argument: str,
    by_field: Mapping[str, Any],
) -> None:
    names = [f.name for f in fields]
    for key in by_field:
        if key in names:
            continue
        if any(key == field.name for field in dataset.fields):
            raise InvalidArgument(
                f"{argument}: field {key!r} is not among fields={names}: add "
                "it there, or omit it here"
            )
        raise InvalidArgument(
            f"{argument}: dataset '{dataset.name}' has no field {key!r}; it "
            f"has {names}"
            + (": name the field, {field: [...]}" if key == "image" else "")
        )


def _check_labels(
    dataset: Whole,
    fields: List[Field],
    op: Any,
    pipelines: Mapping[str, Any],
) -> None:
    """Checks that ops that mix images have labels to mix."""
    scalars = [f.name for f in fields if f.shape == () and "int" in f.dtype]
    if op.labels not in scalars:
        raise InvalidArgument(
            f"transforms: {op!r}: labels={op.labels!r}; expected a field "
            f"of integers of dataset '{dataset.name}', and of the "
            f"loader's fields: {scalars}"
        )
    if pipelines.get(op.labels):
        raise InvalidArgument(
            f"transforms: {op!r} changes {op.labels!r} itself: omit the "
            "transforms of that field"
        )
