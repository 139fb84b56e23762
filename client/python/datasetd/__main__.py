"""python -m datasetd: loads datasets from the command line, including formats
that Python reads, shows samples and their transforms, measures a training step,
serves the page of datasetd.web, and runs commands with one daemon per node. For
everything else use datasetctl, which also has these commands, but for load."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import re
import sys
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
)

from . import errors
from ._client import folders as _folders
from ._client import formats as _formats
from ._client.client import SYSTEM_ADDRESS, Client
from ._commands import bench, explain, preview, programs
from ._commands.command_line import UsageError, add_options, write
from ._datasets.dataset import Dataset, message_of
from ._descriptions import summary_of
from ._push.field_names import Kinds
from ._version import __version__
from .web import _command as web

_EXIT_REFUSED = 1
_EXIT_USAGE = 2
_EXIT_NO_DAEMON = 3
_EXIT_INTERRUPTED = 130

_CONNECT_SECONDS = 1.0

_FOOTER = (
    "Exit codes: 0 success; 1 the daemon refused, or the operation failed; 2 "
    "the command line is wrong; 3 no daemon is running, or it ended."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> _Parser:
    shared = _Parser(add_help=False)
    shared.add_argument(
        "--address",
        default=argparse.SUPPRESS,
        help="the daemon's socket; default: $DATASETD_ADDRESS, else the "
        "system's daemon, /run/datasetd/datasetd.sock, else the one that "
        "datasetd.load started for this user",
    )
    shared.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print results and errors as JSON",
    )
    parser = _Parser(
        prog="python -m datasetd", epilog=_FOOTER, parents=[shared]
    )
    parser.add_argument(
        "--version", action="version", version=f"datasetd {__version__}"
    )
    commands = parser.add_subparsers(
        dest="command", required=True, parser_class=_Parser
    )
    load = commands.add_parser(
        "load",
        parents=[shared],
        epilog=_FOOTER,
        help="load a dataset",
        description="Load a dataset, or attach to the one loaded with the same "
        "arguments. The daemon reads the formats for which it has a reader "
        "(datasetctl status lists them). This command reads the following "
        "formats with datasetd.sources and pushes them: "
        + ", ".join(_formats.FUNCTIONS)
        + ".",
    )
    load.add_argument(
        "name", help="name: 1 to 128 characters of [A-Za-z0-9._-]"
    )
    load.add_argument("format", help="format of the source")
    load.add_argument(
        "path", nargs="+", help="file or directory; several for shards"
    )
    load.add_argument(
        "--in_python",
        action="store_true",
        help="read the format in Python even if the daemon has a reader",
    )
    load.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="FIELD=NAME",
        help="name of a field in the file; repeatable. csv: NAME,NAME makes a "
        "field of several columns. tfrecord: NAME:KIND, with a kind such as "
        "image, int64 or float32[16]",
    )
    load.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="FIELD=KIND",
        help="kind of a field: image, image_chw, mask or array. For formats "
        "read in Python",
    )
    load.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the daemon's reader, or argument of the function of "
        "datasetd.sources; repeatable. For a function VALUE may be a Python "
        "literal, such as 5, False or [0, 2]; other values, and values in "
        "quotes, are text. lmdb: decode=MODULE:FUNCTION",
    )
    load.add_argument("--split", help="split, for formats that have splits")
    load.add_argument(
        "--device", help="cpu, cuda:N; default: the daemon's first device"
    )
    load.add_argument(
        "--part",
        metavar="I/N",
        help="load only part I of N, from 0; 'node' uses the node that the "
        "launcher reports",
    )
    load.add_argument(
        "--part_epoch",
        type=int,
        help="epoch for which to divide the dataset; each has other parts",
    )
    load.add_argument(
        "--part_seed", type=int, default=0, help="seed of that division"
    )
    load.add_argument(
        "--private",
        action="store_true",
        help="hide the dataset from other users",
    )
    load.add_argument(
        "--pin",
        action="store_true",
        help="never evict the dataset; only for root and the daemon's user",
    )
    load.add_argument(
        "--if_exists",
        choices=("same", "keep", "replace", "error"),
        default="same",
        help="what to do if the name is taken, for formats read in Python",
    )
    page = commands.add_parser(
        "web",
        parents=[shared],
        epilog=_FOOTER,
        help="serve a page that shows jobs, samples, memory and health",
        description=web.DESCRIPTION,
    )
    web.add_arguments(page)
    for name, command, text in (
        ("preview", preview, "write a picture of samples and transforms"),
        ("explain", explain, "show the random parameters drawn for samples"),
        ("bench", bench, "measure the share of a training step that is data"),
    ):
        looking = commands.add_parser(
            name,
            parents=[shared],
            epilog=_FOOTER,
            help=text,
            description=command.DESCRIPTION,
        )
        add_options(looking, command.OPTIONS)
        if command is bench:
            looking.add_argument(
                "words", nargs=argparse.REMAINDER, metavar="-- COMMAND ..."
            )
    commands.add_parser(
        "run",
        help="run a command with a daemon of its own or, with --per-node, one "
        "that a job's processes on this node share; as `datasetctl run`",
    )
    return parser


def _pairs(flag: str, texts: Sequence[str]) -> Dict[str, str]:
    pairs: Dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{flag} {text}: expected KEY=VALUE")
        if key in pairs:
            raise UsageError(f"{flag} {key} is given twice")
        pairs[key] = value
    return pairs


def _value(text: str) -> Any:
    """Returns what a literal of Python means, or JSON's true, false and null;
    other text as it is."""
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _part(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Returns the arguments part, part_epoch and part_seed."""
    part = arguments.part
    if part not in (None, "node"):
        match = re.fullmatch(r"(\d+)/(\d+)", part)
        if match is None:
            raise UsageError(
                f"--part {part}: expected node, or I/N such as 0/4"
            )
        part = int(match[1]), int(match[2])
    return {
        "part": part,
        "part_epoch": arguments.part_epoch,
        "part_seed": arguments.part_seed,
    }


