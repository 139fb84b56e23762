"""Loaders to choose from: each peer gives the batches of a workload for ever.

A peer is a generator of (images, ..., labels), on the device, of the workload's
dtype and layout; its first batch ends the time to first batch. A peer that a
workload or machine does not have raises NotOffered, with the reason.

  datasetd       the daemon, one resident copy for all jobs
  before         the same of another build (compare.py --before)
  pretransformed the daemon, with the Resize that a workload begins with done
                 once, at load: what is made of a sample differs by rounding
  dataloader-N   torch.utils.data.DataLoader with N workers, persistent, pinned
                 where there is a GPU; the usual dataset: one PIL image a sample,
                 torchvision's transforms on it
  resident       the whole set on the device in this process, transformed by
                 torch ops a batch or an epoch at a time, as the CIFAR-10 speed
                 runs do
  batch          DataLoader that collates uint8, torchvision's transforms on the
                 device's batch: one draw for all of its samples, so less work
  dali           nvidia.dali, where it is installed
"""

import os

import numpy as np

PEERS = (
    "datasetd", "pretransformed", "dataloader-0", "dataloader-2",
    "dataloader-8", "resident", "batch", "dali",
)


class NotOffered(Exception):
    """Why a peer has no row."""


# Those whose batches a daemon makes.
DAEMON_PEERS = ("datasetd", "pretransformed", "before")


def open_peer(name, workload, directory, device, address):
    """The peer's generator. `directory` holds the workload's arrays."""
    if name in ("datasetd", "before"):
        return _datasetd(workload, directory, device, address)
    if name == "pretransformed":
        return _pretransformed(workload, directory, device, address)
    if name.startswith("dataloader-"):
        return _dataloader(workload, directory, device, int(name[11:]))
    maker = {"resident": _resident, "batch": _batch, "dali": _dali}[name]
    return maker(workload, directory, device)


def _load(directory, mmap_mode=None):
    return {
        name[:-4]: np.load(os.path.join(directory, name), mmap_mode=mmap_mode)
        for name in sorted(os.listdir(directory))
    }


def _pretransformed(workload, directory, device, address):
    if workload.name != "W4":
        raise NotOffered("it does not begin with a Resize to a smaller image")
    return _datasetd(workload, directory, device, address, num_pretransforms=1)


def _datasetd(workload, directory, device, address, num_pretransforms=0):
    import datasetd

    ops = workload.transforms()
    client = datasetd.connect(address)
    dataset = client.load_dataset(
        workload.name, format="npy", path=directory, device=device,
        pretransforms=ops[:num_pretransforms],
    )
    loader = datasetd.DataLoader(
        dataset,
        batch_size=workload.batch_size,
        shuffle=True,
        drop_last=workload.drop_last,
        transforms=ops[num_pretransforms:],
        layout=workload.layout,
        framework="torch",
        timeout=120,
    )
    # Fields come in the order of their names.
    image = [field.name for field in dataset.fields].index("image")
    while True:
        for batch in loader:
            yield (batch[image], *batch[:image], *batch[image + 1:])


def _memory_format(torch, workload):
    if workload.layout == "NHWC":
        return torch.channels_last
    return torch.contiguous_format


def _to_device(torch, workload, device, images, *rest):
    images = images.to(
        device,
        getattr(torch, workload.dtype),
        non_blocking=True,
        memory_format=_memory_format(torch, workload),
    )
    return (images, *(value.to(device, non_blocking=True) for value in rest))


def _dataloader(workload, directory, device, num_workers):
    import torch
    from PIL import Image

    transform = workload.torchvision()

    class Samples(torch.utils.data.Dataset):
        def __init__(self):
            fields = _load(directory)
            image = fields.pop("image")
            self.image = image[..., 0] if image.shape[-1] == 1 else image
            self.label = fields.pop("label").tolist()
            self.others = [torch.from_numpy(v) for v in fields.values()]

        def __len__(self):
            return len(self.label)

        def __getitem__(self, index):
            image = transform(Image.fromarray(self.image[index]))
            others = (values[index] for values in self.others)
            return (image, *others, self.label[index])

    loader = torch.utils.data.DataLoader(
        Samples(),
        batch_size=workload.batch_size,
        shuffle=True,
        drop_last=workload.drop_last,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=device != "cpu",
    )
    while True:
        for batch in loader:
            yield _to_device(torch, workload, device, *batch)


