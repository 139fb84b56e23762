"""The tests of a folder."""

# Each file keeps its unnamed namespace, in one of its own, and its lines.
_JOIN = """
for file in $(SRCS); do
  name=$$(basename $$file .cc)
  echo "#line 1 \\"$$file\\""
  sed "s|^namespace {$$|namespace $$name { namespace {|
       s|^}  // namespace$$|} }|" $$file
done >$@
"""

def datasetd_test(name, srcs = None, deps = [], **kwargs):
    """A cc_test of one source or of several.

    Several are compiled as one: what a test includes takes most of its
    compiler's time, and is read once so. --test_filter='Suite.*' runs some of
    them.

    Args:
      name: of the test.
      srcs: NAME.cc unless given.
      deps: beside GoogleTest, Abseil and the matchers of absl::Status.
      **kwargs: of the cc_test; `size` is "small" unless given, and the test's
        own code is compiled by clang and not optimized unless `features` and
        `copts` say otherwise.
    """
    srcs = srcs or [name + ".cc"]
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
        size = kwargs.pop("size", "small"),
        srcs = srcs,
        **compiled_as_a_test(kwargs, depset(deps + [
            "//tests/testing:status_matchers",
            "//third_party/abseil",
            "//third_party/googletest:gtest_main",
        ]).to_list())
    )

def datasetd_test_library(name, deps = [], **kwargs):
    """A cc_library for tests, compiled as they are."""
    native.cc_library(name = name, testonly = True, **compiled_as_a_test(kwargs, deps))

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
    before, unless the arguments say otherwise.
    """
    kwargs = dict(kwargs)
    copts = kwargs.setdefault("copts", ["-O0"])
    features = kwargs.setdefault("features", ["prefers_clang"])
    if copts == ["-O0"] and features == ["prefers_clang"]:
        kwargs["copts"] = copts + select({
            "//tests:precompiles": ["-include-pch", "$(BINDIR)/tests/testing/test_headers.pch"],
            "//conditions:default": [],
        })
        deps = deps + select({
            "//tests:precompiles": ["//tests/testing:precompiled"],
            "//conditions:default": [],
        })
    kwargs["deps"] = deps
    return kwargs
