"""Calls that cost the daemon much: the caller pays, and others are served."""

from tests.testing import arena
from tests.testing import daemon_harness as harness

_SECONDS = 2.0
_MAX_STALL_SECONDS = 1.0
_MAX_WAIT_SECONDS = 2.0

# Threads of one user that call without a pause.
_CALLER = """
import concurrent.futures
client = datasetd.connect(ADDRESS)
rows = np.arange(ARGUMENTS["num_samples"])
dataset = client.push_dataset(f"heavy{os.getpid()}", (
    {"image": image, "label": label}
    for image, label in zip(np.zeros((len(rows), 8, 8, 3), np.uint8),
                            rows % 10)))
ops = [T.RandomApply([T.ColorJitter(0.1, 0.1, 0.1, 0.1)], p=0.9)] * 8
indices = list(range(200))
def explain():
    client.explain(dataset, ops, indices=indices)
def open_feed():
    with datasetd.DataLoader(
            dataset, batch_size=100, shuffle=True, framework="numpy",
            prefetch=1, transforms=[T.ToDtype("float32", scale=True),
                                    T.MixUp(num_classes=10)]) as loader:
        next(iter(loader))
def read():
    client.fetch(dataset, rows[:1000], [T.Resize(64)] + ops[:7],
                 framework="numpy")
def fail():
    try:
        client.load_dataset("x", format="npy", path="/" + "x" * 3000)
    except datasetd.Error:
        pass
call = {"explain": explain, "open": open_feed, "read": read,
        "fail": fail}[ARGUMENTS["call"]]
call()
say(begun=True)
end = time.monotonic() + ARGUMENTS["seconds"]
def repeat():
    count, refused = 0, 0
    while time.monotonic() < end:
        try:
            call()
            count += 1
        except datasetd.Error:
            refused += 1
    return count, refused
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    done = [f.result() for f in [pool.submit(repeat) for _ in range(16)]]
say(count=sum(d[0] for d in done), refused=sum(d[1] for d in done))
"""


def _attack(call, num_samples):
    with arena.Arena() as a:
        with a.attacker(_CALLER, call=call, num_samples=num_samples,
                        seconds=_SECONDS) as one, \
                a.attacker(_CALLER, call=call, num_samples=num_samples,
                           seconds=_SECONDS) as two:
            one.hear()
            two.hear()
            with a.attack() as measure:
                counts = [one.hear(), two.hear()]
        print(f"{call}: {counts}")
        assert measure.prober_wait_seconds < _MAX_WAIT_SECONDS
        assert not measure.prober_errors
        a.expect_unhurt(measure, _MAX_STALL_SECONDS)


def test_explanations():
    _attack("explain", 1000)


def test_feeds_that_look_at_all_labels():
    _attack("open", 200_000)


def test_reads_of_transformed_samples():
    _attack("read", 1000)


def test_refused_loads():
    _attack("fail", 10)


if __name__ == "__main__":
    harness.main(__file__)
