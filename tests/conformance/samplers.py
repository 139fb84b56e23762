"""Samplers as jobs have them, for the tests of loaders."""

import numpy as np
import torch
import torch.utils.data as tud

N = 211  # the samples that they choose from


class Samples(tud.Dataset):
    """The judge's dataset: sample i is i."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return int(index)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def weights():
    return torch.rand(N, generator=generator(1)) ** 4


def distributed(num_replicas=1, rank=0):
    return tud.DistributedSampler(
        Samples(), num_replicas=num_replicas, rank=rank, seed=1
    )


class RandomSizes:
    """A batch_sampler of batches of 1 to 32 samples."""

    batch_size = 32

    def __init__(self, seed=3):
        self.seed = seed

    def __iter__(self):
        random = np.random.default_rng(self.seed)
        left = list(random.integers(0, N, 700))
        while left:
            size = int(random.integers(1, 33))
            yield left[:size]
            left = left[size:]


class Stateful:
    """A sampler with a state of its own, as torchdata's are."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.given = 0

    def __iter__(self):
        while self.given < 200:
            self.given += 1
            yield int(self.random.integers(0, N))
        self.given = 0

    def __len__(self):
        return 200

    def state_dict(self):
        return {
            "random": self.random.bit_generator.state,
            "given": self.given,
        }

    def load_state_dict(self, state):
        self.random.bit_generator.state = state["random"]
        self.given = state["given"]


class StatefulCount:
    """A sampler, or with `size` a batch_sampler, that counts what it yields, as
    torchdata's StatefulDistributedSampler does: between epochs its state is
    that of the end."""

    length = 200

    def __init__(self, size=None):
        self.size = self.batch_size = size
        self.yielded = 0
        self.next_yielded = None

    def __iter__(self):
        self.yielded = 0
        if self.next_yielded is not None:
            self.yielded = self.next_yielded
            self.next_yielded = None
        items = [(i * 31) % N for i in range(self.length)]
        if self.size is not None:
            items = [
                items[i : i + self.size]
                for i in range(0, self.length, self.size)
            ]
        for item in items[self.yielded :]:
            self.yielded += 1
            yield item

    def state_dict(self):
        return {"yielded": self.yielded}

    def load_state_dict(self, state):
        self.next_yielded = state["yielded"]


class StatefulIterator:
    """One whose iterators have the state."""

    class Run:
        def __init__(self):
            self.next = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.next == 200:
                raise StopIteration
            self.next += 1
            return (self.next * 31) % N

        def state_dict(self):
            return {"next": self.next}

        def load_state_dict(self, state):
            self.next = state["next"]

    def __iter__(self):
        return StatefulIterator.Run()