def _batch(workload, directory, device):
    import torch

    try:
        from torchvision.transforms import v2 as V
    except ImportError:
        import torchvision.transforms as V
    ops = [
        op
        for op in workload.torchvision().transforms
        if type(op).__name__ not in ("ToTensor", "Normalize")
    ]
    normalize = V.Normalize(workload.mean, workload.std)
    fields = _load(directory)
    names = ["image", *(n for n in fields if n not in ("image", "label")),
             "label"]
    tensors = [torch.from_numpy(fields[name]) for name in names]
    tensors[0] = tensors[0].permute(0, 3, 1, 2).contiguous()
    sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(range(workload.num_samples)),
        workload.batch_size,
        workload.drop_last,
    )
    while True:
        for indices in sampler:
            rows = torch.tensor(indices)
            images, *rest = (values[rows].to(device) for values in tensors)
            for op in ops:
                images = op(images)
            images = normalize(images.float().div_(255))
            yield _to_device(torch, workload, device, images, *rest)


def _resident(workload, directory, device):
    """The whole set normalised once, in the output's dtype; a batch is gathered
    by one advanced index, crop and flip included."""
    import torch

    if workload.name not in ("W1", "W3", "W10"):
        raise NotOffered("ops that differ by sample need a kernel each")
    dtype = getattr(torch, workload.dtype)
    fields = _load(directory)
    images = torch.from_numpy(fields["image"]).to(device).float().div_(255)
    mean = torch.tensor(workload.mean, device=device)
    std = torch.tensor(workload.std, device=device)
    images = images.sub_(mean).div_(std).to(dtype)  # [N, H, W, C]
    labels = torch.from_numpy(fields["label"]).to(device)
    n, height, width, _ = images.shape
    has_crop = workload.name != "W3"
    if has_crop:
        planar = images.permute(0, 3, 1, 2).float()
        if workload.name == "W10":
            planar = torch.nn.functional.pad(planar, (4,) * 4, "reflect")
        else:
            # Black before Normalize.
            padded = (-mean / std).view(1, -1, 1, 1).repeat(
                n, 1, height + 8, width + 8)
            padded[:, :, 4:-4, 4:-4] = planar
            planar = padded
        images = planar.permute(0, 2, 3, 1).to(dtype).contiguous()
    if workload.layout == "NCHW":
        images = images.permute(0, 3, 1, 2).contiguous()
    rows = torch.arange(height, device=device)
    columns = torch.arange(width, device=device)
    batch = workload.batch_size
    while True:
        order = torch.randperm(n, device=device)
        for first in range(0, n - batch + 1, batch):
            chosen = order[first:first + batch]
            if not has_crop:
                yield images[chosen], labels[chosen]
                continue
            top = torch.randint(0, 9, (batch, 1), device=device)
            left = torch.randint(0, 9, (batch, 1), device=device)
            flip = torch.rand(batch, 1, device=device) < 0.5
            x = torch.where(flip, width - 1 - columns, columns) + left
            y = rows + top
            if workload.layout == "NHWC":
                out = images[chosen[:, None, None], y[:, :, None],
                             x[:, None, :]]
                out = out.permute(0, 3, 1, 2)
            else:
                channels = torch.arange(3, device=device)
                out = images[chosen[:, None, None, None],
                             channels[None, :, None, None],
                             y[:, None, :, None], x[:, None, None, :]]
            yield out, labels[chosen]


def _dali(workload, directory, device):
    try:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.pytorch import DALIGenericIterator
    except ImportError as error:
        raise NotOffered(str(error)) from error
    if device == "cpu":
        raise NotOffered("its GPU pipeline is what is compared")
    if workload.name not in ("W2", "W6"):
        raise NotOffered("no reader of arrays keeps up with sets this small")
    fields = _load(directory)
    random = np.random.default_rng(0)

    def source():
        chosen = random.integers(0, workload.num_samples, workload.batch_size)
        return fields["image"][chosen], fields["label"][chosen]

    @pipeline_def(
        batch_size=workload.batch_size, num_threads=os.cpu_count(),
        device_id=int(device.split(":")[1]), prefetch_queue_depth=2)
    def pipeline():
        images, labels = fn.external_source(source=source, num_outputs=2)
        images = images.gpu()
        if workload.name == "W6":
            images = fn.random_resized_crop(images, size=[224, 224])
            mirror = fn.random.coin_flip()
        else:
            images = fn.resize(images, size=[224, 224])
            mirror = 0
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mirror=mirror,
            mean=[255 * m for m in workload.mean],
            std=[255 * s for s in workload.std])
        return images, labels.gpu()

    for batch in DALIGenericIterator([pipeline()], ["image", "label"]):
        yield batch[0]["image"], batch[0]["label"]
