"""Jobs, their sentences and rates, from made-up looks."""

import os
import subprocess
import sys

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

from datasetd.web import _jobs, _png, _samples, _views, _watch  # noqa: E402


def feed(feed_id, pid=0, uid=7, name="", rank=0, world_size=1, held=2, slots=6,
         dataset="d", is_attached=True):
    return {"feed_id": str(feed_id), "pid": pid, "uid": uid, "name": name,
            "rank": rank, "world_size": world_size, "dataset": dataset,
            "num_slots_held": held, "num_slots": slots, "batch_size": 16,
            "seed": "1", "position": {"epoch": "2", "batch": "3"},
            "slab_bytes": "4096", "is_attached": is_attached}


def looks_of(steps, seconds=1.0):
    """Looks at one feed each: `steps` are (batches, job's wait, daemon's wait)
    within a look's time."""
    looks, totals = [], [0, 0.0, 0.0]
    for i, step in enumerate([(0, 0, 0), *steps]):
        totals = [a + b for a, b in zip(totals, step)]
        looks.append(_watch.Look(
            i * seconds,
            {1: _watch.Counters(16 * totals[0], totals[0], totals[1],
                                totals[2], {})}))
    return looks


def snapshot_of(*feeds, device="cpu"):
    return _watch.Snapshot({}, list(feeds), [{"name": "d", "device": device}],
                           "", 0.0, [])


def job_of(steps, seconds=1.0, device="cpu", **options):
    options.setdefault("name", "n")
    jobs = _jobs.jobs_of(snapshot_of(feed(1, **options), device=device),
                         looks_of(steps, seconds), 60, own_pid=-1)
    assert len(jobs) == 1
    return jobs[0]


def test_the_sentence():
    job = job_of([(100, 0.003, 0.0)] * 10)
    assert job["sentence"] == (
        "n of user 7 waits 0.3 % of its time for data and has 2 of 6 batches "
        "ready or in use.")
    assert job["level"] == "green"
    assert "Nothing to do" in job["advice"]


@pytest.mark.parametrize("wait,level", [
    (0.0, "green"), (0.049, "green"), (0.051, "amber"), (0.19, "amber"),
    (0.21, "red"), (1.0, "red")])
def test_levels(wait, level):
    job = job_of([(10, wait, 0.0)] * 5)
    assert job["level"] == level
    assert ("Nothing to do" in job["advice"]) == (level == "green")


def test_the_sentence_follows_within_three_looks():
    slow = [(100, 0.0, 0.0)] * 60 + [(10, 0.9, 0.0)] * 2
    assert job_of(slow)["level"] == "red"
    again = slow + [(100, 0.0, 0.0)] * 2
    assert job_of(again)["level"] == "green"


def test_a_long_step_is_no_starvation():
    # One batch in ten seconds, a second of waiting each: a tenth.
    steps = ([(0, 0.0, 0.0)] * 9 + [(1, 1.0, 0.0)]) * 7
    for i in range(10):
        job = job_of(steps[:len(steps) - i])
        assert job["level"] == "amber", job["sentence"]


def test_advice():
    bursts = job_of([(10, 0.3, 0.3)] * 5)
    assert "prefetch= above 4" in bursts["advice"]
    keeps = job_of([(10, 0.3, 0.3)] * 5, held=6)
    assert "keeps 6 of 6" in keeps["advice"] and "clone" in keeps["advice"]
    slow = job_of([(10, 0.3, 0.0)] * 5)
    assert "host_threads" in slow["advice"]
    assert "MPS" in job_of([(10, 0.3, 0.0)] * 5, device="cuda:0")["advice"]


def test_idle_and_starved():
    idle = job_of([(10, 0.0, 0.0)] * 5 + [(0, 0.0, 1.0)] * 12)
    assert idle["level"] == "green"
    assert "has taken no batch for 12 s" in idle["sentence"]
    starved = job_of([(10, 0.0, 0.0)] * 5 + [(0, 1.0, 0.0)] * 12)
    assert starved["level"] == "red"
    assert "has waited for a batch for 12 s" in starved["sentence"]
    assert "Health" in starved["advice"]


def test_new_and_opening():
    assert "has just begun" in job_of([])["sentence"]
    assert "is opening" in job_of(
        [(0, 0.0, 0.0)] * 3, is_attached=False)["sentence"]


def test_ranks_slowest_first_and_the_slowest_decides():
    feeds = [feed(i, name="run", rank=i, world_size=4) for i in range(4)]
    waits = [0.01, 0.5, 0.02, 0.3]
    looks = [
        _watch.Look(float(t), {
            i: _watch.Counters(160 * t, 10 * t, waits[i] * t, 0.0, {})
            for i in range(4)})
        for t in range(6)]
    jobs = _jobs.jobs_of(snapshot_of(*feeds), looks, 60, own_pid=-1)
    assert len(jobs) == 1
    assert [one["rank"] for one in jobs[0]["loaders"]] == [1, 3, 2, 0]
    assert jobs[0]["level"] == "red"
    assert "waits 50 % of its time for data (rank 1 most)" in (
        jobs[0]["sentence"])


