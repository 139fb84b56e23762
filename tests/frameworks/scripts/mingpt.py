"""The shape of minGPT's chargpt: a text as characters, windows of which are drawn
with replacement; the dataset's class and the endless iterator of the trainer are
replaced by windows of a stream."""

import json
import sys

import datasetd
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

BLOCK_SIZE, BATCH_SIZE, NUM_ITERS = 16, 32, 300


class CharDataset:
    """The characters of a text as indices, resident once."""

    def __init__(self, data):
        chars = sorted(set(data))
        self.stoi = {ch: i for i, ch in enumerate(chars)}
        self.itos = dict(enumerate(chars))
        self.vocab_size = len(chars)
        tokens = np.array([self.stoi[ch] for ch in data], np.uint16)
        self.tokens = datasetd.push("chars", {"tokens": tokens})


class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 32)
        self.mix = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, vocab_size)

    def forward(self, x):
        return self.head(self.mix(self.embed(x))[0])


def complete(model, dataset, context, length):
    """What the model takes for likeliest to come."""
    x = torch.tensor([[dataset.stoi[ch] for ch in context]])
    with torch.no_grad():
        for _ in range(length):
            following = model(x)[:, -1:].argmax(-1)
            x = torch.cat([x, following], 1)
    return "".join(dataset.itos[int(i)] for i in x[0])


def main(path):
    torch.manual_seed(1337)
    with open(path) as file:
        train_dataset = CharDataset(file.read())
    model = Model(train_dataset.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    windows = datasetd.random_windows(BLOCK_SIZE, NUM_ITERS * BATCH_SIZE)
    losses = []
    for x, y in datasetd.DataLoader(
        train_dataset.tokens, BATCH_SIZE, windows=windows, seed=1337
    ):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    print(
        json.dumps(
            {
                "iterations": len(losses),
                "first": losses[0],
                "last": losses[-1],
                "completion": complete(model, train_dataset, "to be", 20),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
