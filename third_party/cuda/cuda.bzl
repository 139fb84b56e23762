"""cuda_ptx: kernels as PTX, by nvcc; cuda_fatbin: as data with machine code, made of it.

The machine code is of the CUDA of PTXAS: of 12 where a ptxas of CUDA 12 is there,
and then drivers of CUDA 12.0 (R525) and newer run it.
"""

load("//third_party/cc:arch.bzl", "ARCH")
load("@local_cuda//:defs.bzl", "FATBINARY", "NVCC", "NVCC_VERSION", "OLDEST_PTX_ARCH", "PTXAS", "PTXAS_ARCHS", "PTXAS_VERSION")

# Machine code for these, as far as ptxas knows them: it runs on GPUs of the
# same major number, so 80 is for 8.6 and 8.9, too. For all others there is PTX
# of the lowest one. --define cuda_archs=80,90 chooses others.
_DEFAULT_ARCHS = ["70", "75", "80", "90", "100", "120"]

def _archs(ctx):
    given = ctx.var.get("cuda_archs", "")
    archs = given.split(",") if given else [
        arch
        for arch in _DEFAULT_ARCHS
        if arch in PTXAS_ARCHS
    ]
    return sorted(archs, key = int)

# The architecture that nvcc makes PTX for: it may not know the lowest one.
def _ptx_arch(archs):
    return archs[0] if int(archs[0]) > int(OLDEST_PTX_ARCH) else OLDEST_PTX_ARCH

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

