"""Jobs: feeds grouped by the program that reads them, and one sentence for
each that says whether it waits for data."""

from __future__ import annotations

import os
from typing import Any, Dict, Hashable, List, NamedTuple, Optional, Tuple

from ._watch import Look, Snapshot, before

# A job's share of time spent waiting, from which its sentence is amber or red.
AMBER = 0.05
RED = 0.20

# The sentence covers the last two seconds, or as many as it takes to deliver
# some batches: a step that takes long is one wait in many seconds.
_SENTENCE_SECONDS = 2.0
_SENTENCE_BATCHES = 4
_SENTENCE_MAX_SECONDS = 60.0
# Without a batch for this time a job is idle, or starved.
_IDLE_SECONDS = 10.0

_LEVELS = ("green", "amber", "red")

Message = Dict[str, Any]


class Rate(NamedTuple):
    """A feed's rate over `seconds`; waits are shares of the time, 0 to 1."""

    seconds: float
    samples_per_second: float
    batches_per_second: float
    job_wait: float
    daemon_wait: float
    num_batches: int
    # The batches of these `seconds`, counted as in Counters.hand_over.
    hand_over: Dict[int, int]


def rate_of(looks: List[Look], feed_id: int, seconds: float) -> Optional[Rate]:
    """Returns the rate over the last `seconds`, or over less for a younger
    feed; None for a feed that was seen once."""
    then = before(looks, seconds)
    if then is None:
        return None
    if feed_id not in then.feeds:
        for look in looks[:-1]:
            if look.time > then.time and feed_id in look.feeds:
                then = look
                break
        else:
            return None
    now = looks[-1]
    if feed_id not in now.feeds:
        return None
    a, b = then.feeds[feed_id], now.feeds[feed_id]
    passed = max(now.time - then.time, 1e-6)

    def share(wait: float) -> float:
        return min(max(wait / passed, 0.0), 1.0)

    return Rate(
        passed,
        (b.num_samples - a.num_samples) / passed,
        (b.num_batches - a.num_batches) / passed,
        share(b.job_wait - a.job_wait),
        share(b.daemon_wait - a.daemon_wait),
        b.num_batches - a.num_batches,
        {
            bound: count - a.hand_over.get(bound, 0)
            for bound, count in b.hand_over.items()
        },
    )


def current_rate(looks: List[Look], feed_id: int) -> Optional[Rate]:
    """Returns the rate that the sentence is about."""
    seconds = _SENTENCE_SECONDS
    rate = rate_of(looks, feed_id, seconds)
    while (
        rate is not None
        and rate.num_batches < _SENTENCE_BATCHES
        # Nothing but waiting needs no average.
        and rate.job_wait < 0.95
        and seconds < _SENTENCE_MAX_SECONDS
    ):
        seconds = min(2 * seconds, _SENTENCE_MAX_SECONDS)
        rate = rate_of(looks, feed_id, seconds)
    return rate


def _idle_seconds(looks: List[Look], feed_id: int) -> float:
    """Returns for how long the feed has delivered no batch, as far as the
    looks tell."""
    last = looks[-1].feeds[feed_id].num_batches
    since = looks[-1].time
    for look in reversed(looks):
        counters = look.feeds.get(feed_id)
        if counters is None or counters.num_batches != last:
            break
        since = look.time
    return looks[-1].time - since


# -- Processes ----------------------------------------------------------------


class Process(NamedTuple):
    """`parent` is 0 if it is not known."""

    program: str
    parent: int


def process_of(pid: int, uid: int) -> Process:
    """Returns the script or program of a process, "" if it is not known. The
    daemon's numbers may be those of another PID namespace: a process of another
    user is not the one."""
    if pid <= 0:
        return Process("", 0)
    found = _words_and_parent(pid, uid)
    if found is None:
        return Process("", 0)
    words, parent = found
    # Each rank has its own `datasetd run --per-node` between launcher and job.
    above = _words_and_parent(parent, uid)
    if above is not None and {"run", "--per-node"} <= set(above[0]):
        parent = above[1]
    return Process(_program(words), parent)


