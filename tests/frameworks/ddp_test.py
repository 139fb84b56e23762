"""docs/frameworks.md: DistributedDataParallel; with Debian's torch, too."""


def test_two_ranks_and_a_resume(page):
    _, batches = page.expect_exact_resume(
        "DistributedDataParallel", checkpoint=(1, 2), kill=(1, 4), ranks=2
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=2)
