"""Api: answers the page's requests. Every one only asks."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from typing import Any, Callable, Dict, List, Mapping

from .. import errors
from . import _health, _jobs, _samples
from ._pictures import picture
from ._watch import Snapshot, Watch

_MAX_WINDOW_SECONDS = 300

Message = Dict[str, Any]
# From the query; the last one of equal names.
Query = Mapping[str, str]


class NoSuchPage(Exception):
    pass


class Api:
    """Thread-safe. `is_cancelled`, an argument of answer(), is true once nobody
    waits for the answer."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._doctor = _health.Doctor(watch.address)
        # One at a time, however many pages are open.
        self._sampling = threading.Lock()
        self._estimating = threading.Lock()
        self._functions: Dict[
            str, Callable[[Query, Callable[[], bool]], Message]
        ] = {
            "state": self._state,
            "dataset": self._dataset,
            "samples": self._get_samples,
            "bad_picture": self._bad_picture,
            "estimate": self._estimate,
            "health": self._health,
        }

    def answer(
        self, name: str, query: Query, is_cancelled: Callable[[], bool]
    ) -> Message:
        """Raises NoSuchPage, or datasetd's errors."""
        function = self._functions.get(name)
        if function is None:
            raise NoSuchPage(name)
        return function(query, is_cancelled)

    # -- State ----------------------------------------------------------------

    def _state(self, query: Query, _: Callable[[], bool]) -> Message:
        window = _number(query, "window", 60, 2, _MAX_WINDOW_SECONDS)
        known = query.get("datasets_version", "")
        snapshot, looks, gone = self._watch.state()
        if snapshot is None:
            return {
                "daemon": {
                    "is_there": False,
                    "error": gone.error,
                    "gone_seconds": max(0.0, time.time() - gone.since),
                    "address": self._watch.address or "",
                }
            }
        status = snapshot.status
        state: Message = {
            "daemon": {
                "is_there": True,
                "version": status["version"],
                "pid": int(status["pid"]),
                "uptime_seconds": _seconds(status["uptime"]),
                "is_draining": bool(status["is_draining"]),
                "address": self._watch.address or "",
                "seen_seconds": time.monotonic() - snapshot.time,
                "formats": list(status["formats"]),
            },
            "window_seconds": min(window, looks[-1].time - looks[0].time),
            "jobs": _jobs.jobs_of(snapshot, looks, window, os.getpid()),
            "ended": _ended(snapshot),
            "devices": [
                _device(device) for device in status["devices"]
            ],
            "loads": [
                _load(dataset)
                for dataset in snapshot.datasets
                if dataset["state"] == "DATASET_STATE_LOADING"
            ],
            "datasets_version": snapshot.datasets_version,
        }
        if known != state["datasets_version"]:
            state["datasets"] = [_brief(d) for d in snapshot.datasets]
        return state

    # -- Datasets -------------------------------------------------------------

    def _dataset(self, query: Query, _: Callable[[], bool]) -> Message:
        client = self._watch.client()
        with client._described(query.get("name", "")) as dataset:
            return {
                "name": dataset.name,
                "bad_samples": [bad._asdict() for bad in dataset.bad_samples],
            }

    def _bad_picture(self, query: Query, _: Callable[[], bool]) -> Message:
        """The path is the daemon's, never the request's."""
        position = _number(query, "position", 0, 0, 999)
        client = self._watch.client()
        with client._described(query.get("name", "")) as dataset:
            bad = dataset.bad_samples[position : position + 1]
            root, format = dataset.path, dataset.format
        if not bad:
            raise errors.NotFound("there is no such bad sample")
        return {"url": picture(root, format, bad[0])}

    def _get_samples(
        self, query: Query, is_cancelled: Callable[[], bool]
    ) -> Message:
        feed = query.get("feed", "")
        request = _samples.Request(
            query.get("dataset", ""),
            _number(query, "first", 0, 0, 2**62),
            _number(query, "count", 8, 1, _samples.MAX_SAMPLES),
            _number(query, "seed", 0, 0, 2**64 - 1),
            _number(query, "epoch", 0, 0, 2**63 - 1),
            int(feed) if re.fullmatch(r"[0-9]{1,19}", feed) else None,
            query.get("transforms", ""),
            query.get("windows", ""),
        )
        with self._sampling:
            # The page asks anew at every change.
            if is_cancelled():
                raise errors.Cancelled("nobody waits for the samples")
            return _samples.samples(self._watch.client(), request)

    # -- Loads ----------------------------------------------------------------

    def _estimate(
        self, query: Query, is_cancelled: Callable[[], bool]
    ) -> Message:
        def on_progress(_: Message) -> None:
            if is_cancelled():
                raise errors.Cancelled("nobody waits for the dry run")

        path = query.get("path", "")
        if path and not os.path.isabs(path):
            raise errors.InvalidArgument(
                f"path {path!r} is not absolute: the daemon opens it"
            )
        with self._estimating:
            estimate = self._watch.client().load_dataset(
                query.get("name") or "dry-run",
                query.get("format", ""),
                path or None,
                split=query.get("split") or None,
                device=query.get("device") or None,
                options=_options(query.get("options", "")),
                progress=on_progress,
                dry_run=True,
            )
        answer = estimate._asdict()
        answer["fields"] = [field._asdict() for field in estimate.fields]
        answer["bad_samples"] = [
            bad._asdict() for bad in estimate.bad_samples[:20]
        ]
        return answer

    # -- Health ---------------------------------------------------------------

    def _health(self, query: Query, _: Callable[[], bool]) -> Message:
        snapshot, _looks, gone = self._watch.state()
        if snapshot is None:
            log = {"lines": [], "source": "", "error": gone.error}
        else:
            log = _health.warnings(int(snapshot.status["pid"]))
        findings = self._doctor.findings(query.get("fresh") == "1")
        return {"doctor": findings, "log": log}


