"""A private daemon that the jobs of a user share: found, or started."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from typing import Any, Dict, Mapping, Optional

from .._arguments import checked_seconds, device_name
from .._client import formats
from .._client.client import Classes, Client, Path, connect
from .._client.loading import (
    Progress,
    dataset_spec,
    names_of_classes,
    options_with_classes,
)
from .._datasets import parts
from .._datasets.dataset import Dataset
from .._feed.recovery import LOST
from .._ranks import nodes
from .._version import __version__
from ..errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from ..transforms._pipeline import Pipelines
from .shared_daemon import (
    START_SECONDS,
    SharedDaemon,
    base_directory,
    listens,
)

IDLE_VARIABLE = "DATASETD_IDLE_SECONDS"
_IDLE_SECONDS = 300.0
_SYSTEM_ADDRESS = "/run/datasetd/datasetd.sock"
_ANSWER_SECONDS = 10.0


def connect_or_start(
    device: Any = None,
    idle_seconds: Optional[float] = None,
    timeout: Optional[float] = None,
) -> Client:
    """Connects to a daemon, and starts one if there is none.

    This is the daemon at $DATASETD_ADDRESS; if that is unset the system's, if
    it runs; else a private one of this user. All jobs of the user share it that
    use the same version of datasetd and the same $CUDA_VISIBLE_DEVICES, those
    with device="cpu" one of their own; it is no child of the job, and ends when
    it has had no client for some time.

    Args:
      device: "cpu" or a CPU torch.device: the private daemon serves host memory
        only. Else it serves every GPU, or host memory if there is none.
      idle_seconds: that time, if this call starts the daemon; None:
        $DATASETD_IDLE_SECONDS, or if that is unset 300; 0: it does not end by
        itself.
      timeout: seconds within which a daemon must answer; None: 10, or 60 for
        one that is started.

    The private daemon's sockets, configuration and log lie in a directory of
    $XDG_RUNTIME_DIR or, where that is not set, of /tmp/datasetd-UID. Raises
    PermissionDenied if that belongs to somebody else, FailedPrecondition if the
    daemon does not start, with the end of its log.
    """
    limit = None if timeout is None else checked_seconds("timeout", timeout)
    idle = _idle_seconds(idle_seconds)
    answer_limit = _ANSWER_SECONDS if limit is None else limit
    if os.environ.get("DATASETD_ADDRESS"):
        return connect(None, answer_limit)
    if listens(_SYSTEM_ADDRESS):
        try:
            return connect(_SYSTEM_ADDRESS, answer_limit)
        except PermissionDenied as error:
            raise PermissionDenied(
                f"{error}, or use a daemon of your own: datasetd.start_local()"
            ) from None
    return _daemon_of_user(device_name(device) == "cpu", idle).connect(
        START_SECONDS if limit is None else limit
    )


def load(
    format: str,
    path: Optional[Path] = None,
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
    """Loads a dataset into the daemon that connect_or_start() finds.

    A job that asks for the same gets the dataset that is there. Arguments as in
    Client.load_dataset; `name` defaults to one made of the others, and for a
    format that this process reads, of its files' sizes and times; it is needed
    if an option is or has a function. The dataset stays while a job has it, and
    after that until its memory is needed, the daemon ends, or this is called
    after its files have changed. Raises AlreadyExists if they have while a job
    has it and there is no `name`.
    """
    if not isinstance(format, str):
        raise InvalidArgument(
            f"format={type(format).__name__}; expected the name of a format, "
            "as 'image_folder'. What this process has already is pushed: "
            "datasetd.connect_or_start().push_dataset(name, data)"
        )
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
    was_lost = was_replaced = False
    while True:
        client = connect_or_start(device)
        try:
            if is_named_by_files:
                arguments["options"] = options_with_classes(
                    options,
                    names_of_classes(client._session, classes),
                    ignore_other_classes,
                )
                return formats.load(
                    client,
                    name,
                    format,
                    progress=progress,
                    is_named_by_files=True,
                    **division,
                    **arguments,
                )
            dataset: Dataset = client.load_dataset(
                name,
                format,
                progress=progress,
                classes=classes,
                ignore_other_classes=ignore_other_classes,
                **division,
                **arguments,
            )
            return dataset
        except AlreadyExists as error:
            if not is_named_here or is_named_by_files:
                raise
            if was_replaced:
                raise AlreadyExists(
                    f"{error}. Jobs that use it keep it: give the new one a "
                    "name of its own, name="
                ) from None
            divided = parts.resolve(**division)
            _unload_unused(client, divided.name(name) if divided else name)
            was_replaced = True
        except LOST:
            # A shared daemon that was idle may end while a client comes.
            if client._session.start_daemon is None or was_lost:
                raise
            was_lost = True


def _unload_unused(client: Client, name: str) -> None:
    """Unloads a dataset that nobody holds. Other jobs of this user wait: what
    one of them loads under the name is held."""
    directory = os.open(base_directory(), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        for message in client.list_datasets():
            if (
                message["name"] == name
                and not message["num_holders"]
                and not message["num_feeds"]
            ):
                with contextlib.suppress(
                    FailedPrecondition, NotFound, PermissionDenied
                ):
                    client.unload_dataset(name)
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)
        os.close(directory)


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


def _daemon_of_user(is_host_only: bool, idle_seconds: float) -> SharedDaemon:
    """Returns the daemon that all jobs of this user share."""
    key = [os.environ.get("CUDA_VISIBLE_DEVICES"), is_host_only]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]
    directory = os.path.join(base_directory(), f"{__version__}-{digest}")
    config: Dict[str, Any] = {
        "data_roots": ["/"],
        "exit_when_idle": f"{math.ceil(idle_seconds * 1000)}ms",
        "push_spool_mib": 65536,  # in this user's memory
    }
    if is_host_only:
        config["devices"] = ["cpu"]
    return SharedDaemon(directory, config)


__all__ = ["connect_or_start", "load"]
