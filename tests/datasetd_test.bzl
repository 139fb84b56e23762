"""The tests of a folder."""

load("@local_cuda//:defs.bzl", "CUDA_FOUND")
load("//third_party/cc:quick.bzl", "PRECOMPILED_COPTS")
load("//third_party/cc:sanitized.bzl", "sanitized_test")

# For what is compiled with the toolkit, as the kernels and the emulated driver.
NEEDS_CUDA = [] if CUDA_FOUND else ["@platforms//:incompatible"]

# The emulated driver, which programs find as they find any driver: by its name.
EMULATED_DRIVER = ["//tests/emulated_gpu/driver:libcuda.so.1"] if CUDA_FOUND else []
EMULATED_ENV = {"LD_LIBRARY_PATH": "tests/emulated_gpu/driver"}

_ALL_TESTS = ["//tests:__subpackages__"]

# Each file keeps its unnamed namespace, in one of its own, and its lines.
_JOIN = """
for file in $(SRCS); do
  name=$$(basename $$file .cc)
  echo "#line 1 \\"$$file\\""
  sed "s|^namespace {$$|namespace $$name { namespace {|
       s|^}  // namespace$$|} }|" $$file
done >$@
"""

def datasetd_test(name, srcs = None, deps = [], sanitizer = None, **kwargs):
    """A cc_test of one source or of several.

    Several are compiled as one: what a test includes takes most of its
    compiler's time, and is read once so. --test_filter='Suite.*' runs some of
    them.

    Args:
      name: of the test.
      srcs: NAME.cc unless given.
      deps: beside GoogleTest, Abseil and the matchers of absl::Status.
      sanitizer: "asan" or "tsan" for a test that tests/run_all.sh, except with
        --full, runs under this one only: as NAME_asan or NAME_tsan.
      **kwargs: of the cc_test; `size` is "small" unless given, and the test's
        own code is compiled by clang and not optimized unless `features` and
        `copts` say otherwise.
    """
    srcs = srcs or [name + ".cc"]
    kwargs.setdefault("size", "small")
    if sanitizer:
        kwargs["tags"] = kwargs.get("tags", []) + ["sanitized"]
        sanitized_test(
            name = name + "_" + sanitizer,
            size = kwargs["size"],
            sanitizer = sanitizer,
            shard_count = kwargs.get("shard_count"),
            tags = ["short"],
            test = name,
        )
    if len(srcs) > 1:
        native.genrule(
            name = name + "_sources",
            testonly = True,
            srcs = srcs,
            outs = [name + "_sources.cc"],
            cmd = _JOIN,
        )
        srcs = [name + "_sources.cc"]
    native.cc_test(
        name = name,
        srcs = srcs,
        **compiled_as_a_test(kwargs, depset(deps + [
            "//tests/testing:status_matchers",
            "//third_party/abseil",
            "//third_party/googletest:gtest_main",
        ]).to_list())
    )

def datasetd_test_library(name, deps = [], visibility = _ALL_TESTS, **kwargs):
    """A cc_library for tests, compiled as they are.

    Args:
      name: of the library, of NAME.cc and NAME.h as far as they are there.
      deps: beside GoogleTest, Abseil and the matchers of absl::Status.
      visibility: all tests unless given.
      **kwargs: of the cc_library. `copts` are [] for one whose own code is the
        slow part.
    """
    kwargs.setdefault("srcs", native.glob([name + ".cc"], allow_empty = True))
    kwargs.setdefault("hdrs", native.glob([name + ".h"], allow_empty = True))
    native.cc_library(
        name = name,
        testonly = True,
        visibility = visibility,
        **compiled_as_a_test(kwargs, depset(deps + [
            "//tests/testing:status_matchers",
            "//third_party/abseil",
            "//third_party/googletest:gtest",
        ]).to_list())
    )

def datasetd_test_binary(name, deps = [], **kwargs):
    """A cc_binary for tests, compiled as they are.

    Args:
      name: of the program, of NAME.cc unless `srcs` says otherwise.
      deps: as a datasetd_test_library's.
      **kwargs: of the cc_binary.
    """
    kwargs.setdefault("srcs", [name + ".cc"])
    native.cc_binary(
        name = name,
        testonly = True,
        **compiled_as_a_test(kwargs, deps + ["//third_party/googletest:gtest"])
    )

