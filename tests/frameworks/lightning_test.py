"""docs/frameworks.md: Lightning."""

import datasetd
import lightning
import pytest
import torch


def test_one_process_and_a_resume(page):
    _, batches = page.expect_exact_resume(
        "Lightning", checkpoint=(1, 2), kill=(1, 4)
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=1)


@pytest.mark.parametrize("loader", ["make_loader()", "make_loader().as_torch()"])
def test_two_processes_and_a_resume(page, loader):
    _, batches = page.expect_exact_resume(
        "Lightning",
        checkpoint=(1, 2),
        kill=(1, 4),
        ranks=2,
        changes=[
            ("devices=1", "devices=2"),
            ("return make_loader()", f"return {loader}"),
        ],
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=2)


def test_fabric_takes_the_loader_as_torch(dataset):
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        expected = [b.indices.tolist() for _ in range(3) for b in loader]
    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        batches = fabric.setup_dataloaders(loader.as_torch())
        seen = [b.indices.tolist() for b in batches]
        iterator = iter(batches)
        seen += [next(iterator).indices.tolist() for _ in range(4)]
        state = loader.state_dict()
    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        batches = fabric.setup_dataloaders(loader.as_torch())
        loader.load_state_dict(state)
        for _ in range(2):
            seen += [b.indices.tolist() for b in batches]
    assert seen == expected


class _Kept(lightning.LightningModule):
    """Keeps what it sees, as metrics do."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def validation_step(self, batch, batch_idx):
        self.seen.append(batch.label)

    def predict_step(self, batch, batch_idx):
        return batch.image


def test_validate_and_predict(dataset):
    whole = dataset[:]
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False
    )
    with datasetd.DataLoader(dataset, batch_size=8, prefetch=4) as loader:
        model = _Kept()
        trainer.validate(model, loader)
        assert torch.equal(torch.cat(model.seen), whole.label)
        # All images are kept, which is more than the daemon has room for.
        with pytest.warns(UserWarning, match="5 batches .* are kept"):
            images = trainer.predict(model, loader)
        assert torch.equal(torch.cat(images), whole.image)
