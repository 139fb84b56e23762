"""What direct_probe.py uses, on an emulated GPU: its own launches make a feed's
batches, and vmm_probe tells what an importer may do."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

sys.path.insert(0, harness.runfile("tests/selftest"))
import direct_probe  # noqa: E402

_VMM_PROBE = harness.runfile("tests/selftest/vmm_probe")
_PLANNER = harness.runfile("tests/selftest/direct_plan")
_BATCH = 8


@pytest.mark.parametrize("layout,ops", [
    ("NHWC", [T.RandomCrop(20, padding=3, padding_mode="reflect"),
              T.RandomHorizontalFlip(), T.ToDtype("float16", scale=True)]),
    ("NCHW", [T.RandomResizedCrop(16), T.ToDtype("float32", scale=True)]),
])
def test_launches_of_the_job_make_the_feeds_batches(tmp_path, layout, ops):
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (64, 20, 20, 3), dtype=np.uint8)
    labels = random.integers(0, 10, 64)
    with datasetd.start_local(device="cpu") as daemon, \
            daemon.connect() as client:
        dataset = client.push_dataset("direct",
                                      {"image": images, "label": labels})
        with datasetd.DataLoader(
                dataset, batch_size=_BATCH, shuffle=True,
                seed=direct_probe.SEED, framework="numpy", transforms=ops,
                layout=layout, timeout=60) as loader:
            batches = [batch.clone() for batch in loader][:3]
            feed = direct_probe.newest_feed(client)
            transforms = direct_probe.feed_transforms(client, feed["feed_id"])
    owner = direct_probe.Owner(images, labels, tmp_path, _VMM_PROBE)
    direct = direct_probe.Direct(owner, transforms, _BATCH, 4,
                                 is_nhwc=layout == "NHWC", planner=_PLANNER)
    # Two by one launch, and one alone.
    for slot, first, count in ((1, 0, 2), (0, 2, 1)):
        taken = batches[first:first + count]
        direct.indices(slot, slot,
                       np.concatenate([batch.indices for batch in taken]))
        direct.launch(slot, count, taken[0].epoch)
        for i, batch in enumerate(taken):
            image, label = direct.read(slot + i)
            expected = batch.image
            if layout == "NHWC":
                expected = expected.transpose(0, 2, 3, 1)
            assert image[:expected.nbytes] == expected.tobytes()
            assert label == batch.label.astype(np.int64).tobytes()
    direct.close()
    owner.close()


def test_an_error_of_the_plan_is_told(tmp_path):
    images = np.zeros((4, 8, 8, 3), np.uint8)
    owner = direct_probe.Owner(images, [0] * 4, tmp_path, _VMM_PROBE)
    with pytest.raises(RuntimeError, match="nonsense"):
        direct_probe.Direct(owner, {"nonsense": 1}, 2, 2, planner=_PLANNER)
    owner.close()


def test_what_an_importer_may_do():
    done = subprocess.run([_VMM_PROBE, "--short"], stdout=subprocess.PIPE,
                          timeout=harness.DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    answer = json.loads(done.stdout)
    pattern, change = answer["pattern"], answer["change"]
    for what, error in (("copy", "INVALID_VALUE"), ("memset", "INVALID_VALUE"),
                        ("store", "ILLEGAL_ADDRESS")):
        assert answer["read_only"][what]["map"] == "OK"
        assert error in answer["read_only"][what]["write"]
        assert answer["read_only"][what]["owner_reads"] == pattern
    # An importer chooses its own access.
    assert answer["upgrade"]["write"] == "OK"
    assert answer["upgrade"]["owner_reads"] == change
    assert answer["twice"]["read"] == answer["twice"]["owner_reads"] == pattern
    # Memory outlives its owner, with a mapping and with the descriptor alone.
    assert answer["owner_killed"]["before"] == pattern
    assert answer["owner_killed"]["after"] == pattern
    assert answer["only_a_descriptor"]["read"] == pattern
    assert answer["large"]["map"] == "OK"
    for speed in ("speed_read_only", "speed_writable"):
        assert answer[speed]["read_us"] > 0


if __name__ == "__main__":
    harness.main(__file__)
