"""MixUp and CutMix: batches are those of torch's formulas."""

import datasetd
import numpy as np
import pytest
import torch
from datasetd import transforms as T

N = 43
HEIGHT, WIDTH = 9, 14
CLASSES = 5
FLOAT = [T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(3).integers(0, CLASSES, N)


@pytest.fixture
def pictures(client, data_root, labels):
    directory = data_root / "pictures"
    if not directory.exists():
        directory.mkdir()
        random = np.random.default_rng(7)
        shape = (N, HEIGHT, WIDTH, 3)
        images = random.integers(0, 256, shape, dtype=np.uint8)
        np.save(directory / "image.npy", images)
        np.save(directory / "label.npy", labels.astype(np.int16))
        np.save(directory / "weight.npy", np.arange(N, dtype=np.float32))
    return client.load_dataset("pictures", format="npy", path=directory)


def epoch_of(dataset, transforms, epoch=1, **arguments):
    """The batches of an epoch: clones."""
    arguments.setdefault("batch_size", 8)
    with datasetd.DataLoader(
        dataset, shuffle=True, seed=9, transforms=transforms, **arguments
    ) as loader:
        loader.set_epoch(epoch)
        return [
            (b.image.clone(), b.label.clone(), b.weight.clone())
            for b in loader
        ]


def one_hot(labels):
    return torch.nn.functional.one_hot(labels, CLASSES).float()


def lambdas_of(mixed, plain):
    """Lambda of each row; NaN where own and partner's labels are the same."""
    own = plain.long()
    lambdas = mixed.gather(1, own[:, None])[:, 0].double()
    lambdas[own == own.roll(1)] = float("nan")
    return lambdas


def lambda_of(mixed, plain):
    lambdas = lambdas_of(mixed, plain)
    lambdas = lambdas[~lambdas.isnan()]
    assert len(lambdas) > 0 and (lambdas == lambdas[0]).all()
    return lambdas[0].item()


def mix(x, lam):
    """As torchvision.transforms.v2.MixUp does."""
    return x.roll(1, 0).mul_(1.0 - lam).add_(x.mul(lam))


def test_mix_up_is_torchs(pictures):
    plain = epoch_of(pictures, FLOAT)
    mixed = epoch_of(pictures, FLOAT + [T.MixUp(num_classes=CLASSES)])
    assert len(plain) == len(mixed) == 6
    lambdas = []
    for (image, label, weight), (out, soft, same) in zip(plain, mixed):
        assert soft.dtype == torch.float32
        assert soft.shape == (len(label), CLASSES)
        lam = lambda_of(soft, label)
        lambdas.append(lam)
        torch.testing.assert_close(out, mix(image, lam), rtol=0, atol=1e-6)
        torch.testing.assert_close(
            soft, mix(one_hot(label), lam), rtol=0, atol=1e-6
        )
        assert torch.equal(weight, same)
    # The last batch is short: rows roll over those that there are.
    assert len(mixed[-1][0]) == 3
    assert len(set(lambdas)) == 6 and all(0 < lam < 1 for lam in lambdas)


def test_cut_mix_is_torchs(pictures):
    plain = epoch_of(pictures, FLOAT)
    mixed = epoch_of(pictures, FLOAT + [T.CutMix(num_classes=CLASSES)])
    boxes = []
    for (image, label, _), (out, soft, _) in zip(plain, mixed):
        lam = lambda_of(soft, label)
        is_partner = (out != image).any(1)
        box = is_partner.any(0)
        rows, columns = box.any(1).nonzero(), box.any(0).nonzero()
        top, bottom = (int(rows.min()), int(rows.max()) + 1) if len(
            rows
        ) else (0, 0)
        left, right = (int(columns.min()), int(columns.max()) + 1) if len(
            columns
        ) else (0, 0)
        expected = image.clone()
        expected[..., top:bottom, left:right] = image.roll(1, 0)[
            ..., top:bottom, left:right
        ]
        assert torch.equal(out, expected)
        area = (bottom - top) * (right - left)
        assert lam == pytest.approx(1 - area / (HEIGHT * WIDTH), abs=1e-6)
        torch.testing.assert_close(
            soft, mix(one_hot(label), lam), rtol=0, atol=1e-6
        )
        boxes.append((top, left, bottom, right))
    assert len(set(boxes)) > 3


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_mix_up_per_sample(pictures, layout):
    op = T.MixUp(alpha=0.8, num_classes=CLASSES, per_sample=True)
    plain = epoch_of(pictures, FLOAT, layout=layout)
    mixed = epoch_of(pictures, FLOAT + [op], layout=layout)
    seen = set()
    for (image, label, _), (out, soft, _) in zip(plain, mixed):
        lambdas = lambdas_of(soft, label)
        known = ~lambdas.isnan()
        lam = lambdas.float()[:, None, None, None]
        expected = image.roll(1, 0) * (1 - lam) + image * lam
        torch.testing.assert_close(
            out[known], expected[known], rtol=0, atol=1e-6
        )
        seen |= set(lambdas[known].tolist())
    assert len(seen) > 25


def test_bytes_are_rounded_once(pictures):
    plain = epoch_of(pictures, [])
    mixed = epoch_of(pictures, [T.MixUp(num_classes=CLASSES)])
    for (image, label, _), (out, soft, _) in zip(plain, mixed):
        assert out.dtype == torch.uint8
        exact = mix(image.double(), lambda_of(soft, label))
        assert (out.double() - exact).abs().max() <= 0.5001


def test_alpha_decides_how_much_is_mixed(pictures):
    def spread(alpha):
        op = T.MixUp(alpha=alpha, num_classes=CLASSES, per_sample=True)
        found = []
        for epoch in range(4):
            plain = epoch_of(pictures, [], epoch)
            mixed = epoch_of(pictures, [op], epoch)
            for (_, label, _), (_, soft, _) in zip(plain, mixed):
                lambdas = lambdas_of(soft, label)
                found += lambdas[~lambdas.isnan()].tolist()
        return np.mean(np.abs(np.array(found) - 0.5))

    # The mean distance from 1/2 in Beta(a, a): near 1/2 for a small a, near 0
    # for a large one.
    assert spread(0.05) > 0.4
    assert spread(500.0) < 0.05


def test_ranks_count_batches_together(pictures):
    op = T.MixUp(num_classes=CLASSES, per_sample=False)

    def lambdas(**arguments):
        plain = epoch_of(pictures, [], batch_size=5, **arguments)
        mixed = epoch_of(pictures, [op], batch_size=5, **arguments)
        return [
            lambda_of(soft, label)
            for (_, label, _), (_, soft, _) in zip(plain, mixed)
        ]

    alone = lambdas()
    for rank in (0, 1):
        of_rank = lambdas(rank=rank, world_size=2)
        shared = alone[rank::2]
        count = min(len(of_rank), len(shared))
        assert count >= 4
        assert of_rank[:count] == shared[:count]


@pytest.mark.parametrize("op", [T.MixUp, T.CutMix])
def test_classes_are_checked(pictures, labels, op):
    with pytest.raises(
        datasetd.InvalidArgument,
        match=f"num_classes is 4, but sample {labels.tolist().index(4)} of "
        "dataset 'pictures' has the label 4",
    ):
        epoch_of(pictures, [op(num_classes=CLASSES - 1)])


@pytest.fixture
def pairs(client, data_root, labels):
    """Two images of one size, and one of another."""
    directory = data_root / "pairs"
    if not directory.exists():
        directory.mkdir()
        random = np.random.default_rng(8)
        for name, height in (("left", HEIGHT), ("right", HEIGHT), ("low", 3)):
            shape = (N, height, WIDTH, 3)
            images = random.integers(0, 256, shape, dtype=np.uint8)
            np.save(directory / f"{name}.npy", images)
        np.save(directory / "label.npy", labels)
    return client.load_dataset("pairs", format="npy", path=directory)


def pairs_of(dataset, *ops):
    to_float = T.ToDtype("float32", fields=["left", "right", "low"])
    with datasetd.DataLoader(
        dataset, batch_size=8, shuffle=True, seed=9,
        transforms=[to_float, *ops],
    ) as loader:
        return [
            {name: getattr(b, name).clone()
             for name in ("left", "right", "low", "label")}
            for b in loader
        ]


@pytest.mark.parametrize("per_sample", [False, True])
def test_images_of_one_op_have_one_lambda(pairs, per_sample):
    fields = ["left", "right", "low"]
    op = T.MixUp(num_classes=CLASSES, per_sample=per_sample, fields=fields)
    plain, mixed = pairs_of(pairs), pairs_of(pairs, op)
    assert len(plain) == len(mixed) == 6
    for before, after in zip(plain, mixed):
        lambdas = lambdas_of(after["label"], before["label"])
        known = ~lambdas.isnan()
        assert known.any()
        lam = lambdas.float()[:, None, None, None]
        for field in fields:
            image = before[field]
            expected = image.roll(1, 0) * (1 - lam) + image * lam
            torch.testing.assert_close(
                after[field][known], expected[known], rtol=0, atol=1e-4
            )
        if per_sample:
            continue
        torch.testing.assert_close(
            after["label"],
            mix(one_hot(before["label"]), lambdas[known][0].item()),
            rtol=0, atol=1e-6,
        )


def test_images_of_one_op_have_one_box(pairs):
    op = T.CutMix(num_classes=CLASSES, fields=["left", "right"])
    for before, after in zip(pairs_of(pairs), pairs_of(pairs, op)):
        lam = lambda_of(after["label"], before["label"])
        boxes = [
            (after[field] != before[field]).any(1).any(0)
            for field in ("left", "right")
        ]
        # Noise of one pixel in 2^24 is alike: there are 126 pixels of 8 rows.
        assert torch.equal(boxes[0], boxes[1])
        assert boxes[0].sum().item() == pytest.approx(
            (1 - lam) * HEIGHT * WIDTH, abs=1e-3
        )
        assert torch.equal(after["low"], before["low"])


@pytest.mark.parametrize(
    "ops, text",
    [
        (
            [T.MixUp(num_classes=CLASSES, fields="left"),
             T.MixUp(num_classes=CLASSES, fields="right")],
            "mixed by field 'left' already.*give both images one op",
        ),
        (
            [T.CutMix(num_classes=CLASSES, fields=["left", "low"])],
            "images of one size.*field 'left' has 9x14 here, this one 3x14",
        ),
    ],
)
def test_labels_are_mixed_once(pairs, ops, text):
    with pytest.raises(datasetd.InvalidArgument, match=text):
        pairs_of(pairs, *ops)


def test_explain_names_the_mix(client, pictures):
    told = client.explain(
        pictures, FLOAT + [T.MixUp(alpha=0.25, num_classes=CLASSES)],
        indices=[0, 1],
    )
    for ops in told:
        last = ops[-1]
        assert (last.name, last.position) == ("MixUp", 2)
        assert list(last.parameters["alpha"]) == [0.25]
