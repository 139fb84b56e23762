"""Attacks with what a client may keep, and with memory that takes long to free."""

import os

import datasetd
import pytest

from tests.testing import arena
from tests.testing import daemon_harness as harness

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_MAX_SLAB_MIB = 48
_NUM_FEEDS = 40 if _IS_FULL else 12
_MAX_STALL_SECONDS = 2.0

# Opens feeds, one after the other, and says of each that it uses its memory no
# more, but keeps a mapping of it. Counts the pages that it has then.
_KEEPER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
                        ctypes.c_int]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
PAGE = os.sysconf("SC_PAGE_SIZE")

def slabs():
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/memfd:datasetd-slab" in line:
                begin, end = (int(n, 16) for n in line.split()[0].split("-"))
                yield begin, end - begin

def resident_bytes(address, size):
    pages = ctypes.create_string_buffer(size // PAGE)
    assert libc.mincore(address, size, pages) == 0, ctypes.get_errno()
    return PAGE * sum(byte & 1 for byte in pages.raw)

client = datasetd.connect(ADDRESS)
dataset = load(client, "victim")
kept = []
opened_bytes = 0
for number in range(ARGUMENTS["num_feeds"]):
    # 10 slots of 600 images: 18 MiB.
    loader = datasetd.DataLoader(dataset, batch_size=600, prefetch=8,
                                 framework="numpy", timeout=60)
    next(iter(loader))
    before = {address for address, _ in kept}
    (found,) = [slab for slab in slabs() if slab[0] not in before]
    # Of a shared mapping, 0 bytes that move are a second mapping of all.
    copy = libc.mremap(found[0], 0, found[1], 1)
    assert copy != ctypes.c_void_p(-1).value, ctypes.get_errno()
    opened_bytes += found[1]
    loader.close()
    kept.append((copy, found[1]))
    say(opened_bytes=opened_bytes)
    hear()
# A feed is out of the list a moment before its memory is freed.
deadline = time.monotonic() + ARGUMENTS["timeout"]
while (kept_bytes := sum(resident_bytes(*slab) for slab in kept)):
    if time.monotonic() > deadline:
        break
    time.sleep(0.01)
say(kept_bytes=kept_bytes,
    nonzero=sum(any(ctypes.string_at(*slab)) for slab in kept))
hear()
"""

# Takes and gives back as much memory as it may have, again and again.
_CHURNER = """
client = datasetd.connect(ADDRESS)
dataset = load(client, "victim")
for number in range(ARGUMENTS["num_feeds"]):
    loader = datasetd.DataLoader(
        dataset, batch_size=600, prefetch=8, framework="numpy", timeout=60,
        transforms=[T.Resize((192, 192))])
    next(iter(loader))
    loader.close()
say(done=True)
"""


def _slab_bytes(client):
    return int(client.status()["devices"][0]["slab_bytes"])


# Has no right to make threads from here on, opens a loader and ends.
_THREADLESS = """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
client = datasetd.connect(ADDRESS)
dataset = load(client, "victim")
loader = datasetd.DataLoader(dataset, batch_size=600, framework="numpy")
num_rows = sum(len(batch.indices) for batch in loader)
if ARGUMENTS["is_closed"]:
    loader.close()
    client.close()
say(num_rows=num_rows)
"""


@arena.needs_users
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_client_that_is_refused_threads_ends(is_closed):
    with arena.Arena() as a:
        with a.attacker(_THREADLESS, path=a.path("data/victim"),
                        is_closed=is_closed) as worker:
            assert worker.hear()["num_rows"] == arena.NUM_SAMPLES
            assert worker.process.wait(harness.DEADLINE_SECONDS) == 0


def test_kept_slabs():
    with arena.Arena(user_limits={"max_slab_mib": _MAX_SLAB_MIB}) as a:
        with a.daemon.connect() as client, a.attack() as measure, a.attacker(
                _KEEPER, path=a.path("data/victim"),
                num_feeds=_NUM_FEEDS, timeout=20) as worker:
            for _ in range(_NUM_FEEDS):
                opened_bytes = worker.hear()["opened_bytes"]
                # A slab is charged as long as it is there: the attacker's last
                # one must be gone.
                harness.poll_until(
                    lambda: not any(feed["uid"] == arena.ATTACKER_UID
                                    for feed in client.list_feeds()),
                    "the attacker's feed is gone", 20)
                worker.tell()
            said = worker.hear()
        print(f"{opened_bytes >> 20} MiB opened, {said}")
        assert opened_bytes > 2 * _MAX_SLAB_MIB << 20
        assert said == {"kept_bytes": 0, "nonzero": 0}
        a.expect_unhurt(measure, _MAX_STALL_SECONDS)


def test_slow_frees():
    with arena.Arena(user_limits={"max_slab_mib": 1024},
                     memory_budget_mib=3072) as a:
        with a.attack() as measure, a.attacker(
                _CHURNER, path=a.path("data/victim"),
                num_feeds=8 if _IS_FULL else 2) as worker:
            assert worker.hear(timeout=240) == {"done": True}
        assert measure.prober_errors == []
        a.expect_unhurt(measure)


def test_the_daemons_end_takes_nothing_from_clients():
    with harness.Daemon(drain_timeout="1s") as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client, datasetd.DataLoader(
                daemon.load(client), batch_size=50,
                framework="numpy") as loader:
            kept = [batch[0] for batch in loader]
            daemon.terminate()
            assert daemon.wait() == 0
            assert (kept[0] == daemon.planes[:50]).all()
            assert (kept[1] == daemon.planes[50:]).all()


if __name__ == "__main__":
    harness.main(__file__)
