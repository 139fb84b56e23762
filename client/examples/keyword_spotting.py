"""Trains a small network to tell spoken words, on log-mel spectrograms that a
datasetd daemon makes.

    python3 keyword_spotting.py DIR [--epochs 10]

DIR has the layout of Speech Commands: a directory of WAV files for each word,
and validation_list.txt and testing_list.txt, which name the files that do not
train. It needs the package soundfile.
"""

import argparse
import pathlib

import datasetd
import torch
from datasetd import transforms as T
from torch import nn

LOG_MEL = [
    T.ToDtype("float32", scale=True),
    T.MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=64),
    T.AmplitudeToDB(top_db=80),
]
NORMALIZE = T.Normalize([-30], [20])
# Louder or quieter, earlier or later, and the masks of SpecAugment.
AUGMENTED = [
    LOG_MEL[0],
    T.Gain(-12, 6),
    T.Shift(-0.1, 0.1, rollover=False),
    *LOG_MEL[1:],
    T.TimeMasking(20),
    T.FrequencyMasking(8),
    NORMALIZE,
]


def read_splits(root: pathlib.Path) -> "tuple[list[str], dict[str, list[int]]]":
    """Returns the words, and the indices of each split's clips, which are in
    the order of their words and files."""
    words = sorted(
        path.name for path in root.iterdir()
        if path.is_dir() and not path.name.startswith("_")
    )  # fmt: skip
    names = [
        f"{word}/{path.name}"
        for word in words
        for path in sorted((root / word).glob("*.wav"))
    ]
    splits = {"training": list(range(len(names)))}
    for split in ("validation", "testing"):
        listed = set((root / f"{split}_list.txt").read_text().split())
        splits[split] = [i for i, name in enumerate(names) if name in listed]
        splits["training"] = [
            i for i in splits["training"] if names[i] not in listed
        ]
    return words, splits


def make_model(num_words: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    return nn.Sequential(
        block(1, 16),
        block(16, 32),
        nn.AdaptiveAvgPool2d((16, 1)),
        nn.Flatten(),
        nn.Linear(32 * 16, num_words),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="directory of Speech Commands")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=128)
    arguments = parser.parse_args()
    root = pathlib.Path(arguments.path)
    words, splits = read_splits(root)
    # All clips are in memory once, as they are in the files; without
    # _background_noise_.
    clips = datasetd.load(
        "audio_folder",
        root,
        options={"dtype": "int16"},
        classes=words,
        ignore_other_classes=True,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )

    def loader(split: str, ops: list) -> datasetd.DataLoader:
        return datasetd.DataLoader(
            clips.select(splits[split]),
            arguments.batch_size,
            shuffle=split == "training",
            seed=1,
            windows=datasetd.crops(16000),  # the shorter ones padded
            transforms={"audio": ops},
            fields=["audio", "label"],
        )

    torch.manual_seed(1)
    device = "cpu" if clips.device == "cpu" else "cuda"
    model = make_model(len(words)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    training = loader("training", AUGMENTED)
    for _ in range(arguments.epochs):
        model.train()
        for audio, label in training:  # float32 [B, 64, 101], int64 [B]
            loss = nn.functional.cross_entropy(model(audio[:, None]), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    for split in ("validation", "testing"):
        right = 0
        with torch.no_grad():
            for audio, label in loader(split, [*LOG_MEL, NORMALIZE]):
                right += (model(audio[:, None]).argmax(1) == label).sum().item()
        print(f"{split}: {right} of {len(splits[split])} words")


if __name__ == "__main__":
    main()
