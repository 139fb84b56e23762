"""cuda_fatbin: kernels as data, compiled by nvcc; cuda_ptx: as text."""

load("@local_cuda//:defs.bzl", "GPU_CODES", "NVCC", "NVCC_VERSION")

# Machine code for these, as far as the toolkit has them: it runs on GPUs of the
# same major number, so 80 is for 8.6 and 8.9, too. For all others there is PTX
# of the lowest one. --define cuda_archs=80,90 chooses others.
_DEFAULT_ARCHS = ["75", "80", "90", "100", "120"]

def _order(arch):
    return (len(arch), arch)

def _archs(ctx):
    given = ctx.var.get("cuda_archs", "")
    if given:
        return sorted(given.split(","), key = _order)
    return [arch for arch in _DEFAULT_ARCHS if "sm_" + arch in GPU_CODES]

_LANGUAGE = ["-std=c++20", "-O3", "-Xcompiler", "-fPIC,-Wall"]

_SEMANTICS = [
    # Host and device must round alike: no contraction. See docs/randomness.md.
    "-fmad=false",
    "-Xcompiler",
    "-ffp-contract=off",

    # Host and device share constexpr functions such as DtypeSizeBytes.
    "--expt-relaxed-constexpr",
    "--Werror",
    "all-warnings",
]

def compression_flags(mode):
    """The flags by which nvcc compresses a fatbin.

    Args:
      mode: "none"; "speed", which is LZ4; or "size", which is Zstandard. nvcc
        knows it from 12.8 on; an older one has LZ4 alone.
    Returns: a list
    """
    if mode == "none":
        return ["--no-compress"]

    # Machine code, too.
    flags = ["-Xfatbin=-compress-all"]
    return flags + (["--compress-mode=" + mode] if NVCC_VERSION >= 12080 else [])

# Compiles ctx.file.src to `out`, then runs the shell command `after`.
def _nvcc(ctx, out, flags, after = ""):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [d[CcInfo] for d in ctx.attr.deps],
    ).compilation_context
    args = ctx.actions.args()
    args.add_all(flags)
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
        command = "export TMPDIR=$(mktemp -d) PATH=/usr/bin:/bin; trap 'rm -rf $TMPDIR' EXIT; %s \"$@\" %s" % (NVCC, after),
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

# Assembles the fatbin, and what it was made for as text, into two symbols.
_EMBED = """\
cat <<END | /usr/bin/as -o "$1"
.section .rodata
.balign 64
.global {name}
.hidden {name}
{name}:
.incbin "$2"
.global {name}_archs
.hidden {name}_archs
{name}_archs:
.asciz "{archs}"
.section .note.GNU-stack,"",@progbits
END
"""

def _nvcc_fatbin_impl(ctx):
    fatbin = ctx.actions.declare_file(ctx.label.name + ".fatbin")
    out = ctx.actions.declare_file(ctx.label.name + ".o")
    archs = _archs(ctx)

    # Every binary that links the kernels holds all their machine code.
    flags = ["-fatbin", "--threads=2"] + _LANGUAGE

    # Code of CUDA 12 runs on drivers that cannot read Zstandard, those before
    # 12.4.
    flags += compression_flags("size" if NVCC_VERSION >= 13000 else "speed")
    flags = flags + _SEMANTICS

    # One PTX, as cuda_ptx's, for all machine code: the kernels have no code for
    # one architecture alone, and each front end takes as long as ptxas.
    codes = ["sm_" + arch for arch in archs]
    flags.append("-gencode=arch=compute_%s,code=[compute_%s,%s]" % (
        archs[0],
        archs[0],
        ",".join(codes),
    ))
    _nvcc(ctx, fatbin, flags)

    ctx.actions.run_shell(
        outputs = [out],
        inputs = [fatbin],
        arguments = [out.path, fatbin.path],
        command = _EMBED.format(
            name = ctx.attr.symbol,
            archs = "machine code for %s and PTX for %s" % (
                ", ".join([_capability(arch) for arch in archs]),
                _capability(archs[0]),
            ),
        ),
        mnemonic = "EmbedFatbin",
    )
    return [DefaultInfo(files = depset([out]))]

# "9.0" for "90", "12.0" for "120".
def _capability(arch):
    return arch[:-1] + "." + arch[-1]

_ATTRS = {
    "src": attr.label(allow_single_file = [".cu"], mandatory = True),
    "deps": attr.label_list(providers = [CcInfo]),
}

_nvcc_fatbin = rule(
    implementation = _nvcc_fatbin_impl,
    attrs = dict(_ATTRS, symbol = attr.string(mandatory = True)),
)

def _nvcc_ptx_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".ptx")
    arch = "-arch=compute_" + _archs(ctx)[0]
    flags = ["-ptx", "-lineinfo", arch] + _LANGUAGE + _SEMANTICS

    # Source files by their place in the workspace, not in the sandbox.
    return _nvcc(ctx, out, flags, " && sed -i \"s|$PWD/||; s|\\\"\\./|\\\"|\" " + out.path)

_nvcc_ptx = rule(
    implementation = _nvcc_ptx_impl,
    attrs = _ATTRS,
)

def cuda_ptx(name, src, deps = [], **kwargs):
    """Compiles `src` to NAME.ptx with source lines. REQUIRES: CUDA_FOUND.

    Args:
      name: the target, one file.
      src: one .cu file.
      deps: cc_library targets whose headers `src` includes.
      **kwargs: passed to the rule.
    """
    _nvcc_ptx(
        name = name,
        src = src,
        deps = deps + ["@local_cuda//:headers"],
        **kwargs
    )

def cuda_fatbin(name, src, deps = [], **kwargs):
    """Compiles `src` for all GPUs, as data. REQUIRES: CUDA_FOUND.

    Args:
      name: the target, a cc_library with the symbols NAME, the fatbin, and
        NAME_archs, a text that says for which GPUs it is.
      src: one .cu file; its kernels are extern "C".
      deps: cc_library targets whose headers `src` includes.
      **kwargs: passed to cc_library.
    """
    _nvcc_fatbin(
        name = name + "_nvcc",
        src = src,
        symbol = name,
        deps = deps + ["@local_cuda//:headers"],
    )
    native.cc_library(
        name = name,
        srcs = [name + "_nvcc"],
        **kwargs
    )
