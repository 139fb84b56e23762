"""The output that a loader must give, written again in plain NumPy.

Shards from torch's DistributedSampler and BatchSampler, pixels from
torchvision's definitions of the ops, draws from the description in
cuda/kernels/math/random.h and params.h. Slow and straightforward on purpose; shares
no code with the daemon.
"""

import numpy as np

from tests.conformance.random_reference import philox

# -- Order ------------------------------------------------------------------


def batches_of_rank(order, rank, world_size, batch_size, drop_last):
    """[(indices, num_padding)] of one rank, from an epoch's global order, by
    torch's own samplers."""
    from torch.utils.data import BatchSampler, DistributedSampler

    n = len(order)
    shard = DistributedSampler(
        range(n), world_size, rank, shuffle=False, drop_last=drop_last
    )
    result, position = [], rank
    for batch in BatchSampler(shard, batch_size, drop_last):
        end = position + len(batch) * world_size
        padding = sum(p >= n for p in range(position, end, world_size))
        result.append(([order[place] for place in batch], padding))
        position = end
    return result


# -- Draws ------------------------------------------------------------------


class Draws:
    """The random parameters of the ops on one sample.

    `field` is the field's place in the dataset: an op's number is
    field << 8 | its place in the pipeline.
    """

    def __init__(self, seed, epoch, sample, field=0):
        self.seed = seed
        self.epoch = epoch
        self.sample = sample
        self.field = field

    def _words(self, place, epoch):
        return philox([0, self.field << 8 | place, epoch, self.sample], self.seed)

    def crop(self, place, num_tops, num_lefts):
        """(top, left) of a RandomCrop, each equally likely."""
        words = self._words(place, self.epoch)
        return (words[0] * num_tops) >> 32, (words[1] * num_lefts) >> 32

    def flips(self, place, p):
        uniform = np.float32(self._words(place, self.epoch)[0] >> 8) / (
            np.float32(1 << 24)
        )
        return bool(uniform < np.float32(p))

    def alternating_flips(self, place):
        bit = self._words(place, 0)[0] & 1
        return bit != (self.epoch & 1)


# -- Pixels -----------------------------------------------------------------
#
# An image is [H, W, C], uint8 or float32.


def pad(image, padding, fill=0, mode="constant"):
    """padding: (left, top, right, bottom); fill: a number or one a channel."""
    left, top, right, bottom = padding
    widths = ((top, bottom), (left, right), (0, 0))
    if mode != "constant":
        return np.pad(image, widths, mode=mode)
    fill = np.broadcast_to(np.asarray(fill, image.dtype), image.shape[2:])
    height, width, channels = image.shape
    result = np.empty(
        (height + top + bottom, width + left + right, channels), image.dtype
    )
    result[...] = fill
    result[top : top + height, left : left + width] = image
    return result


def crop(image, top, left, height, width):
    return image[top : top + height, left : left + width]


def center_crop(image, height, width):
    """torchvision's: pads with zeros what is too small, odd pixels go right
    and below; then rounds halves to even."""
    lack_y = max(height - image.shape[0], 0)
    lack_x = max(width - image.shape[1], 0)
    if lack_y or lack_x:
        image = pad(
            image,
            (lack_x // 2, lack_y // 2, (lack_x + 1) // 2, (lack_y + 1) // 2),
        )
    top = int(round((image.shape[0] - height) / 2.0))
    left = int(round((image.shape[1] - width) / 2.0))
    return crop(image, top, left, height, width)


def to_float(image, scale):
    result = image.astype(np.float32)
    if scale and image.dtype == np.uint8:
        result = result / np.float32(255)
    return result


def normalize(image, mean, std):
    return (image - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def round_to(image, dtype):
    """Rounded once, to nearest even; of bfloat16 the bits, as uint16."""
    if dtype != "bfloat16":
        return image.astype(dtype)
    bits = np.ascontiguousarray(image).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Numpy:
    """The operations above, as apply() wants them."""

    pad = staticmethod(pad)
    crop = staticmethod(crop)
    center_crop = staticmethod(center_crop)
    to_float = staticmethod(to_float)
    normalize = staticmethod(normalize)

    @staticmethod
    def flip_horizontally(image):
        return image[:, ::-1]

    @staticmethod
    def flip_vertically(image):
        return image[::-1]

    @staticmethod
    def size(image):
        return image.shape[:2]


def apply(ops, image, draws, library=Numpy):
    """Runs a pipeline of datasetd.transforms on one image, before rounding.

    Random ops take what `draws` gives and are then `library`'s functional ones.
    """
    for place, op in enumerate(ops):
        kind = type(op).__name__
        if kind == "RandomCrop":
            height, width = op.size
            left, top, right, bottom = op.padding or (0, 0, 0, 0)
            rows, columns = library.size(image)
            if op.pad_if_needed:
                lack_y = max(height - (rows + top + bottom), 0)
                lack_x = max(width - (columns + left + right), 0)
                top, bottom = top + lack_y, bottom + lack_y
                left, right = left + lack_x, right + lack_x
            image = library.pad(
                image, (left, top, right, bottom), op.fill, op.padding_mode
            )
            rows, columns = library.size(image)
            at = draws.crop(place, rows - height + 1, columns - width + 1)
            image = library.crop(image, *at, height, width)
        elif kind == "RandomHorizontalFlip":
            if draws.flips(place, op.p):
                image = library.flip_horizontally(image)
        elif kind == "RandomVerticalFlip":
            if draws.flips(place, op.p):
                image = library.flip_vertically(image)
        elif kind == "AlternatingFlip":
            if draws.alternating_flips(place):
                image = library.flip_horizontally(image)
        elif kind == "CenterCrop":
            image = library.center_crop(image, *op.size)
        elif kind == "Pad":
            image = library.pad(image, op.padding, op.fill, op.padding_mode)
        elif kind == "ToDtype":
            if op.dtype != "uint8":
                image = library.to_float(image, op.scale)
        elif kind == "Normalize":
            image = library.normalize(image, op.mean, op.std)
        else:
            raise NotImplementedError(kind)
    return image
