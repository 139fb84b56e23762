"""C++ messages, and services, by the system's protoc."""

load("//third_party/cc:quick.bzl", "if_quick")

# Sanitizers need not see what is generated.
_QUICK_COPTS = [
    "-O0",
    "-fno-sanitize=all",
]

def _generate(name, srcs, imports, ending, flags):
    """Returns the generated headers and sources."""
    stems = [src[:-len(".proto")] for src in srcs]
    hdrs = ["%s.%s.h" % (stem, ending) for stem in stems]
    ccs = ["%s.%s.cc" % (stem, ending) for stem in stems]
    package = native.package_name()
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = hdrs + ccs,
        cmd = " ".join(
            ["protoc", "-I%s" % package, "-I/usr/include"] + flags +
            ["$(execpath %s)" % src for src in srcs],
        ),
    )

    # They are compiled as one: each includes the same headers. Two names must differ.
    native.genrule(
        name = name + "_joined",
        srcs = ccs,
        outs = [name + "_joined.cc"],
        cmd = """
n=0
for file in $(SRCS); do
  n=$$((n + 1))
  sed "s/\\b\\(schemas\\|file_default_instances\\)\\b/\\1_$$n/g" $$file
done >$@
""",
    )
    return hdrs, [name + "_joined.cc"]

def cc_proto(name, srcs, **kwargs):
    """Generates and compiles the messages of .proto files, without services.

    Import paths and #include paths are relative to the package.

    Args:
      name: the cc_library.
      srcs: .proto files below this package; they may import each other and
        google/protobuf.
      **kwargs: passed to cc_library.
    """
    hdrs, ccs = _generate(name, srcs, [], "pb", ["--cpp_out=$(RULEDIR)"])
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        includes = ["."],
        deps = ["//third_party/protobuf"],
        copts = ["-w"] + if_quick(_QUICK_COPTS),
        features = if_quick(["prefers_clang"]),
        **kwargs
    )

def cc_grpc(name, srcs, imports, deps, **kwargs):
    """Generates and compiles the services of .proto files, without messages.

    Args:
      name: the cc_library.
      srcs: as cc_proto's.
      imports: other .proto files that they import.
      deps: the cc_proto targets of all of these.
      **kwargs: passed to cc_library.
    """
    hdrs, ccs = _generate(name, srcs, imports, "grpc.pb", [
        "--grpc_out=$(RULEDIR)",
        "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
    ])
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        includes = ["."],
        deps = deps + ["//third_party/grpc:grpc++"],
        copts = ["-w"] + if_quick(_QUICK_COPTS),
        features = if_quick(["prefers_clang"]),
        **kwargs
    )