def _function(name: str) -> Callable[..., Any]:
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(f"--option decode={name}: expected MODULE:FUNCTION")
    try:
        found: Callable[..., Any] = getattr(
            importlib.import_module(module), function
        )
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--option decode={name}: {error}") from None
    return found


def _read(
    arguments: argparse.Namespace, path: str, given: Mapping[str, str]
) -> Any:
    """Calls a function of datasetd.sources and returns its result."""
    options = {key: _value(text) for key, text in given.items()}
    fields: Dict[str, Any] = dict(_pairs("--field", arguments.field))
    if "decode" in given:
        options["decode"] = _function(given["decode"])
    if isinstance(options.get("extensions"), str):
        options["extensions"] = options["extensions"].split(",")
    if arguments.format == "csv":
        fields = {
            field: names.split(",") if "," in names else names
            for field, names in fields.items()
        }
    if fields:
        key = "features" if arguments.format == "tfrecord" else "fields"
        if key in options:
            raise UsageError(f"--field and --option {key} are the same")
        options[key] = fields
    try:
        options = _formats.arguments_of(
            arguments.format, arguments.split, options
        )
    except errors.InvalidArgument as error:
        raise UsageError(str(error)) from None
    return _formats.read(arguments.format, path, options)


@contextlib.contextmanager
def _errors_of_libraries(path: str) -> Iterator[None]:
    """Raises DataLoss for those of the libraries that read the path, some of
    which read while the samples are pushed."""
    try:
        yield
    except (errors.Error, UsageError, OSError, MemoryError):
        raise
    except Exception as error:
        raise errors.DataLoss(
            f"{path}: {type(error).__name__}: {error}"
        ) from error


