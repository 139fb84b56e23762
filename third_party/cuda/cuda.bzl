"""cuda_library: a cc_library whose one source is compiled by nvcc."""

load("@local_cuda//:defs.bzl", "NVCC")

# Real machine code for these, PTX of the last one for what comes later.
# --define cuda_archs=80,90 chooses others.
_DEFAULT_ARCHS = ["80", "90"]

def _archs(ctx):
    given = ctx.var.get("cuda_archs", "")
    return given.split(",") if given else _DEFAULT_ARCHS

def _nvcc_object_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".o")
    compilation = cc_common.merge_cc_infos(
        cc_infos = [d[CcInfo] for d in ctx.attr.deps],
    ).compilation_context
    archs = _archs(ctx)
    args = ctx.actions.args()
    args.add_all(["-c", "-std=c++20", "-O3", "-Xcompiler", "-fPIC,-Wall"])

    # Every binary that links a kernel holds all its machine code.
    args.add("--compress-mode=size")

    # Host and device must round alike: no contraction. See docs/randomness.md.
    args.add_all(["-fmad=false", "-Xcompiler", "-ffp-contract=off"])

    # Host and device share constexpr functions such as DtypeSizeBytes.
    args.add("--expt-relaxed-constexpr")
    args.add_all(["--Werror", "all-warnings"])
    for arch in archs:
        args.add("-gencode=arch=compute_%s,code=sm_%s" % (arch, arch))
    args.add("-gencode=arch=compute_%s,code=compute_%s" % (archs[-1], archs[-1]))
    args.add_all(compilation.includes, before_each = "-I")
    args.add_all(compilation.quote_includes, before_each = "-I")
    args.add_all(compilation.system_includes, before_each = "-isystem")
    args.add("-o", out)
    args.add(ctx.file.src)

    # nvcc names its temporaries by pid, and sandboxes share /tmp.
    ctx.actions.run_shell(
        outputs = [out],
        inputs = depset([ctx.file.src], transitive = [compilation.headers]),
        arguments = [args],
        command = "export TMPDIR=$(mktemp -d) PATH=/usr/bin:/bin; trap 'rm -rf $TMPDIR' EXIT; %s \"$@\"" % NVCC,
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

_nvcc_object = rule(
    implementation = _nvcc_object_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, src, hdrs = [], deps = [], **kwargs):
    """Compiles `src` with nvcc. REQUIRES: CUDA_FOUND.

    Args:
      name: the target, a cc_library.
      src: one .cu file.
      hdrs: host headers; they must compile without the toolkit.
      deps: cc_library targets whose headers `src` includes.
      **kwargs: passed to cc_library.
    """
    _nvcc_object(
        name = name + "_nvcc",
        src = src,
        deps = deps + ["@local_cuda//:headers"],
    )
    native.cc_library(
        name = name,
        srcs = [name + "_nvcc"],
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )
