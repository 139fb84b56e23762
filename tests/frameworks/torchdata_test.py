"""docs/frameworks.md: torchdata."""

import copy
import json

import datasetd
import pytest
import torch
from conftest import NUM_SAMPLES
from torchdata.stateful_dataloader import StatefulDataLoader


def test_a_node_and_a_resume(page):
    _, batches = page.expect_exact_resume(
        "torchdata", checkpoint=(1, 2), kill=(1, 4)
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=1)


def _ours(dataset):
    return datasetd.DataLoader(dataset, batch_size=32)


def _theirs(_):
    return StatefulDataLoader(range(NUM_SAMPLES), batch_size=32)


def _rows(batch):
    indices = batch.indices if isinstance(batch, datasetd.Batch) else batch
    return indices.tolist()


def _resumed(make, dataset, num_taken):
    """Returns the rows of two epochs after a resume at a batch."""
    loader = make(dataset)
    iterator = iter(loader)
    for _ in range(num_taken):
        next(iterator)
    state = copy.deepcopy(loader.state_dict())
    rest = list(map(_rows, iterator))
    loader = make(dataset)
    loader.load_state_dict(state)
    resumed = [list(map(_rows, loader)) for _ in range(2)]
    assert resumed[0] == rest or num_taken == 13
    return resumed


@pytest.mark.parametrize("num_taken", [0, 1, 5, 12])
def test_the_contract_is_that_of_stateful_dataloader(dataset, num_taken):
    ours, theirs = (
        _resumed(make, dataset, num_taken) for make in (_ours, _theirs)
    )
    assert ours == theirs
    assert [len(epoch) for epoch in ours] == [13 - num_taken, 13]


def test_a_state_is_plain_data(dataset, tmp_path):
    with datasetd.DataLoader(dataset, 32, True) as loader:
        next(iter(loader))
        state = loader.state_dict()
        torch.save(state, tmp_path / "state.pt")
        assert torch.load(tmp_path / "state.pt", weights_only=True) == state
        assert json.loads(json.dumps(state)) == state
