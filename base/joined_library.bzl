"""Libraries whose sources are compiled together."""

load("//third_party/cc:quick.bzl", "compiled_quickly")

def joined_library(name, srcs, alone = [], optimized = False, **kwargs):
    """A cc_library that compiles its sources as one.

    Most of a compiler's time goes into the headers that the sources of a folder
    share; they are read once so. Names in unnamed namespaces must differ within
    the folder. `--define=apart=true` compiles each source by itself.

    Args:
      name: of the library.
      srcs: sources that lie in the package.
      optimized: as in a release with --config=quick, too, for tests wait for this code.
      alone: sources that are always compiled by themselves, so that a test can
        link another one instead.
      **kwargs: of the cc_library.
    """
    headers = [source for source in srcs if source.endswith(".h")]
    sources = [source for source in srcs if source not in headers + alone]
    native.genrule(
        name = name + "_joined",
        outs = [name + "_joined.cc"],
        cmd = "printf '#include \"{}/%s\"\\n' {} >$@".format(
            native.package_name(),
            " ".join(sources),
        ),
        testonly = kwargs.get("testonly", False),
    )
    kwargs.setdefault("features", ["joined"])
    native.cc_library(
        name = name,
        srcs = select({
            "//base:apart": sources,
            "//conditions:default": [name + "_joined.cc"],
        }) + alone + headers,
        textual_hdrs = sources,
        **(kwargs if optimized else compiled_quickly(kwargs))
    )