def _words_and_parent(pid: int, uid: int) -> Optional[Tuple[List[str], int]]:
    """Returns the command line and the parent of this user's process."""
    directory = f"/proc/{pid}"
    try:
        if os.stat(directory).st_uid != uid:
            return None
        with open(f"{directory}/cmdline", "rb") as file:
            words = file.read(65536).decode("utf-8", "replace").split("\0")
        with open(f"{directory}/stat", "rb") as file:
            parent = int(file.read().rsplit(b")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return words, parent


def _program(words: List[str]) -> str:
    """Returns "train.py" for ["python3", "-u", "/home/a/train.py", ...]."""
    name = os.path.basename(words[0]) if words else ""
    if not name.startswith(("python", "pypy")):
        return name
    for i, word in enumerate(words[1:], 1):
        if word == "-m" and i + 1 < len(words):
            return words[i + 1]
        if word == "-c":
            break
        if word and not word.startswith("-"):
            return os.path.basename(word)
    return name


# -- Jobs ---------------------------------------------------------------------


class Loader(NamedTuple):
    feed: Message
    process: Process
    rate: Optional[Rate]  # over the chosen window
    current: Optional[Rate]
    idle_seconds: float
    recent_wait: float  # of the last two seconds


def _key(feed: Message, process: Process, ranked: bool) -> Hashable:
    """Ranks of one launcher are one job, as are the loaders of one process."""
    uid, pid = int(feed["uid"]), int(feed["pid"])
    if pid == 0:
        return uid, feed["name"], int(feed["world_size"])
    if ranked and process.parent > 1:
        return uid, process.program, process.parent
    return uid, pid


def jobs_of(
    snapshot: Snapshot, looks: List[Look], window: float, own_pid: int
) -> List[Message]:
    """Returns the jobs as the page shows them: those in need first. `window`
    is in seconds; feeds of the process `own_pid` are left out."""
    processes: Dict[Tuple[int, int], Process] = {}
    ranked = set()
    feeds = [f for f in snapshot.feeds if int(f["pid"]) != own_pid]
    for feed in feeds:
        pid = int(feed["pid"]), int(feed["uid"])
        if pid not in processes:
            processes[pid] = process_of(*pid)
        if int(feed["world_size"]) > 1:
            ranked.add(pid)
    groups: Dict[Hashable, List[Loader]] = {}
    for feed in feeds:
        pid = int(feed["pid"]), int(feed["uid"])
        feed_id = int(feed["feed_id"])
        process = processes[pid]
        latest = rate_of(looks, feed_id, _SENTENCE_SECONDS)
        groups.setdefault(_key(feed, process, pid in ranked), []).append(
            Loader(
                feed,
                process,
                rate_of(looks, feed_id, window),
                current_rate(looks, feed_id),
                _idle_seconds(looks, feed_id),
                latest.job_wait if latest is not None else 0.0,
            )
        )
    busy: Dict[str, int] = {}
    devices = {d["name"]: d["device"] for d in snapshot.datasets}
    for loaders in groups.values():
        for loader in loaders:
            if loader.current is not None and loader.current.num_batches:
                device = _device_of(loader.feed, devices)
                busy[device] = busy.get(device, 0) + 1
    jobs = [_job(loaders, devices, busy) for loaders in groups.values()]
    jobs.sort(
        key=lambda job: (
            -_LEVELS.index(job["level"]),
            -job["wait"],
            job["title"],
            job["id"],
        )
    )
    return jobs


def _wait(loader: Loader) -> float:
    return loader.current.job_wait if loader.current is not None else 0.0


def _title(loaders: List[Loader]) -> str:
    first = loaders[0]
    pids = sorted({int(loader.feed["pid"]) for loader in loaders})
    names = {loader.feed["name"] for loader in loaders if loader.feed["name"]}
    name = names.pop() if len(names) == 1 else ""
    program = first.process.program
    if pids == [0]:
        return f"{name or 'a job'} of user {first.feed['uid']}"
    title = program or name or "process"
    if program and name and name != program:
        title += f" \u201c{name}\u201d"
    if len(pids) == 1:
        return f"{title} ({pids[0]})"
    return f"{title} ({len(pids)} processes)"


def percent(share: float) -> str:
    value = 100 * share
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


def _job(
    loaders: List[Loader], devices: Dict[str, str], busy: Dict[str, int]
) -> Message:
    # A process waits for one of its loaders at a time, and a job waits for its
    # slowest process.
    by_process: Dict[Hashable, List[Loader]] = {}
    for loader in loaders:
        feed = loader.feed
        pid: Hashable = int(feed["pid"]) or (feed["rank"], feed["feed_id"])
        by_process.setdefault(pid, []).append(loader)
    slowest = max(by_process.values(), key=lambda own: sum(map(_wait, own)))
    wait = min(sum(map(_wait, slowest)), 1.0)
    # The loader to speak of: the one that is waited for, or the busiest.
    worst = max(
        slowest,
        key=lambda one: (
            _wait(one),
            one.current.num_batches if one.current else 0,
        ),
    )
    most = f" (rank {worst.feed['rank']} most)" if len(by_process) > 1 else ""
    level, says, advice = _judge(worst, wait, most, devices, busy)
    title = _title(loaders)
    ordered = sorted(
        loaders,
        key=lambda one: (
            -(one.rate.job_wait if one.rate is not None else 0.0),
            int(one.feed["rank"]),
            int(one.feed["feed_id"]),
        ),
    )
    return {
        "id": min(int(loader.feed["feed_id"]) for loader in loaders),
        "title": title,
        "level": level,
        "wait": wait,
        "sentence": f"{title} {says}",
        "advice": advice,
        "loaders": [_loader_message(loader) for loader in ordered],
    }


def _judge(
    loader: Loader,
    wait: float,
    most: str,
    devices: Dict[str, str],
    busy: Dict[str, int],
) -> Tuple[str, str, str]:
    """Returns level, the rest of the sentence, and what to do."""
    feed, rate = loader.feed, loader.current
    held, slots = int(feed["num_slots_held"]), int(feed["num_slots"])
    has = f"has {held} of {slots} batches ready or in use"
    if not feed["is_attached"]:
        return "green", "is opening its loader.", ""
    if rate is None:
        return "green", f"has just begun and {has}.", ""
    if loader.idle_seconds >= _IDLE_SECONDS:
        seconds = f"{loader.idle_seconds:.0f} s"
        if loader.recent_wait > 0.5:
            return (
                "red",
                f"has waited for a batch for {seconds} and {has}.",
                "None has come: see Health and the daemon\u2019s log. A loader "
                "with a sampler also waits for the sampler.",
            )
        return (
            "green",
            f"has taken no batch for {seconds}, does not wait for one, and "
            f"{has}.",
            "Nothing to do for data: the job computes, evaluates or is "
            "stopped.",
        )
    says = f"waits {percent(wait)} of its time for data{most} and {has}."
    if wait < AMBER:
        return "green", says, "Nothing to do: data is not what limits it."
    level = "red" if wait >= RED else "amber"
    return level, says, _advice(loader, rate, devices, busy)


def _advice(
    loader: Loader,
    rate: Rate,
    devices: Dict[str, str],
    busy: Dict[str, int],
) -> str:
    feed = loader.feed
    held, slots = int(feed["num_slots_held"]), int(feed["num_slots"])
    # It waits, so what it holds is in use, not ready.
    if held >= slots - 1 and loader.recent_wait >= AMBER:
        return (
            f"The job keeps {held} of {slots} batches, so the daemon has "
            "nowhere to put the next one: free batches sooner, or keep copies "
            "(batch.clone())."
        )
    if rate.daemon_wait >= AMBER:
        return (
            f"The daemon waits, too ({percent(rate.daemon_wait)}): the job "
            f"takes batches in bursts. Raise prefetch= above {slots - 2}."
        )
    device = _device_of(feed, devices)
    others = busy.get(device, 1) - 1
    shared = (
        f" {others} other loader{'s' if others > 1 else ''} "
        f"share{'s' if others == 1 else ''} {device}."
        if others > 0
        else ""
    )
    where = (
        "more cores (host_threads), or a GPU"
        if device == "cpu"
        else "or a larger share of the GPU (see MPS in operations.md)"
    )
    return (
        "The daemon cannot make batches faster: cheaper transforms, "
        "deterministic ones as pretransforms at load, smaller images, "
        f"{where}.{shared}"
    )


def _device_of(feed: Message, devices: Dict[str, str]) -> str:
    """Returns the device of a feed's dataset, or of a mixture's first one."""
    name: str = feed["dataset"]
    return devices.get(name, devices.get(name.split(" + ")[0], ""))


def _loader_message(loader: Loader) -> Message:
    feed, rate = loader.feed, loader.rate
    return {
        "feed_id": int(feed["feed_id"]),
        "name": feed["name"],
        "dataset": feed["dataset"],
        "pid": int(feed["pid"]),
        "rank": int(feed["rank"]),
        "world_size": int(feed["world_size"]),
        "seed": str(feed["seed"]),
        "epoch": int(feed["position"]["epoch"]),
        "batch": int(feed["position"]["batch"]),
        "held": int(feed["num_slots_held"]),
        "slots": int(feed["num_slots"]),
        "rate": None if rate is None else _rate_message(rate),
    }


def _rate_message(rate: Rate) -> Message:
    message = rate._asdict()
    message["hand_over"] = quantiles(rate.hand_over)
    return message


# -- Hand-over ----------------------------------------------------------------


def quantiles(counts: Dict[int, int]) -> Optional[Message]:
    """Returns upper bounds of the median and the 99th percentile, in seconds;
    None if no batch was handed over. A bound is None if the histogram has
    none."""
    total = sum(counts.values())
    if total <= 0:
        return None
    ordered = sorted(counts.items(), key=lambda item: item[0] or 1 << 63)

    def quantile(q: float) -> Optional[float]:
        seen = 0
        for bound, count in ordered:
            seen += count
            if seen >= q * total:
                return bound / 1e9 if bound else None
        return None

    return {"p50": quantile(0.5), "p99": quantile(0.99)}
