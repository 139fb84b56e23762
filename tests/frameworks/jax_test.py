"""docs/frameworks.md: JAX."""

import datasetd
import jax
import jax.numpy as jnp
import numpy as np
from conftest import NUM_SAMPLES
from datasetd import transforms as T
from examples import losses


def _make(dataset, framework="jax", **arguments):
    return datasetd.DataLoader(
        dataset,
        batch_size=32,
        shuffle=True,
        seed=1,
        framework=framework,
        transforms=[
            T.RandomCrop(32, padding=4),
            T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
        ],
        **arguments,
    )


def _train_in_numpy(dataset):
    """Returns the last loss of the page's example."""
    weights = np.zeros((3 * 32 * 32, 10))
    with _make(dataset, "numpy", drop_last=True) as loader:
        for epoch in range(2):
            for batch in loader:
                rows = batch.image.reshape(32, -1).astype(np.float64)
                odds = np.exp(rows @ weights)
                odds /= odds.sum(axis=1, keepdims=True)
                chosen = np.eye(10)[batch.label]
                loss = -np.log((odds * chosen).sum(axis=1)).mean()
                weights -= 0.01 * rows.T @ (odds - chosen) / 32
    return loss


def test_jit_over_batches(page, dataset):
    printed, batches = page.run("JAX")
    # drop_last leaves 403 - 12 * 32 samples out.
    for epoch in range(2):
        seen = [i for b in batches if b["epoch"] == epoch for i in b["indices"]]
        assert len(seen) == len(set(seen)) == 12 * 32
    (loss,) = losses(printed)
    np.testing.assert_allclose(
        float(loss.split()[1]), _train_in_numpy(dataset), rtol=1e-4
    )


def test_a_batch_is_a_pytree(dataset):
    with _make(dataset) as loader:
        seen = []
        for batch in loader:
            seen += batch.indices.tolist()
            doubled = jax.jit(lambda b: jax.tree.map(lambda x: x * 2, b))(batch)
            assert isinstance(doubled, datasetd.Batch)
            np.testing.assert_array_equal(
                doubled.label, 2 * np.asarray(batch.label)
            )
            assert len(jax.tree.leaves(batch)) == 2
            assert jnp.array_equal(jax.device_put(batch).image, batch.image)
        assert sorted(seen) == list(range(NUM_SAMPLES))


def test_a_resume(dataset):
    with _make(dataset) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
        rest = [np.array(b.image) for b in iterator]
    with _make(dataset) as loader:
        loader.load_state_dict(state)
        np.testing.assert_array_equal(
            np.concatenate([b.image for b in loader]), np.concatenate(rest)
        )
