"""Log-mel spectrograms with masks: the host backend against torchaudio in a
torch.utils.data.DataLoader.

One-second clips of 16 kHz, int16, 35 classes. Both sides make float32
[B, 1, 64, 101] of them: MelSpectrogram, AmplitudeToDB, TimeMasking and
FrequencyMasking. Workers are persistent and have one thread each, and each side
gets a pass to warm up. Needs torchaudio, which Debian does not have: run it in
an environment of PyPI's torch and torchaudio, with PYTHONPATH set to the sources
and client/python, and DATASETD_DAEMON and DATASETD_LIBRARY to what Bazel built.
"""

import argparse
import os
import time

import datasetd
import numpy as np
import torch
import torchaudio.transforms as A
from datasetd import transforms as T

from tests.benchmarks import benchmark_report

_MEL = dict(sample_rate=16000, n_fft=400, hop_length=160, n_mels=64)


class Clips(torch.utils.data.Dataset):
    """Waveforms in memory, as SPEECHCOMMANDS gives them once read."""

    def __init__(self, audio, label):
        self.audio, self.label = torch.from_numpy(audio), label.tolist()
        self.transform = torch.nn.Sequential(
            A.MelSpectrogram(**_MEL), A.AmplitudeToDB(top_db=80),
            A.TimeMasking(20), A.FrequencyMasking(8),
        )

    def __getitem__(self, index):
        waveform = self.audio[index].to(torch.float32)[None] / 32767
        return self.transform(waveform), self.label[index]

    def __len__(self):
        return len(self.label)


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
    n = flags.num_samples
    rng = np.random.default_rng(1)
    t = np.arange(16000) / 16000
    label = np.arange(n) % 35
    tones = 8000 * np.sin(2 * np.pi * np.outer(200 + 50 * np.arange(35), t))
    audio = (tones[label] + rng.normal(0, 500, (n, 16000))).astype(np.int16)
    rates = {f"DataLoader, {w} workers": [] for w in flags.workers}
    rates["datasetd, host backend"] = []
    with datasetd.start_local("cpu") as daemon, daemon.connect() as client:
        dataset = client.push_dataset(
            "clips", {"audio": audio[:, :, None], "label": label}
        )
        loader = datasetd.DataLoader(
            dataset, flags.batch_size, shuffle=True,
            transforms={"audio": [
                T.ToDtype("float32", scale=True), T.MelSpectrogram(**_MEL),
                T.AmplitudeToDB(top_db=80), T.TimeMasking(20),
                T.FrequencyMasking(8),
            ]},
        )
        others = {
            f"DataLoader, {w} workers": torch.utils.data.DataLoader(
                Clips(audio, label), flags.batch_size, shuffle=True,
                num_workers=w, persistent_workers=w > 0,
            )
            for w in flags.workers
        }
        for other in (loader, *others.values()):
            rate(other, daemon, n)
        for _ in range(flags.repetitions):
            for name, other in others.items():
                rates[name].append(rate(other, daemon, n))
            rates["datasetd, host backend"].append(rate(loader, daemon, n, 20))
        loader.close()
        del others, other
    print(f"{'':24} {'samples/s':>10} {'min..max':>16} {'CPU us/sample':>14}")
    for name, values in rates.items():
        per_second, cpu = zip(*values)
        span = f"{min(per_second):.0f}..{max(per_second):.0f}"
        print(f"{name:24} {benchmark_report.median(per_second):10.0f} "
              f"{span:>16} {benchmark_report.median(cpu):14.0f}")
        report.add(name, {"samples_per_second": per_second,
                          "cpu_us_per_sample": cpu})
    report.write()


if __name__ == "__main__":
    main()
