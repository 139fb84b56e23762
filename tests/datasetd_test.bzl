"""The unit tests of a folder."""

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
    copts = kwargs.pop("copts", ["-O0"])
    features = kwargs.pop("features", ["prefers_clang"])
    if copts == ["-O0"] and features == ["prefers_clang"]:
        copts = copts + select({
            "//tests:precompiles": ["-include-pch", "$(BINDIR)/tests/testing/test_headers.pch"],
            "//conditions:default": [],
        })
        deps = deps + ["//tests/testing:precompiled"]
    native.cc_test(
        name = name,
        size = kwargs.pop("size", "small"),
        srcs = srcs,
        copts = copts,
        features = features,
        deps = depset(deps + [
            "//tests/testing:status_matchers",
            "//third_party/abseil",
            "//third_party/googletest:gtest_main",
        ]).to_list(),
        **kwargs
    )
