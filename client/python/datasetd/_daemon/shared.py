"""A private daemon that the jobs of a user share: found, or started."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from .._arguments import checked_seconds, device_name
from .._client import folders, formats
from .._client.client import SYSTEM_ADDRESS, Client
from .._client.loading import (
    Classes,
    Progress,
    dataset_spec,
    names_of_classes,
    options_with_classes,
)
from .._datasets import parts
from .._datasets.dataset import Dataset
from .._feed.recovery import LOST
from .._push.samples import Fields
from .._ranks import nodes
from .._version import __version__
from ..errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    VersionMismatch,
)
from ..transforms._pipeline import Pipelines
from .start import (
    START_SECONDS,
    is_private,
    listens,
    shared_directory,
    start_daemon,
)

IDLE_VARIABLE = "DATASETD_IDLE_SECONDS"
_IDLE_SECONDS = 300.0
_SYSTEM_ADDRESS = SYSTEM_ADDRESS
_ANSWER_SECONDS = 10.0
_LEAST_ANSWER_SECONDS = 0.2
_POLL_SECONDS = 0.02
# Unused datasets must leave memory to the jobs.
_EVICT_UNUSED_AFTER = "1800s"
_MAX_UNUSED_PERCENT = 25
# Nodes of NVIDIA's drivers: of a server or PC, of WSL, of Jetsons.
_GPU_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")


def connect(
    address: Optional[str] = None, timeout: Optional[float] = None
) -> Client:
    """Connects to the daemon at `address`, or to the one that load() uses.

    `address` is "unix:/path/datasetd.sock" or the path: waits for a daemon that
    is starting, also after one that is shutting down; if there is none within
    `timeout` seconds, 10 for None, raises DaemonGone, or DaemonDraining while
    the old one is still there. Without an address this is connect_or_start(),
    which finds a daemon, or starts one unless $DATASETD_ADDRESS is set.
    """
    if not address:
        return connect_or_start(timeout=timeout)
    return Client(address, _ANSWER_SECONDS if timeout is None else timeout)


def connect_or_start(
    device: Any = None,
    idle_seconds: Optional[float] = None,
    timeout: Optional[float] = None,
) -> Client:
    """Connects to a daemon, and starts one if there is none.

    This is the daemon at $DATASETD_ADDRESS; if that is unset the system's, if
    it runs; else a private one of this user. All jobs of the user share it that
    use the same version of datasetd and the same $CUDA_VISIBLE_DEVICES, where
    there are GPUs those with device="cpu" one of their own; it is no child of
    the job, and ends when it has had no client for some time.

    Args:
      device: "cpu" or a CPU torch.device: the private daemon serves host
        memory. Else it serves every GPU, or host memory if there is none.
      idle_seconds: that time, if this call starts the daemon; None:
        $DATASETD_IDLE_SECONDS, or if that is unset 300; 0: it does not end by
        itself.
      timeout: seconds within which a daemon must answer; None: 10, or 60 for
        one that is started.

    The private daemon's sockets and log lie in a directory of $XDG_RUNTIME_DIR
    or, where that is not set, of /tmp, which it removes at its end. Raises
    PermissionDenied if that belongs to somebody else, FailedPrecondition if the
    daemon does not start, with the end of its log.
    """
    limit = None if timeout is None else checked_seconds("timeout", timeout)
    idle = _idle_seconds(idle_seconds)
    answer_limit = _ANSWER_SECONDS if limit is None else limit
    if os.environ.get("DATASETD_ADDRESS"):
        return Client(None, answer_limit)
    if listens(_SYSTEM_ADDRESS):
        try:
            return Client(_SYSTEM_ADDRESS, answer_limit)
        except PermissionDenied as error:
            raise PermissionDenied(
                f"{error}, or use a daemon of your own: datasetd.start_local()"
            ) from None
    seconds = START_SECONDS if limit is None else limit
    shared = _daemon_of_user(False, idle)
    if device_name(device) != "cpu":
        return shared.connect(seconds)
    if not _may_have_gpu() or shared.listens():
        client = shared.connect(seconds)
        if any(one["name"] == "cpu" for one in client.status()["devices"]):
            return client
        client.close()
    return _daemon_of_user(True, idle).connect(seconds)


def _may_have_gpu() -> bool:
    """False if a daemon of this process would serve host memory. CUDA cannot
    be asked: this process could not fork afterwards."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    is_hidden = visible is not None and visible.strip() in ("", "-1")
    return not is_hidden and any(map(os.path.exists, _GPU_NODES))


