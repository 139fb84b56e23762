"""The unit tests of a folder."""

def datasetd_tests(names, deps = [], **kwargs):
    """A cc_test NAME of NAME.cc for each name.

    Args:
      names: of the tests.
      deps: beside GoogleTest, Abseil and the matchers of absl::Status.
      **kwargs: of each cc_test; `size` is "small" unless given.
    """
    size = kwargs.pop("size", "small")
    for name in names:
        native.cc_test(
            name = name,
            size = size,
            srcs = [name + ".cc"],
            deps = depset(deps + [
                "//tests/testing:status_matchers",
                "//third_party/abseil",
                "//third_party/googletest:gtest_main",
            ]).to_list(),
            **kwargs
        )
