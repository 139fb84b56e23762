"""Libraries whose sources are compiled together."""

load("//third_party/cc:quick.bzl", "PRECOMPILED_COPTS", "if_quick")

def joined_library(name, srcs, alone = [], copts = [], deps = [], optimized = False, catches = False, **kwargs):
    """A cc_library that compiles its sources as one.

    Most of a compiler's time goes into the headers that the sources of a folder
    share; they are read once so. Names in unnamed namespaces must differ within
    the folder. `--define=apart=true` compiles each source by itself.

    Args:
      name: of the library.
      srcs: sources that lie in the package.
      alone: sources that are always compiled by themselves, so that a test can
        link another one instead.
      copts: as a cc_library's.
      deps: as a cc_library's.
      optimized: with --config=quick, too, because tests wait for this code: with -O1.
        Others are compiled with -O0 then, and have the precompiled //proto:headers. A
        source must still include what it uses: else other builds fail.
      catches: the sources catch exceptions, or include what does. They do
        without the precompiled headers, which know no exceptions, and with which
        clang takes half the time.
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
    if optimized:
        quick_copts = ["-O1"]
    elif catches:
        quick_copts = ["-O0"]
    else:
        quick_copts = PRECOMPILED_COPTS
        deps = deps + if_quick(["//proto:headers"])
    native.cc_library(
        name = name,
        srcs = select({
            "//base:apart": sources,
            "//conditions:default": [name + "_joined.cc"],
        }) + alone + headers,
        copts = copts + if_quick(quick_copts),
        deps = deps,
        features = ["joined"] + if_quick(["prefers_clang"]),
        textual_hdrs = sources,
        **kwargs
    )
