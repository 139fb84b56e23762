"""The workloads: data of the published shape, and the same ops for each peer.

Data is generated, of the byte format and size of the real set: NumPy arrays,
one file a field. `transforms()` is what datasetd runs, `torchvision()` what a
DataLoader's dataset runs on one PIL image.
"""

import dataclasses
import os

import numpy as np

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    num_samples: int
    # The image of one sample.
    image_shape: tuple  # [H, W, C]
    batch_size: int
    mean: tuple
    std: tuple
    # Elements of a float32 vector that travels with the image; 0: none.
    audio_elements: int = 0
    dtype: str = "float32"
    layout: str = "NCHW"
    drop_last: bool = True

    def arrays(self):
        """{field: [N, ...]}, the same for every call."""
        random = np.random.default_rng(7)
        n, (height, width, channels) = self.num_samples, self.image_shape
        # Noise that changes slowly, as photographs do: a coarse grid, blown up.
        coarse = random.integers(
            0, 256, (n, (height + 7) // 8, (width + 7) // 8, channels), np.uint8
        )
        image = np.empty((n, height, width, channels), np.uint8)
        for first in range(0, n, 1024):
            part = coarse[first:first + 1024]
            part = part.repeat(8, axis=1).repeat(8, axis=2)
            image[first:first + 1024] = part[:, :height, :width]
        fields = {"image": image, "label": np.arange(n, dtype=np.int64) % 10}
        if self.audio_elements:
            fields["audio"] = random.standard_normal(
                (n, self.audio_elements), np.float32
            )
        return fields

    def write(self, directory):
        os.makedirs(directory, exist_ok=True)
        for name, values in self.arrays().items():
            np.save(os.path.join(directory, name + ".npy"), values)

    def transforms(self):
        """datasetd's ops on the image."""
        from datasetd import transforms as T

        return _DATASETD[self.name](T) + [
            T.ToDtype(self.dtype, scale=True),
            T.Normalize(list(self.mean), list(self.std)),
        ]

    def torchvision(self):
        """The same ops, of one PIL image."""
        import torchvision.transforms as V

        return V.Compose(
            _TORCHVISION[self.name](V)
            + [V.ToTensor(), V.Normalize(self.mean, self.std)]
        )


_DATASETD = {
    "W1": lambda T: [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()],
    "W2": lambda T: [T.Resize((224, 224))],
    "W3": lambda T: [],
    "W4": lambda T: [
        T.Resize((160, 160)),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
        T.RandomRotation(10),
        T.ColorJitter(0.05, 0.05, 0.05, 0.05),
    ],
    "W6": lambda T: [T.RandomResizedCrop(224), T.RandomHorizontalFlip()],
    "W10": lambda T: [
        T.RandomCrop(32, padding=4, padding_mode="reflect"),
        T.RandomHorizontalFlip(),
    ],
}

_TORCHVISION = {
    "W1": lambda V: [V.RandomCrop(32, padding=4), V.RandomHorizontalFlip()],
    "W2": lambda V: [V.Resize((224, 224))],
    "W3": lambda V: [],
    "W4": lambda V: [
        V.Resize((160, 160)),
        V.RandomHorizontalFlip(),
        V.RandomVerticalFlip(),
        V.RandomRotation(10),
        V.ColorJitter(0.05, 0.05, 0.05, 0.05),
    ],
    "W6": lambda V: [V.RandomResizedCrop(224), V.RandomHorizontalFlip()],
    "W10": lambda V: [
        V.RandomCrop(32, padding=4, padding_mode="reflect"),
        V.RandomHorizontalFlip(),
    ],
}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "W1", "CIFAR-10, pad 4, crop, flip, normalise, float32",
            50000, (32, 32, 3), 128, CIFAR_MEAN, CIFAR_STD,
        ),
        Workload(
            "W2", "32x32 to 224x224, normalise, float32",
            10000, (32, 32, 3), 32, (0.5,) * 3, (0.5,) * 3,
        ),
        Workload(
            "W3", "MNIST, normalise, float32",
            60000, (28, 28, 1), 64, (0.1307,), (0.3081,),
        ),
        Workload(
            "W4", "image 160x160 with flips, rotation, colour; audio vector",
            1440, (240, 320, 3), 32, (0.5,) * 3, (0.5,) * 3,
            audio_elements=180,
        ),
        Workload(
            "W6", "256x256, random resized crop 224, flip, normalise, float32",
            2000, (256, 256, 3), 64, IMAGENET_MEAN, IMAGENET_STD,
        ),
        Workload(
            "W10", "CIFAR-10, reflect 4, crop, flip, float16 channels_last",
            50000, (32, 32, 3), 2000, CIFAR_MEAN, CIFAR_STD,
            dtype="float16", layout="NHWC",
        ),
    )
}
