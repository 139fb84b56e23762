"""libdatasetd.so through ctypes: see client/c_api/datasetd.h."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import threading
import types
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    List,
    Optional,
    Tuple,
    Union,
)

from .. import errors

ABI_VERSION = 1
INDICES = 0xFFFFFFFF

# Functions that may wait release the GIL; the others keep it.
_library: Optional["Library"] = None


class CError(ctypes.Structure):
    code: int
    detail: int
    message: bytes

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("code", ctypes.c_int32),
        ("detail", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("message", ctypes.c_char * 4080),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.struct_size = ctypes.sizeof(CError)

    def to_exception(self) -> errors.Error:
        return errors.make_error(
            self.code, self.detail, self.message.decode("utf-8", "replace")
        )


class CClientOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("address", ctypes.c_char_p),
        ("connect_timeout_ns", ctypes.c_int64),
        ("call_timeout_ns", ctypes.c_int64),
    ]


class CFeedArrays(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("subset", ctypes.c_void_p),
        ("subset_size", ctypes.c_uint64),
        ("weights", ctypes.c_void_p),
        ("weighted_samples", ctypes.c_void_p),
        ("num_weights", ctypes.c_uint64),
        ("classes", ctypes.c_void_p),
        ("num_classes", ctypes.c_uint64),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.struct_size = ctypes.sizeof(CFeedArrays)


class CBatch(ctypes.Structure):
    num_samples: int
    num_padding: int
    epoch: int
    index: int
    core: Optional[int]
    num_held: int

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("num_samples", ctypes.c_uint32),
        ("num_padding", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("epoch", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("core", ctypes.c_void_p),
        ("num_held", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _NoSuchField(errors.Internal, KeyError):
    """The daemon's answer lacks a field."""


class Answer(Dict[str, Any]):
    """A message of the daemon's as a dict."""

    def __missing__(self, key: str) -> Any:
        raise _NoSuchField(
            f"the daemon's answer has no {key!r}: it is no datasetd of this "
            "client's version"
        )


def parse_answer(text: Union[str, bytes]) -> Answer:
    """Returns the message of a text of the library's."""
    answer: Answer = json.loads(text, object_hook=Answer)
    return answer


# The library passes a second argument, which a callee may ignore.
ProgressFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)

WaitFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

_P = ctypes.c_void_p
_ERROR = ctypes.POINTER(CError)
_BATCH = ctypes.POINTER(CBatch)
_TEXT = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "datasetd_abi_version": (ctypes.c_uint32, []),
    "datasetd_free": (None, [_P]),
    "datasetd_path_advice": (ctypes.c_void_p, [ctypes.c_char_p]),
    "datasetd_set_thread_wait": (None, [WaitFunction, _P]),
    "datasetd_client_connect": (
        ctypes.c_int32,
        [ctypes.POINTER(CClientOptions), ctypes.POINTER(_P), _ERROR],
    ),
    "datasetd_client_close": (None, [_P]),
    "datasetd_client_address": (ctypes.c_char_p, [_P]),
    "datasetd_call": (
        ctypes.c_int32,
        [_P, ctypes.c_char_p, ctypes.c_char_p, _TEXT, _ERROR],
    ),
    "datasetd_load_dataset": (
        ctypes.c_int32,
        [_P, ctypes.c_char_p, ProgressFunction, _P, _TEXT, _ERROR],
    ),
    "datasetd_push_begin": (
        ctypes.c_int32,
        [_P, ctypes.c_char_p, WaitFunction, _P, ctypes.POINTER(_P), _ERROR],
    ),
    "datasetd_push_write": (ctypes.c_int32, [_P, _P, ctypes.c_uint64, _ERROR]),
    "datasetd_push_write_samples": (
        ctypes.c_int32,
        [_P, _P, ctypes.c_uint64, ctypes.c_uint64, _ERROR],
    ),
    "datasetd_push_finish": (ctypes.c_int32, [_P, _TEXT, _ERROR]),
    "datasetd_push_close": (None, [_P]),
    "datasetd_read_samples": (
        ctypes.c_int32,
        [
            _P,
            ctypes.c_char_p,
            _P,
            ctypes.c_uint64,
            ctypes.c_int64,
            ctypes.POINTER(_P),
            _TEXT,
            _ERROR,
        ],
    ),
    "datasetd_samples_data": (_P, [_P]),
    "datasetd_samples_close": (None, [_P]),
    "datasetd_estimate_load": (
        ctypes.c_int32,
        [_P, ctypes.c_char_p, ProgressFunction, _P, _TEXT, _ERROR],
    ),
    "datasetd_feed_open": (
        ctypes.c_int32,
        [
            _P,
            ctypes.c_char_p,
            ctypes.POINTER(CFeedArrays),
            ctypes.POINTER(_P),
            _TEXT,
            _ERROR,
        ],
    ),
    "datasetd_feed_close": (None, [_P]),
    "datasetd_feed_device": (
        None,
        [_P, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int32)],
    ),
    # Untyped pointers, since this is called for every batch.
    "datasetd_feed_next": (
        ctypes.c_int32,
        [
            _P,
            ctypes.c_uint64,
            ctypes.c_int64,
            _P,
            _P,
            ctypes.c_uint32,
            ctypes.c_uint64,
            _P,
        ],
    ),
    "datasetd_feed_seek": (
        ctypes.c_int32,
        [_P, ctypes.c_uint64, ctypes.c_uint64, _ERROR],
    ),
    "datasetd_feed_set_weights": (
        ctypes.c_int32,
        [
            _P,
            _P,
            ctypes.c_uint64,
            ctypes.c_int64,
            WaitFunction,
            _P,
            _ERROR,
        ],
    ),
    "datasetd_feed_send_indices": (
        ctypes.c_int32,
        [
            _P,
            _P,
            ctypes.c_uint64,
            _P,
            ctypes.c_uint64,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_int64,
            WaitFunction,
            _P,
            _ERROR,
        ],
    ),
    "datasetd_batch_dlpack": (
        ctypes.c_int32,
        [_BATCH, ctypes.c_uint32, ctypes.POINTER(_P), _ERROR],
    ),
    "datasetd_batch_record_stream": (
        ctypes.c_int32,
        [_BATCH, ctypes.c_uint64, _ERROR],
    ),
    "datasetd_batch_release": (None, [_P]),
    "datasetd_tensor_delete": (None, [_P]),
    "datasetd_set_capsule_functions": (None, [_P, _P]),
    "datasetd_capsule_delete": (None, [_P]),
}


