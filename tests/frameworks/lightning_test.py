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


class _Recorded(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen += batch.indices.tolist()
        return self.weight * 0

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("is_torch", [False, True])
def test_a_resume_after_whole_epochs(dataset, tmp_path, is_torch, validates):
    def fit(num_epochs, checkpoint=None):
        save = lightning.pytorch.callbacks.ModelCheckpoint(
            tmp_path, save_last=True, save_on_train_epoch_end=not validates
        )
        trainer = lightning.Trainer(
            max_epochs=num_epochs, accelerator="cpu", logger=False,
            enable_progress_bar=False, callbacks=save,
        )
        model = _Recorded()
        with datasetd.DataLoader(
            dataset, 32, True, seed=1
        ) as loader, datasetd.DataLoader(dataset, 100) as checks:
            trainer.fit(
                model, loader.as_torch() if is_torch else loader,
                checks if validates else None, ckpt_path=checkpoint,
            )
        return model.seen

    with datasetd.DataLoader(dataset, 32, True, seed=1) as loader:
        expected = [i for _ in range(4) for b in loader for i in b.indices.tolist()]
    half = len(expected) // 2
    assert fit(2) == expected[:half]
    assert fit(4, tmp_path / "last.ckpt") == expected[half:]


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


@pytest.mark.parametrize("count", [1, 2, 0.5])
def test_overfitting(dataset, count):
    def fit(shuffle):
        model = _Recorded()
        trainer = lightning.Trainer(
            overfit_batches=count, max_epochs=2, accelerator="cpu",
            logger=False, enable_progress_bar=False,
            enable_checkpointing=False,
        )
        with datasetd.DataLoader(dataset, 100, shuffle) as loader:
            trainer.fit(model, loader.as_torch())
        return model.seen

    wanted = list(range({1: 100, 2: 200, 0.5: 200}[count]))
    assert fit(False) == wanted * 2
    with pytest.raises(
        datasetd.InvalidArgument, match=r"overfit_batches=\).*without shuffle="
    ):
        fit(True)


def test_predict_takes_the_loader_as_torch(dataset):
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False
    )
    with datasetd.DataLoader(dataset, batch_size=100) as loader:
        images = trainer.predict(_Kept(), loader.as_torch())
        assert torch.equal(torch.cat(images), dataset[:].image)
