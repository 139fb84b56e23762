"""The daemon watched a client's process, by a pidfd, from the end of each
lease on, to free the slab when the process ends. It did so as well after a
DETACHED, when the slab was free already: a job that opened a loader for every
epoch cost the daemon a descriptor an epoch, until accept() failed."""

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402


@pytest.mark.parametrize("keeps_tensor", [False, True])
def test_feeds_of_one_process_leave_no_descriptor(keeps_tensor):
    with harness.Daemon() as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            before = harness.Footprint(daemon, client)
            for _ in range(50):
                loader = datasetd.DataLoader(dataset, batch_size=10,
                                             prefetch=1)
                images = next(iter(loader))[0]
                if not keeps_tensor:
                    del images
                loader.close()
            images = None
            harness.expect_footprint(daemon, client, before)


if __name__ == "__main__":
    harness.main(__file__)
