"""state_dict and load_state_dict."""

import datasetd
import numpy as np
import pytest
from conftest import copies, indices_of, load, loader
from datasetd import transforms as T


@pytest.mark.parametrize("key", ["content_hash", "transforms_hash"])
def test_state_of_the_version_before_is_refused_with_the_reason(dataset, key):
    with loader(dataset) as batches:
        state = batches.state_dict()
        assert len(state[key]) == 64
        old = dict(state, **{key: state[key][:32]})
        with pytest.raises(datasetd.FailedPrecondition,
                           match=f"{key} is .*, a hash of an earlier version"):
            batches.load_state_dict(old)
        # The message's advice works.
        batches.load_state_dict(dict(old, **{key: state[key]}))


def test_a_state_that_needs_a_client_which_is_closed(daemon, data_root):
    """The loader goes on as it was."""
    with daemon.connect() as client:
        dataset = load(client, data_root)
        batches = datasetd.DataLoader(dataset, batch_size=10, shuffle=True)
    with batches:
        whole = indices_of(copies(batches))
        seed = batches.seed
        state = dict(batches.state_dict(), epoch=0)
        with pytest.raises(datasetd.Closed, match="the client is closed"):
            batches.load_state_dict(dict(state, seed=seed ^ 1))
        assert batches.seed == batches.state_dict()["seed"] == seed
        batches.load_state_dict(dict(state, batch_size=5, batch=3))
        with pytest.raises(datasetd.Closed, match="the client is closed"):
            next(iter(batches))
        batches.load_state_dict(state)
        np.testing.assert_array_equal(indices_of(copies(batches)), whole)


def test_a_state_of_another_pipeline_names_the_way_on(dataset):
    with loader(dataset) as batches:
        state = dict(batches.state_dict(), epoch=2, batch=3)
    with loader(dataset, seed=None, transforms=[T.Resize(4)]) as batches:
        with pytest.raises(
            datasetd.FailedPrecondition,
            match=r"transforms_hash is .*other transforms than when the state "
            r"was saved.*call set_epoch\(2\) \(that epoch again\) or "
            r"set_epoch\(3\).*seed=5 keeps the order",
        ):
            batches.load_state_dict(state)
    with loader(dataset, transforms=[T.Resize(4)]) as batches, loader(
        dataset
    ) as before:
        for epoch in (2, 3):
            for each in (batches, before):
                each.set_epoch(epoch)
            assert (
                indices_of(copies(batches)).tolist()
                == indices_of(copies(before)).tolist()
            )


@pytest.mark.parametrize(
    "key, words",
    [
        ("content_hash", "the dataset has other samples than when"),
        ("seed", "Omit seed=, and the loader takes the state's"),
    ],
)
def test_a_state_that_does_not_fit_is_explained(dataset, key, words):
    with loader(dataset) as batches:
        state = dict(batches.state_dict(), **{key: 17})
        with pytest.raises(datasetd.FailedPrecondition, match=words):
            batches.load_state_dict(state)