def _load(client: Client, arguments: argparse.Namespace) -> Dataset:
    given: str = _folders.checked_path(arguments.format, arguments.path)
    formats = list(client.status()["formats"])
    progress = sys.stderr.isatty()
    if arguments.format in formats and not arguments.in_python:
        options = _pairs("--option", arguments.option)
        if arguments.field or arguments.kind:
            raise UsageError(
                "--field and --kind are for formats read in Python: add "
                "--in_python, or for the daemon's reader --option "
                "fields=FIELD:NAME"
            )
        dataset: Dataset = client.load_dataset(
            arguments.name,
            arguments.format,
            given,
            split=arguments.split,
            device=arguments.device,
            options=options,
            progress=progress,
            private=arguments.private,
            pin=arguments.pin,
            **_part(arguments),
        )
        return dataset
    if arguments.format not in _formats.FUNCTIONS:
        raise UsageError(
            f"format {arguments.format!r} is neither the daemon's "
            f"({', '.join(formats)}) nor one of datasetd.sources "
            f"({', '.join(_formats.FUNCTIONS)})"
        )
    kinds = _pairs("--kind", arguments.kind)
    name, path, division = _formats.own_shards(
        arguments.format, arguments.name, given, _part(arguments)
    )
    images, others = _formats.image_options(
        _pairs("--option", arguments.option)
    )
    with _errors_of_libraries(path):
        data = _read(arguments, path, others)
        for kind in kinds:
            if isinstance(data, dict) and kind not in data:
                raise UsageError(f"--kind: there is no field {kind!r}")
        return client.push_dataset(
            name,
            data,
            fields=Kinds(kinds) if kinds else None,
            device=arguments.device,
            progress=progress,
            if_exists=arguments.if_exists,
            options=images,
            private=arguments.private,
            pin=arguments.pin,
            **division,
        )


def _code_of(error: errors.Error) -> str:
    """Returns the code in gRPC's spelling."""
    kind = errors.code_class(error)
    if kind is errors.Error:
        return "UNKNOWN"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()


def _describe(dataset: Dataset) -> str:
    lines = [
        f"{dataset.name}: {dataset.num_samples} samples, "
        f"{dataset.resident_bytes / 1e6:.1f} MB on {dataset.device}",
        f"  {summary_of(message_of(dataset))}",
    ]
    for field in dataset.fields:
        kind = "mask" if field.is_mask else "image" if field.is_image else ""
        shape = ", ".join(map(str, field.shape))
        text = f"  {field.name}  {field.dtype} ({shape})  {kind}"
        lines.append(text.rstrip())
    return "\n".join(lines)


def _tell_found(client: Client, address: Optional[str]) -> None:
    """Names the daemon if nobody has, and it is not the system's."""
    is_named = address or os.environ.get("DATASETD_ADDRESS")
    if not is_named and client.address != SYSTEM_ADDRESS:
        print(
            f"datasetd: using your daemon at {client.address}", file=sys.stderr
        )


def _run(arguments: argparse.Namespace, as_json: bool) -> int:
    """Runs the command, prints its result, and returns the exit code."""
    if arguments.command == "bench":
        write(bench.run(arguments, as_json))
        return 0
    address = getattr(arguments, "address", None)
    if arguments.command == "web":
        if not as_json:
            with contextlib.suppress(errors.Error):
                with Client(address, 0.0) as client:
                    _tell_found(client, address)
        return web.run(arguments)
    with Client(address, _CONNECT_SECONDS) as client:
        if not as_json:
            _tell_found(client, address)
        if arguments.command == "preview":
            text = preview.run(client, arguments, as_json)
        elif arguments.command == "explain":
            text = explain.run(client, arguments, as_json)
        else:
            dataset = _load(client, arguments)
            text = (
                json.dumps(message_of(dataset), indent=1)
                if as_json
                else _describe(dataset)
            ) + "\n"
        write(text)
    return 0


def main(argv: Optional[List[str]] = None, program: str = "datasetd") -> int:
    """Runs the command and returns the exit code; errors begin with the name
    of the program."""
    argv = sys.argv[1:] if argv is None else argv
    own = argv[: argv.index("--")] if "--" in argv else argv
    as_json = "--json" in own
    refused = _EXIT_REFUSED

    def fail(code: str, message: str) -> None:
        if as_json:
            text = json.dumps({"error": {"code": code, "message": message}})
        else:
            line = errors.printable(" ".join(message.splitlines()))
            text = f"{program}: {line}"
        print(text, file=sys.stderr)

    try:
        if next((word for word in own if word[:1] != "-"), "") == "run":
            refused = _EXIT_NO_DAEMON
            programs.run(argv)
        return _run(_parser().parse_args(argv), as_json)
    except UsageError as error:
        fail("INVALID_ARGUMENT", str(error))
        return _EXIT_USAGE
    except (errors.DaemonGone, errors.DaemonDraining) as error:
        fail(_code_of(error), str(error))
        return _EXIT_NO_DAEMON
    except errors.Error as error:
        fail(_code_of(error), str(error))
        return refused
    except OSError as error:
        fail("UNKNOWN", str(error))
        return refused
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