def datasetd_test_libraries(libraries, **kwargs):
    """A datasetd_test_library for each name of a dictionary, with its deps."""
    for name, deps in libraries.items():
        datasetd_test_library(name = name, deps = deps, **kwargs)

def datasetd_test_cases(cases, **kwargs):
    """A library NAME_cases of NAME_test.cc for each name, with its deps.

    Several programs run its cases, each on another device or with a planted
    fault, by linking it.

    Args:
      cases: {name: deps}.
      **kwargs: of each datasetd_test_library.
    """
    for name, deps in cases.items():
        datasetd_test_library(
            name = name + "_cases",
            srcs = [name + "_test.cc"],
            deps = deps + ["//third_party/googletest:gtest_main"],
            alwayslink = True,
            **kwargs
        )

def datasetd_py_libraries(libraries, **kwargs):
    """A py_library of NAME.py for each name of a dictionary, with its deps."""
    for name, deps in libraries.items():
        native.py_library(
            name = name,
            testonly = True,
            srcs = [name + ".py"],
            visibility = _ALL_TESTS,
            deps = deps,
            **kwargs
        )

def datasetd_py_test(name, srcs = None, **kwargs):
    """A py_test.

    Args:
      name: of the test.
      srcs: NAME.py unless given. A single one of another name is `main`.
      **kwargs: of the py_test; `size` is "medium" unless given.
    """
    srcs = srcs or [name + ".py"]
    if len(srcs) == 1 and srcs != [name + ".py"]:
        kwargs["main"] = srcs[0]
    native.py_test(
        name = name,
        size = kwargs.pop("size", "medium"),
        srcs = srcs,
        python_version = "PY3",
        **kwargs
    )

def datasetd_pytest_test(name, files = None, data = [], env = {}, tags = [], **kwargs):
    """A datasetd_py_test of files that one process of pytest runs.

    It has the package's library and daemon, and the folder's pytest_main.py and
    conftest.py. --test_arg=-k --test_arg=NAME picks cases.

    Args:
      name: of the test.
      files: NAME.py unless given.
      data: beside library and daemon.
      env: beside what names them.
      tags: beside "noasan".
      **kwargs: of the datasetd_py_test.
    """
    files = files or [name + ".py"]
    datasetd_py_test(
        name = name,
        srcs = files + ["pytest_main.py"],
        args = files,
        data = data + [
            "conftest.py",
            "//client/c_api:libdatasetd.so",
            "//server:datasetd",
        ],
        env = dict(
            env,
            DATASETD_DAEMON = "$(rootpath //server:datasetd)",
            DATASETD_LIBRARY = "$(rootpath //client/c_api:libdatasetd.so)",
        ),
        main = "pytest_main.py",
        tags = ["noasan"] + tags,
        deps = [
            "//client/python:datasetd",
            "//tests/conformance:random_reference",
            "//tests/testing:ports",
            "//tests/testing:processes",
        ],
        **kwargs
    )

def datasetd_daemon_test(name, deps = [], **kwargs):
    """A datasetd_py_test of processes, with a daemon.

    Args:
      name: of the test.
      deps: beside the harness that starts daemons.
      **kwargs: of the datasetd_py_test.
    """
    datasetd_py_test(name = name, deps = deps + ["//tests/testing:daemon_harness"], **kwargs)

def compiled_as_a_test(kwargs, deps):
    """Returns the arguments of a cc_ rule, with `deps`, that is part of tests.

    It is compiled by clang and not optimized, with what most tests include read
    before, unless the arguments say otherwise. With `is_released`, as in the release's
    self-test, it is optimized except with --config=quick.
    """
    kwargs = dict(kwargs)
    is_released = kwargs.pop("is_released", False)
    copts = kwargs.setdefault("copts", [] if is_released else ["-O0"])
    features = kwargs.setdefault("features", ["prefers_clang"])
    if (is_released or copts == ["-O0"]) and features == ["prefers_clang"]:
        precompiles = "//third_party/cc:quick" if is_released else "//tests:precompiles"
        kwargs["copts"] = copts + select({
            precompiles: PRECOMPILED_COPTS,
            "//conditions:default": [],
        })
        deps = deps + select({
            precompiles: ["//proto:headers"],
            "//conditions:default": [],
        })
    kwargs["deps"] = deps
    return kwargs