def load(
    format: str,
    path: folders.Paths = None,
    split: Optional[str] = None,
    pretransforms: Pipelines = (),
    device: Any = None,
    options: Optional[Mapping[str, Any]] = None,
    progress: Progress = False,
    bad_samples: str = "fail",
    max_bad_samples: Optional[int] = None,
    name: Optional[str] = None,
    *,
    residency: str = "device",
    device_bytes: Optional[int] = None,
    part: Optional[nodes.Given] = None,
    part_epoch: Optional[int] = None,
    part_seed: int = 0,
    private: bool = False,
    pin: bool = False,
    classes: Classes = None,
    ignore_other_classes: bool = False,
) -> Dataset:
    """Loads a dataset into the daemon that connect() finds or starts.

    A job that asks for the same gets the dataset that is there. Arguments as in
    Client.load_dataset; `name` defaults to one made of the others, and for a
    format that this process reads, of its files' sizes and times; it is needed
    if an option is or has a function. The dataset stays while a job has it, and
    after that for half an hour, unless its memory is needed, the daemon ends,
    or this is called after its files have changed. Raises AlreadyExists if they
    have while a job has it and there is no `name`.
    """
    if not isinstance(format, str):
        raise InvalidArgument(
            f"format={type(format).__name__}; expected the name of a format, "
            "as 'image_folder'. What this process has already is pushed: "
            "datasetd.push(name, data)"
        )
    if path is not None:
        path = folders.checked_path(format, path)
    arguments: Dict[str, Any] = {
        "path": path,
        "split": split,
        "pretransforms": pretransforms,
        "device": device,
        "options": options,
        "bad_samples": bad_samples,
        "max_bad_samples": max_bad_samples,
        "residency": residency,
        "device_bytes": device_bytes,
        "private": private,
        "pin": pin,
    }
    division: Dict[str, Any] = {
        "part": part,
        "part_epoch": part_epoch,
        "part_seed": part_seed,
    }
    spec = dataset_spec("", format, **arguments)
    if classes is not None:
        # In the name below, that of a dataset stands for its classes.
        classes = getattr(classes, "class_names", classes)
        spec["class_names"] = classes
    spec["ignore_other_classes"] = ignore_other_classes
    is_named_here = name is None
    is_named_by_files = is_named_here and formats.is_read_here(format)
    if name is None:
        for option, value in (options or {}).items():
            if _has_function(value):
                raise InvalidArgument(
                    f"option {option} is or has a function, which cannot be "
                    "compared with that of another job: give the dataset a "
                    "name, name="
                )
        key: Any = spec
        if is_named_by_files:
            key = [spec, formats.file_state(spec["path"])]
        digest = hashlib.sha256(
            json.dumps(key, sort_keys=True, default=repr).encode()
        ).hexdigest()[:12]
        words = "-".join(filter(None, (format, split)))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{words}-{digest}")
    dataset_name = name

    def load_by(client: Client) -> Dataset:
        if is_named_by_files:
            arguments["options"] = options_with_classes(
                options,
                names_of_classes(client._session, classes),
                ignore_other_classes,
            )
            return formats.load(
                client._session,
                client.push_dataset,
                client.get_dataset,
                dataset_name,
                format,
                progress=progress,
                is_named_by_files=True,
                **division,
                **arguments,
            )
        dataset: Dataset = client.load_dataset(
            dataset_name,
            format,
            progress=progress,
            classes=classes,
            ignore_other_classes=ignore_other_classes,
            **division,
            **arguments,
        )
        return dataset

    def load_or_replace(client: Client) -> Dataset:
        try:
            return load_by(client)
        except AlreadyExists:
            if not is_named_here or is_named_by_files:
                raise
        divided = parts.resolve(**division)
        _unload_unused(
            client, divided.name(dataset_name) if divided else dataset_name
        )
        try:
            return load_by(client)
        except AlreadyExists as error:
            raise AlreadyExists(
                f"{error}. Jobs that use it keep it: give the new one a "
                "name of its own, name="
            ) from None

    return _with_daemon(device, load_or_replace)


