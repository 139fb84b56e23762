"""How code is compiled with --config=quick: by clang, and without optimization."""

# With the feature prefers_clang, and //proto:headers among the deps. See precompiled.bzl.
PRECOMPILED_COPTS = [
    "-O0",
    "-fno-exceptions",
    "-Xclang",
    "-isysroot",
    "-Xclang",
    ".",
    "-include-pch",
    "$(BINDIR)/proto/headers.pch",
]

def if_quick(values):
    """Returns the values with --config=quick, and else none."""
    return select({
        "//third_party/cc:quick": values,
        "//conditions:default": [],
    })
