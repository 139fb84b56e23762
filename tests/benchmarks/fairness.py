"""Measures the cost of one user's heavy work to another: the waits of a victim
for its next batch beside eight feeds like its own, and beside eight that take
as much as they can get and thirty loads.

The victim and the others are two users where this runs as root. The target: at
most three times the waits beside fair feeds.
"""

import argparse
import select

from tests.benchmarks import benchmark_report
from tests.testing import arena

_FAIR = """
dataset = datasetd.connect(ADDRESS).load_dataset(
    "victim", format="cifar10", split="test", path=ARGUMENTS["path"])
loaders = [
    datasetd.DataLoader(
        dataset, batch_size=20, shuffle=True, seed=seed, framework="numpy",
        prefetch=4,
        transforms=[T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()])
    for seed in range(8)]
iterators = [iter(loader) for loader in loaders]
say(begun=True)
while True:
    for i, iterator in enumerate(iterators):
        if next(iterator, None) is None:
            iterators[i] = iter(loaders[i])
"""

_HOSTILE = """
client = datasetd.connect(ADDRESS, timeout=600)
images = np.random.default_rng(1).integers(0, 256, (64, 32, 32, 3), np.uint8)
dataset = client.push_dataset("heavy", ({"image": image} for image in images))
ops = ([T.Resize([1024, 1024])] + 12 * [T.GaussianBlur(23, 5.0)]
       + [T.Resize([64, 64])])
# A load takes no random op.
load_ops = ([T.Resize([1024, 1024]), T.Resize([31, 1024]),
             T.Resize([1024, 1023])] * 5 + [T.Resize([64, 64])])
loaders = [
    datasetd.DataLoader(dataset, batch_size=64, transforms=ops,
                        framework="numpy", prefetch=4) for _ in range(8)]
for loader in loaders:
    threading.Thread(target=next, args=(iter(loader),), daemon=True).start()
while sum(feed["dataset"] == "heavy" for feed in client.list_feeds()) < 8:
    time.sleep(0.01)
path = ARGUMENTS["path"]
os.makedirs(path)
np.save(path + "/image.npy", np.repeat(images, 8, axis=0))
def load(i):
    while True:
        try:
            with datasetd.connect(ADDRESS, timeout=600) as own:
                own.load_dataset(f"slow{i}", format="npy", path=path,
                                 pretransforms=load_ops)
        except datasetd.Error:
            time.sleep(0.05)  # no place for it
for i in range(30):
    threading.Thread(target=load, args=(i,), daemon=True).start()
say(begun=True)
hear()
"""


def measure(source, seconds, path):
    with arena.Arena(host_threads=2) as a:
        if source is None:
            with a.attack() as result:
                select.select([], [], [], seconds)
            return result
        with a.attacker(source, path=a.path(path)) as worker:
            worker.hear()
            with a.attack() as result:
                select.select([], [], [], seconds)
        a.expect_well(60)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    report = benchmark_report.Report("fairness", **vars(arguments))
    kinds = {
        "alone": (None, ""),
        "8 fair feeds": (_FAIR, "data/victim"),
        "8 hostile feeds, 30 loads": (_HOSTILE, "data/slow"),
    }
    rows = {kind: [] for kind in kinds}
    for _ in range(arguments.repetitions):
        for kind, (source, path) in kinds.items():
            result = measure(source, arguments.seconds, path)
            rows[kind].append({
                "p50_ms": 1e3 * result.victim_p50_seconds,
                "p99_ms": 1e3 * result.victim_p99_seconds,
                "longest_ms": 1e3 * result.victim_stall_seconds,
                "new_job_ms": 1e3 * result.prober_wait_seconds,
            })
    medians = {
        kind: {key: benchmark_report.median([row[key] for row in measured])
               for key in measured[0]}
        for kind, measured in rows.items()}
    for kind, row in medians.items():
        report.add(kind, row)
        print(f"{kind:28}" + "".join(
            f"  {key} {value:9.3f}" for key, value in row.items()))
    fair = medians["8 fair feeds"]
    hostile = medians["8 hostile feeds, 30 loads"]
    for key in ("p50_ms", "p99_ms"):
        print(f"hostile / fair, {key[:3]}: {hostile[key] / fair[key]:.2f}")
    report.write()


if __name__ == "__main__":
    main()
