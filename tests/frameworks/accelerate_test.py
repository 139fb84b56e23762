"""docs/frameworks.md: Accelerate."""

import accelerate
import datasetd
import pytest
import torch
from conftest import NUM_SAMPLES


def test_two_processes_and_a_resume(page):
    printed, batches = page.expect_exact_resume(
        "Accelerate", checkpoint=(1, 2), kill=(1, 4), ranks=2
    )
    batches.expect_each_sample_once(num_epochs=3, world_size=2)
    # One sample is padding, which gather_for_metrics() drops.
    assert printed.count(f"{NUM_SAMPLES} labels\n") == 2


def test_a_loader_that_is_no_dataloader_of_torch(page):
    printed, _ = page.run(
        "Accelerate", ranks=2, changes=[("loader.as_torch()", "loader")]
    )
    assert printed.count(f"{NUM_SAMPLES} labels\n") == 2


def test_padding_that_is_not_at_the_end(page):
    printed, _ = page.run("Accelerate", ranks=3)
    assert printed.count(f"{NUM_SAMPLES + 2} labels\n") == 3
    assert printed.count("gather_for_metrics() counts 2 samples twice") == 3, (
        printed
    )


@pytest.fixture
def accelerator():
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def _steps(accelerator, batches):
    """Whether the gradients are synchronised at each batch."""
    model = torch.nn.Linear(1, 1)
    steps = []
    for _ in batches:
        with accelerator.accumulate(model):
            steps.append(accelerator.sync_gradients)
    return steps


def test_gradients_are_synchronised_as_with_torchs_loader(dataset, accelerator):
    torchs = torch.utils.data.DataLoader(range(NUM_SAMPLES), batch_size=32)
    expected = _steps(accelerator, accelerator.prepare(torchs))
    assert expected == [i in (3, 7, 11, 12) for i in range(13)]
    with datasetd.DataLoader(dataset, batch_size=32) as loader:
        for batches in (loader, loader.as_torch()):
            for _ in range(2):
                prepared = accelerator.prepare(batches)
                assert prepared is batches
                assert _steps(accelerator, prepared) == expected
        # One in the other, and one that is not used up.
        state = accelerator.gradient_state
        for batch in loader:
            assert state.end_of_dataloader == (batch.index == 12)
            if batch.index == 5:
                with datasetd.DataLoader(dataset, batch_size=403) as inner:
                    for _ in inner:
                        assert state.end_of_dataloader
            next(iter(loader))
        assert not state.in_dataloader


def test_skip_first_batches_is_a_seek(dataset, accelerator):
    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        expected = [b.indices.tolist() for b in loader]
    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        batches = accelerator.prepare(loader.as_torch())
        rest = accelerator.skip_first_batches(batches, 5)
        first = next(iter(rest))
        assert first.index == 5
        # The first batch made is the first that is used.
        assert loader.state_dict()["batch"] == 6
        loader.set_epoch(0)
        assert [b.indices.tolist() for b in rest] == expected[5:]
        assert len(rest) == 8
        # From the loader's dataset they would make batches without transforms.
        for wrap in (
            lambda: accelerator.skip_first_batches(loader, 5),
            lambda: accelerator.prepare_data_loader(loader),
        ):
            with pytest.raises(
                datasetd.InvalidArgument, match=r"pass loader\.as_torch\(\)"
            ):
                next(iter(wrap()))
