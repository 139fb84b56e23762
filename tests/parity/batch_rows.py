"""Rows of the ops that mix a batch, of five rows, with its labels."""

import numpy_judge
from row import REFERENCE, BatchCase, Row

_ALPHAS = (0.1, 1.0, 50.0)


def _cases(name, judge):
    def cases(shape):
        del shape
        for alpha in _ALPHAS:
            for per_sample in (False, True):
                for num_classes in (2, 10):
                    parameters = {
                        "alpha": alpha,
                        "per_sample": per_sample,
                        "num_classes": num_classes,
                    }
                    yield BatchCase(
                        [{name: parameters}],
                        lambda images, labels, mixes, count=num_classes: (
                            judge(images, mixes),
                            numpy_judge.mix_labels(labels, count, mixes),
                        ),
                        num_classes,
                        per_sample,
                    )

    return cases


_PARAMETERS = "alpha 0.1, 1, 50; one lambda, per_sample; labels too; as drawn"

ROWS = [
    Row("MixUp", _PARAMETERS, _cases("mix_up", numpy_judge.mix_up), 1, 1e-6,
        judge=REFERENCE, is_drawn=True,
        remark="not in torchvision 0.14; uint8 is rounded once"),
    Row("CutMix", _PARAMETERS, _cases("cut_mix", numpy_judge.cut_mix), 0, 0,
        judge=REFERENCE, is_drawn=True,
        remark="not in torchvision 0.14; labels within 1e-6"),
]