def test_the_neediest_job_comes_first():
    feeds = [feed(i, name=f"job{i}") for i in range(3)]
    waits = [0.0, 0.9, 0.1]
    looks = [
        _watch.Look(float(t), {
            i: _watch.Counters(160 * t, 10 * t, waits[i] * t, 0.0, {})
            for i in range(3)})
        for t in range(6)]
    jobs = _jobs.jobs_of(snapshot_of(*feeds), looks, 60, own_pid=-1)
    assert [job["level"] for job in jobs] == ["red", "amber", "green"]


def test_own_feeds_are_no_job():
    looks = looks_of([(1, 0.0, 0.0)])
    assert not _jobs.jobs_of(snapshot_of(feed(1, pid=5)), looks, 60, 5)


def test_processes():
    own = _jobs.process_of(os.getpid(), os.getuid())
    assert own.program == "jobs_test.py" and own.parent == os.getppid()
    # Ranks that a launcher starts by `datasetd run --per-node` are the
    # launcher's.
    between = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys\n"
         "subprocess.run([sys.executable, '-c', 'import os; "
         "print(os.getpid(), flush=True); input()'])",
         "run", "--per-node", "--", "train.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with between:
        rank = int(between.stdout.readline())
        assert _jobs.process_of(rank, os.getuid()).parent == os.getpid()
        between.stdin.write("\n")
    # Another user's process is not the one that the daemon meant.
    assert _jobs.process_of(os.getpid(), os.getuid() + 1).program == ""
    assert _jobs.process_of(2**22 + 1, 0).program == ""
    with subprocess.Popen([sys.executable, "-u", "-c", "input()"],
                          stdin=subprocess.PIPE) as child:
        # The kernel tells it a moment after the process was started.
        found = harness.poll_until(
            lambda: _jobs.process_of(child.pid, os.getuid()).program,
            "the child's program")
        assert found.startswith("python")
        child.stdin.write(b"\n")
        child.stdin.close()
    assert _jobs._program(["/usr/bin/python3", "-u", "/a/train.py", "x"]) == (
        "train.py")
    assert _jobs._program(["python3", "-m", "torch.train", "x"]) == (
        "torch.train")
    assert _jobs._program(["/opt/loader", "a.py"]) == "loader"
    assert _jobs._program([]) == ""


def test_hand_over():
    def look(t, counts):
        return _watch.Look(
            t, {1: _watch.Counters(0, 0, 0.0, 0.0, counts)})

    def found(looks):
        return _jobs.quantiles(_jobs.rate_of(looks, 1, 60).hand_over)

    looks = [look(0.0, {1_000_000: 50}),
             look(1.0, {1_000_000: 100, 5_000_000: 49, 0: 1})]
    assert found(looks) == {"p50": 0.001, "p99": 0.005}
    worse = [looks[0], look(1.0, {1_000_000: 51, 0: 99})]
    assert found(worse)["p99"] is None
    assert found([looks[0], looks[0]]) is None


def test_looks_are_thinned():
    watch = _watch.Watch.__new__(_watch.Watch)
    import collections

    watch._looks = collections.deque()
    for t in range(1000):
        watch._looks.append(_watch.Look(float(t), {}))
        watch._thin(float(t))
    times = [look.time for look in watch._looks]
    assert len(times) < 100
    assert times[-16:] == [float(t) for t in range(984, 1000)]
    assert 300 <= times[-1] - times[0] <= 325
    gaps = [b - a for a, b in zip(times, times[1:])]
    assert max(gaps) <= 6


def test_a_picture_is_a_png():
    import io

    import numpy as np
    from PIL import Image

    for channels, mode in ((1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")):
        pixels = np.random.default_rng(1).integers(
            0, 256, (5, 7, channels), np.uint8)
        with Image.open(io.BytesIO(_png.png(pixels))) as image:
            assert image.mode == mode
            assert (np.asarray(image).reshape(5, 7, channels) == pixels).all()


def test_normalize_is_undone():
    ops = [{"to_dtype": {"dtype": "DTYPE_FLOAT16", "scale": True}},
           {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.1, 0.3]}}]
    scale = _views.scale_of("uint8", ops)
    for level in (0, 17, 255):
        for c, (mean, std) in enumerate(((0.5, 0.2), (0.4, 0.1), (0.3, 0.3))):
            number = (level / 255 - mean) / std
            factor, offset = scale.channels[c]
            assert (number - offset) / factor == pytest.approx(level)
    assert _views.scale_of("float32", ops).channels is None


def test_pasted_transforms():
    parse = _samples.parse_transforms
    ops = [{"random_crop": {"height": 4, "width": 4,
                            "padding_mode": "reflect"}}]
    full = [{"random_crop": {"height": 4, "width": 4,
                             "padding_mode": "PADDING_MODE_REFLECT"}}]
    import json

    for value in (ops, {"transforms": ops}, {"photo": ops},
                  {"photo": {"transforms": ops}}):
        assert parse(json.dumps(value), ["photo", "mask"]) == {"photo": full}
    for text in ("", "{", "3", "[3]", '{"image": 3}', "null"):
        with pytest.raises(ValueError, match="transforms are not"):
            parse(text, [])


@pytest.mark.parametrize("value, shown", [
    (2**53, 2**53), (-(2**53), -(2**53)), (2**53 + 1, str(2**53 + 1)),
    (-(2**62) - 1, str(-(2**62) - 1)), (7, 7), (0.5, 0.5)])
def test_integers_that_a_browser_would_round_are_texts(value, shown):
    assert _views._numbers(value)["value"] == shown


if __name__ == "__main__":
    harness.main(__file__)
