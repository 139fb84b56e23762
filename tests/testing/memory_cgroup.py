"""A control group that limits the memory of processes, page cache included."""

import os
import tempfile


def _own_group():
    """The directory of this process's memory group and its version, or None."""
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return f"/sys/fs/cgroup/memory{path}", 1
    for number, _, path in lines:
        if number == "0":
            return f"/sys/fs/cgroup{path}", 2
    return None


class MemoryCgroup:
    """A context manager; OSError where no group can be made."""

    def __init__(self, limit_bytes):
        found = _own_group()
        if found is None:
            raise OSError("there are no control groups")
        parent, version = found
        self._limit_file, self._peak_file = (
            ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
            if version == 1 else ("memory.max", "memory.peak"))
        self.path = tempfile.mkdtemp(prefix="datasetd-", dir=parent)
        try:
            self._write(self._limit_file, limit_bytes)
        except OSError:
            os.rmdir(self.path)
            raise

    def add(self, pid):
        self._write("cgroup.procs", pid)

    def peak_bytes(self):
        with open(os.path.join(self.path, self._peak_file)) as file:
            return int(file.read())

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.rmdir(self.path)
