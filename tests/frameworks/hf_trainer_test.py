"""docs/frameworks.md: the Trainer of transformers."""

import pytest


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resume(page, ranks):
    # It saves after each third step; an epoch has 13, or 7 on each of 2 ranks.
    _, batches = page.expect_exact_resume(
        "Hugging Face Trainer", checkpoint=(1, 2), kill=(1, 4), ranks=ranks
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=ranks)
