"""Usual training scripts, with datasetd's loader in place of torch's.

What each kind of user does, and the test that shows it; those of this file are
named alone, tests/frameworks/ have the packages of PyPI:

  README's example                          docs/examples_test.py
  MNIST's main.py                           test_a_script_trains_as_with_torch
  a CIFAR-10 speed run                      test_a_speed_run
  Lightning, Fabric                         frameworks/lightning_test.py
  Accelerate                                frameworks/accelerate_test.py
  the Trainer of transformers               frameworks/hf_trainer_test.py
  DistributedDataParallel, FSDP             ranks_test.py,
                                            frameworks/{ddp,fsdp}_test.py
  two ranks push the same                   push_identity_test.py
  JAX                                       frameworks/jax_test.py
  Ray Train and Tune, Optuna                frameworks/{ray,optuna}_test.py
  datasets of Hugging Face                  sources_packages.py
  audio, mel spectrograms                   test_audio
  keyword spotting; faces with voices       examples_test.py,
                                            audio_files_test.py
  nanoGPT, minGPT                           examples_test.py,
                                            frameworks/scripts_test.py
  tables, TensorDataset, DataFrame          push_columns_test.py
  segmentation                              test_segmentation
  regression, several labels, dicts         test_several_targets
  samplers, subsets, ragged images          dataset_test.py, weights_test.py,
                                            integration/ragged_test.py
  two jobs; SIGKILL of one, of the daemon   integration/{kill,restart}_test.py
  Ctrl-C                                    interrupt_test.py, wait_test.py
  threads, fork, spawn                      process_test.py, loader_test.py
  the release, without root                 deploy/{release,wheel}_test.py
"""

import itertools

import datasetd
import numpy as np
import pytest
import torch
import torch.utils.data as tud
from datasetd import transforms as T
from torch.nn import functional as F

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(6)
_N = 300


@pytest.fixture
def push(client):
    """Pushes data under a new name."""

    def pushed(data, **arguments):
        name = f"scenario-{next(_NUMBERS)}"
        return client.push_dataset(name, data, **arguments)

    return pushed


# -- MNIST's main.py -----------------------------------------------------------


