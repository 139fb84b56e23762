"""docs/frameworks.md: JAX."""

import datasetd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def test_places_in_a_mixture(dataset):
    """JAX makes 32 bits of their 64."""
    with _make(datasetd.concat([dataset, dataset])) as loader:
        seen = []
        for batch in loader:
            assert batch.indices.dtype == batch.dataset_index.dtype == jnp.int32
            kept = batch.clone()
            seen += zip(kept.dataset_index.tolist(), batch.indices.tolist())
        assert sorted(seen) == [
            (d, i) for d in range(2) for i in range(NUM_SAMPLES)
        ]


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


@pytest.mark.parametrize(
    "values, dtype",
    [
        (np.array([5, 2**33]), "int32"),
        (np.array([5, -(2**31) - 1]), "int32"),
        (np.array([[1, 2], [3, 2**40]]), "int32"),
        (np.array([1.0, 1e300]), "float32"),
    ],
)
def test_what_jax_would_cut_to_32_bits(daemon, values, dtype):
    """JAX itself makes 0, or inf, of it."""
    with daemon.connect() as client, client.push_dataset(
        f"wide-{abs(hash(values.tobytes()))}", {"user_id": values, "x": np.arange(2)}
    ) as dataset:
        with datasetd.DataLoader(dataset, 2, framework="jax") as loader:
            for _ in range(2):
                with pytest.raises(
                    datasetd.InvalidArgument,
                    match=f"'user_id': .* does not fit {dtype}.*"
                    "jax_enable_x64.*fields=",
                ):
                    next(iter(loader))
            with pytest.raises(datasetd.InvalidArgument, match="not fit"):
                loader.fetch([0, 1])
        with datasetd.DataLoader(
            dataset, 2, framework="jax", fields=["x"]
        ) as loader:
            assert next(iter(loader)).x.tolist() == [0, 1]
            fetched = loader.fetch([1, 0])
            assert fetched.x.tolist() == fetched.indices.tolist() == [1, 0]
        jax.config.update("jax_enable_x64", True)
        try:
            with datasetd.DataLoader(dataset, 2, framework="jax") as loader:
                batch = next(iter(loader))
                assert batch.user_id.tolist() == values.tolist()
        finally:
            jax.config.update("jax_enable_x64", False)


def test_what_fits_32_bits(daemon):
    columns = {
        "i": np.array([2**31 - 1, -(2**31)]),
        "f": np.array([np.inf, np.finfo(np.float32).max, np.nan])[:2],
    }
    with daemon.connect() as client, client.push_dataset(
        "narrow", columns
    ) as dataset, datasetd.DataLoader(dataset, 2, framework="jax") as loader:
        (batch,) = loader
        assert batch.i.tolist() == columns["i"].tolist()
        assert batch.f.tolist() == columns["f"].tolist()
        assert batch.valid.tolist() == [True, True]
        assert "i: int32 [2], f: float32 [2]" in repr(batch)
