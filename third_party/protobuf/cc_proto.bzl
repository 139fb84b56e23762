"""C++ messages, and services, by the system's protoc."""

def cc_grpc_proto(name, srcs, **kwargs):
    """Generates and compiles the C++ of .proto files below this package.

    Import paths and #include paths are relative to the package.

    Args:
      name: the cc_library.
      srcs: .proto files; they may import each other and google/protobuf.
      **kwargs: passed to cc_library.
    """
    hdrs = []
    ccs = []
    for src in srcs:
        stem = src[:-len(".proto")]
        hdrs += [stem + ".pb.h", stem + ".grpc.pb.h"]
        ccs += [stem + ".pb.cc", stem + ".grpc.pb.cc"]
    package = native.package_name()
    native.genrule(
        name = name + "_gen",
        srcs = srcs,
        outs = hdrs + ccs,
        cmd = " ".join([
            "protoc",
            "-I%s" % package,
            "-I/usr/include",
            "--cpp_out=$(RULEDIR)",
            "--grpc_out=$(RULEDIR)",
            "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
            "$(SRCS)",
        ]),
    )
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        includes = ["."],
        deps = ["//third_party/grpc:grpc++"],
        copts = ["-w"],
        **kwargs
    )