def _number(
    query: Query, name: str, default: int, least: int, most: int
) -> int:
    text = query.get(name, "") or str(default)
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise errors.InvalidArgument(f"{name} is {text!r}: expected a number")
    number = int(text)
    if not least <= number <= most:
        raise errors.InvalidArgument(
            f"{name} is {number}: expected {least} to {most}"
        )
    return number


def _options(text: str) -> Dict[str, str]:
    options = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals:
            raise errors.InvalidArgument(
                f"option {line!r}: expected KEY=VALUE, one a line"
            )
        options[key.strip()] = value.strip()
    return options


def _seconds(duration: str) -> float:
    """Returns the seconds of a Duration message, such as "12.5s"."""
    return float(duration[:-1])


def _device(device: Message) -> Message:
    budget = int(device["memory_budget_bytes"])
    parts = {
        kind: int(device[f"{kind}_bytes"])
        for kind in ("dataset", "slab", "scratch")
    }
    return {
        "name": device["name"],
        "description": device["description"],
        "error": device["error"],
        "budget_bytes": budget,
        **{f"{kind}_bytes": count for kind, count in parts.items()},
        "free_bytes": max(0, budget - sum(parts.values())),
    }


def _state_name(dataset: Message) -> str:
    name: str = dataset["state"]
    return name.replace("DATASET_STATE_", "").lower()


def _brief(dataset: Message) -> Message:
    return {
        "name": dataset["name"],
        "state": _state_name(dataset),
        "error": dataset["error"],
        "device": dataset["device"],
        "num_samples": int(dataset["num_samples"]),
        "resident_bytes": int(dataset["resident_bytes"]),
        "num_feeds": int(dataset["num_feeds"]),
        "num_holders": int(dataset["num_holders"]),
        "num_bad_samples": int(dataset["num_bad_samples"]),
        "is_pinned": bool(dataset["is_pinned"]),
        "is_private": bool(dataset["is_private"]),
    }


def _finite(value: Any) -> float:
    """Infinity has no JSON form."""
    number = float(value)
    return number if math.isfinite(number) else 0.0


def _load(dataset: Message) -> Message:
    progress = dataset.get("progress") or {}
    return {
        "name": dataset["name"],
        "device": dataset["device"],
        "is_scanning": bool(progress.get("is_scanning", False)),
        "num_entries_scanned": int(progress.get("num_entries_scanned", 0)),
        "num_samples_loaded": int(progress.get("num_samples_loaded", 0)),
        "num_samples": int(progress.get("num_samples", 0)),
        "samples_per_second": _finite(progress.get("samples_per_second", 0)),
        "eta_seconds": _finite(progress.get("eta_seconds", 0)),
    }


def _ended(snapshot: Snapshot) -> List[Message]:
    return [
        {
            "feed_id": int(feed["feed_id"]),
            "name": feed["name"],
            "dataset": feed["dataset"],
            "pid": int(feed["pid"]),
            "num_batches": int(feed["num_batches"]),
            "seconds": feed["ended_seconds"],
        }
        for feed in snapshot.ended
        if int(feed["pid"]) != os.getpid()
    ]
