"""docs/frameworks.md: evaluation over ranks."""

import re

import pytest


@pytest.mark.parametrize(
    "heading, alone, together",
    [
        (
            "Evaluation",
            [('torch.distributed.init_process_group("gloo")\n', "")],
            [],
        ),
        (
            "Evaluation with Lightning",
            [],
            [("devices=1", "devices=3")],
        ),
        ("Evaluation with Accelerate", [], []),
    ],
)
def test_the_metric_of_three_ranks_is_that_of_one(
    page, heading, alone, together
):
    values = []
    for ranks, changes in ((1, alone), (3, together)):
        printed, _ = page.run(
            heading, ranks=ranks, folder=f"ranks-{ranks}", changes=changes
        )
        found = re.findall(r"^accuracy (\S+)$", printed, re.MULTILINE)
        assert len(found) == ranks, printed
        values += found
    assert len(set(values)) == 1 and 0 < float(values[0]) < 1, values