def _digits():
    """[N, 8, 8, 1] with a class that shows, and the classes."""
    labels = np.arange(_N) % 10
    images = _RANDOM.integers(0, 100, (_N, 8, 8, 1), np.uint8)
    images[np.arange(_N), labels // 8, labels % 8] += 150
    return images, labels


def _train(model, loader, optimizer):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to("cpu"), target.to("cpu")
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
    assert batch_idx == len(loader) - 1


def _test(model, loader):
    model.eval()
    loss, correct, predictions = 0.0, 0, []
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            prediction = output.argmax(dim=1, keepdim=True)
            predictions.append(prediction)
            correct += prediction.eq(target.view_as(prediction)).sum().item()
    size = len(loader.dataset)
    assert len(torch.cat(predictions)) == size == _N
    return loss / size, correct / size


def _run(train_loader, test_loader):
    torch.manual_seed(2)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.LogSoftmax(1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(8):
        _train(model, train_loader, optimizer)
    return _test(model, test_loader), model[1].weight.detach()


def test_a_script_trains_as_with_torch(push):
    images, labels = _digits()
    order = _RANDOM.permutation(_N).tolist()
    planes = torch.from_numpy(images.transpose(0, 3, 1, 2)).float().div(255)
    samples = tud.TensorDataset(planes, torch.from_numpy(labels))
    expected, weights = _run(
        tud.DataLoader(samples, batch_size=64, sampler=order),
        tud.DataLoader(samples, batch_size=1000),
    )
    dataset = push((images, labels))
    arguments = {"transforms": [T.ToDtype("float32", scale=True)]}
    got, got_weights = _run(
        datasetd.DataLoader(dataset, 64, sampler=order, **arguments),
        datasetd.DataLoader(dataset, batch_size=1000, **arguments),
    )
    assert got == expected and torch.equal(got_weights, weights)
    assert got[1] > 0.9


# -- CIFAR-10 speed runs -------------------------------------------------------


def test_a_speed_run(client, push):
    images = _RANDOM.integers(0, 256, (_N, 8, 8, 3), np.uint8)
    dataset = push((images, np.arange(_N) % 10))
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    pipeline = [
        T.AlternatingFlip(),
        T.ToDtype("float16", scale=True),
        T.Normalize(mean, std),
    ]
    # Whitening looks at some samples as they are.
    whole = client.fetch(dataset, range(100)).image
    np.testing.assert_array_equal(whole, images[:100].transpose(0, 3, 1, 2))
    with datasetd.DataLoader(
        dataset,
        batch_size=50,
        shuffle=True,
        seed=1,
        drop_last=True,
        layout="NHWC",
        transforms=pipeline,
    ) as loader:
        epochs = []
        for _ in range(2):
            got = torch.empty(_N, 3, 8, 8, dtype=torch.float16)
            for batch in loader:
                assert batch.image.is_contiguous(
                    memory_format=torch.channels_last
                )
                got[batch.indices] = batch.image
            epochs.append(got)
        test = loader.fetch(range(_N), epoch=0).image
    # Each sample is flipped in one of two epochs, and in either half of them.
    assert torch.equal(epochs[0], epochs[1].flip(3))
    assert torch.equal(test, epochs[0])
    plain = torch.from_numpy(images.transpose(0, 3, 1, 2)).float() / 255
    plain = (plain - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(
        3, 1, 1
    )
    kept = (epochs[0].float() - plain).abs().amax((1, 2, 3)) < 0.01
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(
        epochs[1][~kept].float(), plain[~kept], rtol=0, atol=0.01
    )


# -- Segmentation --------------------------------------------------------------


def test_segmentation(push):
    masks = _RANDOM.integers(0, 21, (_N, 16, 16), np.uint8)
    images = np.repeat(masks[..., None] * 10, 3, axis=3)
    dataset = push(
        {"image": images, "target": masks},
        fields={"image": "image", "target": "mask"},
    )
    both = ["image", "target"]
    transforms = [
        T.RandomCrop(12, padding=2, fields=both),
        T.RandomHorizontalFlip(fields=both),
        T.ToDtype("float32"),
    ]
    net = torch.nn.Conv2d(3, 21, 3, padding=1)
    seen = []
    with datasetd.DataLoader(
        dataset, 32, True, seed=1, transforms=transforms
    ) as loader:
        for batch in loader:
            classes = batch.target.squeeze(1).long()
            F.cross_entropy(net(batch.image), classes).backward()
            # The mask is moved as its image is.
            assert torch.equal(batch.image[:, 0], classes.float() * 10)
            seen += batch.indices.tolist()
    assert sorted(seen) == list(range(_N))


# -- Other fields --------------------------------------------------------------


def test_several_targets(push):
    images = _RANDOM.integers(0, 256, (_N, 4, 4, 3), np.uint8)
    tags = _RANDOM.integers(0, 2, (_N, 5)).astype(np.float32)
    ages = _RANDOM.random(_N, dtype=np.float32)
    dataset = push(
        [
            {"photo": image, "tags": tag, "age": age}
            for image, tag, age in zip(images, tags, ages)
        ]
    )

    def loss_of(photo, tags, age):
        rows = net(photo.flatten(1))
        return F.binary_cross_entropy_with_logits(
            rows[:, :5], tags
        ) + F.mse_loss(rows[:, 5], age)

    net = torch.nn.Linear(48, 6)
    with datasetd.DataLoader(
        dataset,
        batch_size=32,
        shuffle=True,
        seed=1,
        transforms={"photo": [T.ToDtype("float32", scale=True)]},
    ) as loader:
        seen = []
        for batch in loader:
            loss_of(**batch).backward()
            np.testing.assert_array_equal(batch["tags"], tags[batch.indices])
            np.testing.assert_array_equal(batch.age, ages[batch.indices])
            seen += batch.indices.tolist()
    assert sorted(seen) == list(range(_N))


def test_audio(push):
    waves = _RANDOM.standard_normal((60, 1, 1600), dtype=np.float32)
    mels = _RANDOM.standard_normal((60, 1, 20, 30), dtype=np.float32)
    dataset = push(
        [
            (torch.from_numpy(wave), 16000, torch.from_numpy(mel), i % 4)
            for i, (wave, mel) in enumerate(zip(waves, mels))
        ],
        fields=["wave", "rate", "mel", "label"],
    )
    with datasetd.DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        seed=1,
        transforms={"mel": [T.Normalize([0.5], [2.0])]},
    ) as loader:
        for batch in loader:
            rows = batch.indices
            np.testing.assert_array_equal(batch.wave, waves[rows])
            np.testing.assert_array_equal(batch.label, rows % 4)
            assert batch.rate.tolist() == [16000] * len(rows)
            np.testing.assert_allclose(
                batch.mel, (mels[rows] - 0.5) / 2, rtol=1e-6, atol=1e-6
            )
