"""Measures a training step on the loader's batches and on one constant batch.
If the times are equal, data costs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List

from .._datasets.subset import whole_of
from ..errors import InvalidArgument

# Set by `datasetctl bench`: a directory for reports, and how long to measure.
DIRECTORY_VARIABLE = "DATASETD_BENCH_DIRECTORY"
STEPS_VARIABLE = "DATASETD_BENCH_STEPS"
ROUNDS_VARIABLE = "DATASETD_BENCH_ROUNDS"


def _median(seconds: List[float]) -> float:
    import statistics  # slow to import, and seldom needed

    return statistics.median(seconds)


@dataclasses.dataclass(frozen=True)
class BenchmarkResult:
    """Seconds of one step; one entry of a list for each round."""

    steps: int  # of a round
    loader_rounds: List[float]
    constant_rounds: List[float]
    # Time that a step on the loader's batches waits in the loader.
    waited_seconds: float

    @property
    def loader_seconds(self) -> float:
        return _median(self.loader_rounds)

    @property
    def constant_seconds(self) -> float:
        return _median(self.constant_rounds)

    @property
    def data_share(self) -> float:
        """Fraction of a step that a constant batch saves. Negative if noise
        exceeds it."""
        return 1.0 - self.constant_seconds / self.loader_seconds

    def to_dict(self) -> Dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "loader_seconds": self.loader_seconds,
            "constant_seconds": self.constant_seconds,
            "data_share": self.data_share,
        }

    def __str__(self) -> str:
        share = self.data_share
        part = "no measurable part" if share < 0 else f"{share:.1%}"
        return (
            f"a step takes {self.loader_seconds * 1e3:.3f} ms on the loader's "
            f"batches and {self.constant_seconds * 1e3:.3f} ms on a constant "
            f"one: {part} of it is data "
            f"({self.waited_seconds * 1e3:.3f} ms waiting); medians of "
            f"{len(self.loader_rounds)} rounds of {self.steps} steps"
        )


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _Meter:
    """Yields rounds of the loader's batches and of the constant batch in
    turns, and times them. The first pair warms up."""

    def __init__(self, loader: Any, steps: int, rounds: int) -> None:
        for name, value in (("steps", steps), ("rounds", rounds)):
            if not isinstance(value, int) or value < 1:
                raise InvalidArgument(
                    f"{name}={value!r}; expected an int from 1"
                )
        self._loader = loader
        self._steps = steps
        self._rounds = rounds
        self._constant: Any = None
        self._times: Dict[bool, List[float]] = {False: [], True: []}
        self._waited: List[float] = []
        self._is_constant = False
        self._left = 0
        self._round = -1
        self._start = 0.0
        self._waited_before = 0.0

    def batches(self, source: Iterator[Any]) -> Iterator[Any]:
        """Ends when everything is measured, or with `source`."""
        for batch in source:
            while True:
                self._begin_step()
                if self.is_done:
                    return
                if not self._is_constant:
                    break
                yield self._constant
            if self._constant is None:
                self._constant = batch.clone()
            yield batch

    def restart_round(self) -> None:
        """Excludes the time since the last batch from the step."""
        self._left = 0
        self._start = 0.0

    @property
    def is_done(self) -> bool:
        return self._round >= self._rounds

    def _begin_step(self) -> None:
        if self._left > 0:
            self._left -= 1
            return
        _synchronize()
        now = time.perf_counter()
        if self._start:
            if self._round >= 0:
                self._times[self._is_constant].append(
                    (now - self._start) / self._steps
                )
                if not self._is_constant:
                    self._waited.append(
                        (self._loader.waited_seconds - self._waited_before)
                        / self._steps
                    )
            if self._is_constant:
                self._round += 1
            self._is_constant = not self._is_constant
        self._left = self._steps - 1
        self._waited_before = self._loader.waited_seconds
        self._start = time.perf_counter()

    def result(self) -> BenchmarkResult:
        return BenchmarkResult(
            self._steps,
            self._times[False],
            self._times[True],
            _median(self._waited),
        )


def benchmark(
    loader: Any,
    step: Callable[[Any], Any],
    steps: int = 50,
    rounds: int = 5,
) -> BenchmarkResult:
    """Measures the fraction of a training step that is spent on data.

    Calls step(batch) in turns on batches of the loader and on one constant
    batch that is already on the device: `rounds` rounds of `steps` steps each,
    after a warm-up round. The loader continues from its position, over as many
    epochs as needed. torch.cuda is synchronised between rounds, not between
    steps.
    """
    meter = _Meter(loader, steps, rounds)

    def forever() -> Iterator[Any]:
        while True:
            is_empty = True
            for batch in loader:
                is_empty = False
                yield batch
            if is_empty:
                raise InvalidArgument("the loader has no batches")

    for batch in meter.batches(forever()):
        step(batch)
    return meter.result()


class _WatchedEpoch:
    """A loader's epoch in a program run by `datasetctl bench`: writes the
    report and ends the program when everything is measured."""

    def __init__(self, loader: Any, epoch: Any) -> None:
        self._loader = loader
        self._epoch = epoch
        self._batches = loader._meter.batches(epoch)
        loader._meter.restart_round()

    def __iter__(self) -> "_WatchedEpoch":
        return self

    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            if not self._loader._meter.is_done:
                raise
        _report(self._loader)
        raise SystemExit(0)

    def __len__(self) -> int:
        return len(self._epoch)


def _report(loader: Any) -> None:
    directory = os.environ[DIRECTORY_VARIABLE]
    path = os.path.join(directory, f"{os.getpid()}-{id(loader):x}")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(
            {
                "pid": os.getpid(),
                "dataset": whole_of(loader.dataset)[0].name,
                "batch_size": loader.batch_size,
                "rank": loader.rank,
                **loader._meter.result().to_dict(),
            },
            file,
        )
    os.replace(path + ".part", path + ".json")


def watch(loader: Any, epoch: Iterator[Any]) -> Iterator[Any]:
    """Returns `epoch`, wrapped for measurement under `datasetctl bench`."""
    if DIRECTORY_VARIABLE not in os.environ:
        return epoch
    if not hasattr(loader, "_meter"):
        steps = int(os.environ.get(STEPS_VARIABLE, 50))
        # Rounds end with the epoch, since the program may do anything between
        # epochs. Some samplers do not know their length.
        with contextlib.suppress(TypeError):
            steps = min(steps, max(1, len(loader) // 2))
        rounds = int(os.environ.get(ROUNDS_VARIABLE, 5))
        loader._meter = _Meter(loader, steps, rounds)
    return _WatchedEpoch(loader, epoch)


__all__ = ["BenchmarkResult", "benchmark"]
