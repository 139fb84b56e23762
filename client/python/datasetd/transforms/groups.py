"""Ops made of other ops, and ops that mix the samples of a batch."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ..errors import InvalidArgument
from . import _checks
from ._base import Transform
from ._checks import Fields, Number

__all__ = [
    "CutMix",
    "MixUp",
    "RandomApply",
]


class RandomApply(Transform):
    """Applies all of `transforms` with probability `p`, by default 0.5.

    Otherwise it applies none. Transforms without `fields` use those of this op.

    Example: T.RandomApply([T.GaussianBlur(3), T.Grayscale(3)], p=0.2)
    """

    def __init__(
        self,
        transforms: Sequence[Transform],
        p: float = 0.5,
        *,
        fields: Fields = None,
    ) -> None:
        if not isinstance(transforms, (list, tuple)) or not transforms:
            raise _checks.fail(
                self, "transforms", transforms, "a list of transforms"
            )
        for op in transforms:
            if not isinstance(op, Transform) or isinstance(op, BatchOp):
                raise InvalidArgument(
                    f"RandomApply: transforms: {op!r}; expected ops of "
                    "datasetd.transforms except MixUp and CutMix"
                )
        self.transforms = list(transforms)
        self.p = p
        super().__init__(fields)

    def to_message(
        self, field: str = "image", is_mask: bool = False, draw_id: int = 0
    ) -> Dict[str, Any]:
        return self.group_message(
            [op.to_message(field, is_mask) for op in self.transforms], draw_id
        )

    def group_message(
        self, transforms: List[Dict[str, Any]], draw_id: int
    ) -> Dict[str, Any]:
        """Returns the op with the `transforms` of one field, as messages."""
        message: Dict[str, Any] = {
            self._op.name: {"transforms": transforms, "p": self.p}
        }
        if draw_id:
            message["draw_id"] = draw_id
        return message


class BatchOp(Transform):
    """Must be the last op of its image; labels become float32 [B,
    num_classes]."""

    def __init__(
        self,
        *,
        alpha: Number = 1.0,
        num_classes: int,
        labels: str = "label",
        per_sample: bool = False,
        fields: Fields = None,
    ) -> None:
        self.alpha: float = alpha
        self.num_classes = num_classes
        self.labels, self.per_sample = labels, per_sample
        super().__init__(fields)


class MixUp(BatchOp):
    """Blends in another sample of the batch with weight lambda ~ Beta(alpha).

    Lambda is drawn per batch, or with `per_sample` per sample; all images of
    `fields` use the same. It must be the last op of its image. The field
    `labels`, by default "label", with `num_classes` classes, becomes float32
    [B, num_classes]. `alpha` is 1 by default.

    Example: T.MixUp(alpha=0.2, num_classes=10)
    """


class CutMix(BatchOp):
    """Pastes a box from another sample of the batch; its area ~ Beta(alpha).

    The box is drawn per batch, or with `per_sample` per sample; all images of
    `fields`, which must have the same size, use the same box. It must be the
    last op of its image. The field `labels`, by default "label", with
    `num_classes` classes, becomes float32 [B, num_classes]. `alpha` is 1 by
    default.

    Example: T.CutMix(num_classes=10)
    """