def catching(
    function: Callable[[Any], Any], raised: List[BaseException]
) -> Callable[[Any], int]:
    """Wraps `function` as a callback of the library, which returns 1 and
    stores the exception in `raised` if it raises, else 0. Lets Ctrl-C in:
    Python runs signal handlers here.

    A method of a generator, because Python may run handlers as soon as a
    function begins, before its `try`.
    """

    def run() -> Generator[int, Any, None]:
        failed = 0
        while True:
            try:
                # Python runs handlers where a loop jumps back, too: of this one
                # that is within the `try`.
                while True:
                    function((yield failed))
                    failed = 0
            except GeneratorExit:
                return
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)
                failed = 1

    generator = run()
    next(generator)
    return generator.send


# Exceptions of signal handlers, which only run on the main thread, raised
# while it waited in the library.
_raised: List[BaseException] = []
_handle_signals: Any = catching(lambda _: None, _raised)
_wait = WaitFunction(_handle_signals)
_no_wait = WaitFunction(0)
# The library calls it until the process ends.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_wait))


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the library whose last argument is an error, and
    raises that, or within 100 ms what a signal handler raised meanwhile.

    Calls inside a handler that interrupts another call delay further signals.
    """
    error = CError()
    if threading.current_thread() is not threading.main_thread():
        failed = function(*arguments, ctypes.byref(error))
    else:
        set_wait = load().quick.set_thread_wait
        is_in_handler = _handle_signals.__self__.gi_running
        set_wait(_no_wait if is_in_handler else _wait, None)
        failed = function(*arguments, ctypes.byref(error))
        set_wait(_wait, None)
        if _raised:
            raise _raised.pop()
    if failed:
        raise error.to_exception()


def _find_library() -> str:
    here = pathlib.Path(__file__).resolve().parent.parent  # datasetd
    # Beside it in a release and a Debian package; below it in a wheel.
    for library in (here / "libdatasetd.so", here / "lib" / "libdatasetd.so"):
        if library.exists():
            return str(library.resolve())
    named = os.environ.get("DATASETD_LIBRARY", "")
    if named:
        if not os.path.exists(named):
            raise errors.LibraryNotFound(
                f"$DATASETD_LIBRARY names {named}, which does not exist"
            )
        return os.path.abspath(named)
    raise errors.LibraryNotFound(
        f"libdatasetd.so is neither in {here} nor named by "
        "$DATASETD_LIBRARY: build it (bazel build "
        "//client/c_api:libdatasetd.so) or install the package that holds it"
    )


class Library:
    """The functions of the library, checked and typed.

    Attribute `x` is datasetd_x with the GIL released during the call; `quick`
    holds the same functions with the GIL kept, for calls that do not wait.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.quick: Any = types.SimpleNamespace()
        try:
            waiting = ctypes.CDLL(path)
            keeping = ctypes.PyDLL(path)
        except OSError as error:
            raise errors.LibraryNotFound(f"{path}: {error}") from error
        for name, (result, arguments) in _SIGNATURES.items():
            for library, target in ((waiting, self), (keeping, self.quick)):
                try:
                    function = library[name]
                except AttributeError:
                    raise errors.LibraryNotFound(
                        f"{path} has no {name}: it is another version's"
                    ) from None
                function.restype = result
                function.argtypes = arguments
                setattr(target, name[len("datasetd_") :], function)
        version = self.quick.abi_version()
        if version != ABI_VERSION:
            raise errors.VersionMismatch(
                f"{path} has ABI version {version}, this package needs "
                f"{ABI_VERSION}: install the two together"
            )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def take_text(self, pointer: ctypes.c_void_p) -> str:
        """Returns the text of a char** result and frees it."""
        try:
            return ctypes.string_at(pointer).decode("utf-8")
        finally:
            self.quick.free(pointer)


def load() -> Library:
    """Returns the library, opened on the first call."""
    global _library
    if _library is None:
        _library = Library(_find_library())
    return _library
