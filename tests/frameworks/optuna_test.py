"""docs/frameworks.md: Optuna."""


def test_trials_share_a_dataset(page, daemon):
    printed, batches = page.run("Optuna")
    assert "best {'lr':" in printed
    trials = batches.by_loader()
    assert len(trials) == 4
    for trial in trials:
        trial.expect_each_sample_once(num_epochs=2, world_size=1)
    # All trials of one seed get the same batches.
    assert len({tuple(trial.of(0)) for trial in trials}) == 1
    with daemon.connect() as client:
        assert [d["name"] for d in client.list_datasets()] == ["cifar10"]
