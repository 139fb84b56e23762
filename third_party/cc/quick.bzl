"""How code is compiled with --config=quick: by clang, and without optimization."""

# With the feature prefers_clang. See precompiled.bzl.
PRECOMPILED_COPTS = [
    "-Xclang",
    "-isysroot",
    "-Xclang",
    ".",
    "-include-pch",
]

def if_quick(values):
    """Returns the values with --config=quick, and else none."""
    return select({
        "//third_party/cc:quick": values,
        "//conditions:default": [],
    })

def compiled_quickly(kwargs):
    """Returns the arguments of a cc_ rule whose code's speed no test waits for.

    With --config=quick it has the precompiled //proto:headers. A source must still
    include what it uses: else other builds fail.
    """
    kwargs = dict(kwargs)
    kwargs["copts"] = kwargs.get("copts", []) + if_quick(
        ["-O0"] + PRECOMPILED_COPTS + ["$(BINDIR)/proto/headers.pch"],
    )
    kwargs["deps"] = kwargs.get("deps", []) + if_quick(["//proto:headers"])
    kwargs["features"] = kwargs.get("features", []) + if_quick(["prefers_clang"])
    return kwargs