def _nvcc_ptx_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".ptx")
    compilation = cc_common.merge_cc_infos(
        cc_infos = [d[CcInfo] for d in ctx.attr.deps],
    ).compilation_context
    args = ctx.actions.args()
    args.add_all(["-ptx", "-lineinfo", "-arch=compute_" + _ptx_arch(_archs(ctx))])
    args.add_all(_LANGUAGE + _SEMANTICS)
    args.add_all(compilation.includes, before_each = "-I")
    args.add_all(compilation.quote_includes, before_each = "-I")
    args.add_all(compilation.system_includes, before_each = "-isystem")
    args.add("-o", out)
    args.add(ctx.file.src)

    # nvcc names its temporaries by pid, and sandboxes share /tmp. Source files
    # are named by their place in the workspace, not in the sandbox.
    ctx.actions.run_shell(
        outputs = [out],
        inputs = depset([ctx.file.src], transitive = [compilation.headers]),
        arguments = [args],
        command = ("export TMPDIR=$(mktemp -d) PATH=/usr/bin:/bin; trap 'rm -rf $TMPDIR' EXIT; " +
                   "%s \"$@\" && sed -i \"s|$PWD/||; s|\\\"\\./|\\\"|\" %s") % (NVCC, out.path),
        mnemonic = "Nvcc",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

_nvcc_ptx = rule(
    implementation = _nvcc_ptx_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

# The PTX without source lines, as nvcc writes it without -lineinfo.
_WITHOUT_LINES = [
    r"/^\s*\.loc\s/d",
    r"/^\s*\.file\s/d",
    r"/^\s*\.section\s*\.debug/,/^\s*}/d",
]

# Of the kernels' instructions all are in PTX 7.0; the hints came with 8.3. Labels
# that nothing branches to keep them for the emulated GPU of the tests: fatbinary
# drops comments.
_HINTS_AS_LABELS = r""" | /usr/bin/awk '
/^[ \t]*\.pragma "used_bytes_mask / {
  gsub(/[^0-9]/, ""); print "$used_bytes_mask_" $0 "_" NR ":"; next
}
{ print }'"""

# Relabels the PTX, for a ptxas or a driver that is older than nvcc. It checks
# each instruction against version and target, and so refuses what is too new.
def _version(version):
    return [r"s/^\.version .*/.version %s/" % version]

def _target(arch):
    return [r"s/^\.target sm_[0-9]*/.target sm_%s/" % arch]

# Assembles the fatbin, and what it was made for as text, into two symbols.
_EMBED = """\
cat <<END | /usr/bin/{arch}-linux-gnu-as -o "$1"
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

def _edited(ctx, ending, edits, has_old_hints = False):
    out = ctx.actions.declare_file(ctx.label.name + ending)
    ctx.actions.run_shell(
        outputs = [out],
        inputs = [ctx.file.ptx],
        arguments = [ctx.file.ptx.path, out.path] + edits,
        command = "in=$1 out=$2; shift 2; /usr/bin/sed \"${@/#/-e}\" $in" +
                  (_HINTS_AS_LABELS if has_old_hints else "") + " >$out",
        mnemonic = "EditPtx",
    )
    return out

def _ptxas(ctx, ptx, arch):
    out = ctx.actions.declare_file("%s.sm_%s.cubin" % (ctx.label.name, arch))
    ctx.actions.run(
        executable = PTXAS,
        outputs = [out],
        inputs = [ptx],
        # No test of a quick build runs it: the emulated GPU has the PTX.
        arguments = (["-O1"] if ctx.var.get("quick") == "true" else []) +
                    ["-arch=sm_" + arch, "-m64", "--fmad", "false", "-o", out.path, ptx.path],
        mnemonic = "Ptxas",
        progress_message = "Assembling %s for sm_%s" % (ctx.label.name, arch),
    )
    return out

def _ptx_fatbin_impl(ctx):
    archs = _archs(ctx)
    edits = _WITHOUT_LINES + _target(archs[0])
    compression = "size"
    packed_edits = edits
    if PTXAS_VERSION < 13000:
        # What a driver of CUDA 12.0 can read: it has no Zstandard, either.
        compression = "speed"
        packed_edits = edits + _version("8.0")
        if PTXAS_VERSION >= 12030:
            edits = edits + _version("8.3")
    ptx = _edited(ctx, ".ptxas.ptx", edits)
    packed = _edited(ctx, ".packed.ptx", packed_edits, PTXAS_VERSION < 13000)

    # One PTX for all machine code: the kernels have no code for one
    # architecture alone.
    images = ["--image3=kind=ptx,sm=%s,file=%s" % (archs[0], packed.path)]
    cubins = []
    for arch in archs:
        cubins.append(_ptxas(ctx, ptx, arch))
        images.append("--image3=kind=elf,sm=%s,file=%s" % (arch, cubins[-1].path))

    # The options are for a driver that compiles the PTX.
    fatbin = ctx.actions.declare_file(ctx.label.name + ".fatbin")
    ctx.actions.run(
        executable = FATBINARY,
        outputs = [fatbin],
        inputs = cubins + [packed],
        arguments = ["--create=" + fatbin.path, "-64", "--cmdline= --fmad false "] +
                    [flag.replace("-Xfatbin=", "") for flag in compression_flags(compression)] +
                    images,
        mnemonic = "Fatbinary",
    )

    out = ctx.actions.declare_file(ctx.label.name + ".o")
    ctx.actions.run_shell(
        outputs = [out],
        inputs = [fatbin],
        arguments = [out.path, fatbin.path],
        command = _EMBED.format(
            arch = ctx.attr.arch,
            name = ctx.attr.symbol,
            archs = "machine code of CUDA %d.%d for %s and PTX for %s" % (
                PTXAS_VERSION // 1000,
                PTXAS_VERSION % 1000 // 10,
                ", ".join([_capability(arch) for arch in archs]),
                _capability(archs[0]),
            ),
        ),
        mnemonic = "EmbedFatbin",
    )
    return [
        DefaultInfo(files = depset([out])),
        OutputGroupInfo(images = depset([fatbin, ptx, packed])),
    ]

# "9.0" for "90", "12.0" for "120".
def _capability(arch):
    return arch[:-1] + "." + arch[-1]

_ptx_fatbin = rule(
    implementation = _ptx_fatbin_impl,
    attrs = {
        "arch": attr.string(mandatory = True),
        "ptx": attr.label(allow_single_file = [".ptx"], mandatory = True),
        "symbol": attr.string(mandatory = True),
    },
)

def cuda_ptx(name, src, deps = [], **kwargs):
    """Compiles `src` to NAME.ptx with source lines. REQUIRES: CUDA_FOUND.

    Args:
      name: the target, one file.
      src: one .cu file; its kernels are extern "C".
      deps: cc_library targets whose headers `src` includes.
      **kwargs: passed to the rule.
    """
    _nvcc_ptx(
        name = name,
        src = src,
        deps = deps + ["@local_cuda//:headers"],
        **kwargs
    )

def cuda_fatbin(name, ptx, **kwargs):
    """Assembles PTX for all GPUs, as data. REQUIRES: CUDA_FOUND.

    Args:
      name: the target, a cc_library with the symbols NAME, the fatbin, and
        NAME_archs, a text that says for which GPUs it is. NAME_images is the
        fatbin as a file, with the two forms of the PTX that it is made of.
      ptx: a cuda_ptx target.
      **kwargs: passed to cc_library.
    """
    _ptx_fatbin(
        name = name + "_packed",
        arch = ARCH,
        symbol = name,
        ptx = ptx,
    )
    native.filegroup(
        name = name + "_images",
        srcs = [name + "_packed"],
        output_group = "images",
        **kwargs
    )
    native.cc_library(
        name = name,
        srcs = [name + "_packed"],
        **kwargs
    )
