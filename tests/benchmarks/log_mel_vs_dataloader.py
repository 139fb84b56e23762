"""Keyword spotting: the host backend against torchaudio in a
torch.utils.data.DataLoader.

WAV files of up to a second of 16 kHz, 35 classes, in the layout of Speech Commands:
validation_list.txt and testing_list.txt name the files that do not train. Both sides
make float32 [B, 1, 64, 101] of the others: padding, MelSpectrogram, AmplitudeToDB,
and the masks of SpecAugment. The DataLoader reads a file for each sample, by
soundfile, or has the waveforms in memory. Workers are persistent and have one thread
each, and each side gets a pass to warm up. Needs soundfile and torchaudio, which
Debian does not have: run it in an environment of PyPI's, with PYTHONPATH set to the
sources and client/python, and DATASETD_DAEMON and DATASETD_LIBRARY to what Bazel
built.
"""

import argparse
import os
import tempfile
import time

import datasetd
import numpy as np
import soundfile
import torch
import torchaudio.transforms as A
from datasetd import transforms as T

from tests.benchmarks import benchmark_report

_RATE, _NUM_CLASSES = 16000, 35
_MEL = dict(sample_rate=_RATE, n_fft=400, hop_length=160, n_mels=64)
_LISTS = ("validation_list.txt", "testing_list.txt")


def write_clips(root, count):
    """Speech Commands' layout: tones in noise, a tenth in each of the lists."""
    random = np.random.default_rng(1)
    names = []
    for i in range(count):
        kind = i % _NUM_CLASSES
        length = _RATE if random.random() < 0.9 else random.integers(9000, _RATE)
        tone = np.sin(2 * np.pi * (200 + 50 * kind) * np.arange(length) / _RATE)
        wave = 0.3 * tone + 0.02 * random.standard_normal(length)
        names.append(f"word{kind:02}/{i:06}_nohash_0.wav")
        path = os.path.join(root, names[-1])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        soundfile.write(path, wave, _RATE)
    os.makedirs(os.path.join(root, "_background_noise_"))
    noise = 0.1 * random.standard_normal(10 * _RATE)
    soundfile.write(
        os.path.join(root, "_background_noise_", "white.wav"), noise, _RATE
    )
    for place, name in enumerate(_LISTS):
        with open(os.path.join(root, name), "w") as file:
            file.writelines(f"{one}\n" for one in names[place::10])
    return sorted(names)


def listed(root):
    """The files of both lists."""
    found = set()
    for name in _LISTS:
        with open(os.path.join(root, name)) as file:
            found |= set(file.read().split())
    return found


class Clips(torch.utils.data.Dataset):
    """As SPEECHCOMMANDS has them, or with waveforms in memory."""

    def __init__(self, root, names, in_memory):
        self.paths = [os.path.join(root, name) for name in names]
        self.labels = [int(name[4:6]) for name in names]
        self.waves = [self._read(p) for p in self.paths] if in_memory else None
        self.transform = torch.nn.Sequential(
            A.MelSpectrogram(**_MEL), A.AmplitudeToDB(top_db=80),
            A.TimeMasking(20), A.FrequencyMasking(8),
        )

    def _read(self, path):
        wave, _ = soundfile.read(path, dtype="float32")
        return torch.from_numpy(wave)[None]

    def __getitem__(self, index):
        wave = self.waves[index] if self.waves else self._read(self.paths[index])
        padded = torch.nn.functional.pad(wave, (0, _RATE - wave.shape[1]))
        return self.transform(padded), self.labels[index]

    def __len__(self):
        return len(self.paths)


def cpu_seconds(pid):
    """Of a process and its living children, such as workers."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return own + sum(map(cpu_seconds, map(int, file.read().split())))


def rate(loader, daemon, num_samples, num_passes=1):
    """Samples per second, and microseconds of CPU time of all processes, the
    daemon's too, per sample."""
    def cpu_all():
        return sum(map(cpu_seconds, {os.getpid(), daemon.pid}))

    seen = 0
    start, cpu = time.perf_counter(), cpu_all()
    for _ in range(num_passes):
        for audio, _ in loader:
            seen += len(audio)
    elapsed = time.perf_counter() - start
    cpu = cpu_all() - cpu
    assert seen == num_samples * num_passes
    return seen / elapsed, cpu / seen * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_samples", type=int, default=4096)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    flags = parser.parse_args()
    torch.set_num_threads(1)
    report = benchmark_report.Report(
        "log_mel_vs_dataloader", torch=torch.__version__, **vars(flags)
    )
    kinds = {"files": False, "memory": True}
    others = {}
    with tempfile.TemporaryDirectory() as root, datasetd.start_local(
        "cpu"
    ) as daemon, daemon.connect() as client:
        names = write_clips(root, flags.num_samples)
        left_out = listed(root)
        train = [name for name in names if name not in left_out]
        dataset = client.load_dataset(
            "commands", "audio_folder", root,
            options={"dtype": "int16"},
            classes=sorted({name.split("/")[0] for name in names}),
            ignore_other_classes=True,
        )
        loader = datasetd.DataLoader(
            dataset.select([names.index(name) for name in train]),
            flags.batch_size, shuffle=True,
            windows=datasetd.crops(_RATE), fields=["audio", "label"],
            transforms={"audio": [
                T.ToDtype("float32", scale=True), T.MelSpectrogram(**_MEL),
                T.AmplitudeToDB(top_db=80), T.TimeMasking(20),
                T.FrequencyMasking(8),
            ]},
        )
        for kind, in_memory in kinds.items():
            clips = Clips(root, train, in_memory)
            for workers in flags.workers:
                others[f"DataLoader, {kind}, {workers} workers"] = (
                    torch.utils.data.DataLoader(
                        clips, flags.batch_size, shuffle=True,
                        num_workers=workers, persistent_workers=workers > 0,
                    )
                )
        n = len(train)
        rates = {name: [] for name in (*others, "datasetd, host backend")}
        for other in (loader, *others.values()):
            rate(other, daemon, n)
        for _ in range(flags.repetitions):
            for name, other in others.items():
                rates[name].append(rate(other, daemon, n))
            rates["datasetd, host backend"].append(rate(loader, daemon, n, 20))
        loader.close()
        del others, other
    print(f"{'':32} {'samples/s':>10} {'min..max':>16} {'CPU us/sample':>14}")
    for name, values in rates.items():
        per_second, cpu = zip(*values)
        span = f"{min(per_second):.0f}..{max(per_second):.0f}"
        print(f"{name:32} {benchmark_report.median(per_second):10.0f} "
              f"{span:>16} {benchmark_report.median(cpu):14.0f}")
        report.add(name, {"samples_per_second": per_second,
                          "cpu_us_per_sample": cpu})
    report.write()


if __name__ == "__main__":
    main()
