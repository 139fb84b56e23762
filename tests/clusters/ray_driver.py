"""Run by ray_test.py with the Python that has Ray: the example on two nodes of
one machine. Prints what it saw as JSON.

    ray_driver.py EXAMPLES DATA NODE0 NODE1
"""

import json
import os
import signal
import sys
import time

examples, data, *directories = sys.argv[1:]
sys.path.insert(0, examples)

import ray  # noqa: E402
import ray_job  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

cluster = Cluster()
for directory in directories:
    # For the processes of this node.
    os.environ["XDG_RUNTIME_DIR"] = directory
    cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)
del os.environ["XDG_RUNTIME_DIR"]
ray.init(
    address=cluster.address,
    log_to_driver=False,
    runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
)
first = ray_job.run(data, tasks_per_node=2)
# The workers that started a daemon are among them.
for result in first:
    os.kill(result["worker"], signal.SIGKILL)
deadline = time.monotonic() + 60
while any(os.path.exists(f"/proc/{r['worker']}/maps")
          and open(f"/proc/{r['worker']}/cmdline").read()
          for r in first):
    if time.monotonic() > deadline:
        raise SystemExit("the workers did not end")
    time.sleep(0.01)
second = ray_job.run(data)
ray.shutdown()
cluster.shutdown()
print(json.dumps([first, second]), flush=True)