def push(
    name: Optional[str],
    data: Any,
    fields: Fields = None,
    *,
    device: Any = None,
    **arguments: Any,
) -> Dataset:
    """Pushes a dataset to the daemon that connect() finds or starts.

    Arguments as in Client.push_dataset: `datasetd.push("d", {"x": X, "y": y})`
    is `datasetd.connect().push_dataset("d", {"x": X, "y": y})`.
    """

    def push_by(client: Client) -> Dataset:
        return client.push_dataset(
            name, data, fields, device=device, **arguments
        )

    if hasattr(data, "__next__"):  # it can be read once
        return push_by(connect_or_start(device))
    return _with_daemon(device, push_by)


def _with_daemon(device: Any, work: Callable[[Client], Dataset]) -> Dataset:
    """Returns work(client). A shared daemon that was idle may end while a
    client comes: then another one is started."""
    client = connect_or_start(device)
    try:
        return work(client)
    except LOST:
        if client._session.start_daemon is None:
            raise
    return work(connect_or_start(device))


def _unload_unused(client: Client, name: str) -> None:
    """Unloads a dataset that nobody holds. Other jobs of this user wait: what
    one of them loads under the name is held."""
    with _locked(os.path.dirname(client.address)):
        for message in client.list_datasets():
            # A feed whose end the daemon does not know yet is no reason not to
            # try: it waits for that, and refuses if feeds are open.
            if message["name"] == name and not message["num_holders"]:
                with contextlib.suppress(
                    FailedPrecondition, NotFound, PermissionDenied
                ):
                    client.unload_dataset(name)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Locks the daemon's directory or, where that is not this user's, another
    one."""
    for path in (
        directory,
        os.environ.get("XDG_RUNTIME_DIR", ""),
        os.path.expanduser("~"),
    ):
        if not os.path.isdir(path) or os.stat(path).st_uid != os.geteuid():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Also if a fork() has copied the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
        return
    yield


def _has_function(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_function, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_has_function, value))
    return callable(value) and not isinstance(value, type)


def _idle_seconds(value: Optional[float]) -> float:
    if value is not None:
        return checked_seconds("idle_seconds", value)
    text = os.environ.get(IDLE_VARIABLE, "")
    if not text:
        return _IDLE_SECONDS
    try:
        return checked_seconds(IDLE_VARIABLE, float(text))
    except ValueError:
        raise InvalidArgument(
            f"${IDLE_VARIABLE} is {text!r}; expected seconds, a number from 0"
        ) from None


def _daemon_of_user(is_host_only: bool, idle_seconds: float) -> _SharedDaemon:
    """Returns the daemon that all jobs of this user share."""
    key = [__version__, os.environ.get("CUDA_VISIBLE_DEVICES"), is_host_only]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
    flags = [
        f"--exit_when_idle={math.ceil(idle_seconds * 1000)}ms",
        f"--set=evict_unused_after={_EVICT_UNUSED_AFTER}",
        f"--set=max_unused_percent={_MAX_UNUSED_PERCENT}",
    ]
    if is_host_only:
        flags.append("--device=cpu")
    return _SharedDaemon(shared_directory(digest), flags)


class _SharedDaemon:
    """The daemon of a directory, whether it runs or not."""

    def __init__(self, directory: str, flags: List[str]) -> None:
        self._directory = directory
        self._flags = flags
        self.address = os.path.join(directory, "datasetd.sock")

    def listens(self) -> bool:
        return is_private(self._directory) and listens(self.address)

    def connect(self, timeout: float) -> Client:
        deadline = time.monotonic() + timeout
        while True:
            self._start(deadline)
            left = deadline - time.monotonic()
            try:
                client = Client(
                    self.address,
                    max(left, _LEAST_ANSWER_SECONDS),
                    start_daemon=self._restart,
                )
                client.status()
                return client
            except VersionMismatch as error:
                raise VersionMismatch(
                    f"{error}. It is a daemon that jobs of this user share; it "
                    "ends by itself when it has been idle"
                ) from None
            except LOST:
                # It was about to end, being idle.
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _restart(self) -> None:
        self._start(time.monotonic() + START_SECONDS)

    def _start(self, deadline: float) -> None:
        """Returns once a daemon listens."""
        if not self.listens():
            start_daemon(
                self._directory, self._flags, deadline - time.monotonic()
            )


__all__ = ["connect", "connect_or_start", "load", "push"]
