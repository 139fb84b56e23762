"""Finds the CUDA toolkit; without one the build is host-only and says so.

Beside a toolkit of CUDA 13 or newer it looks for a ptxas of CUDA 12: machine code
of CUDA 12 runs on drivers of 12 and 13, that of CUDA 13 on those of 13 only.
"""

# The oldest whose code for 9.0 NVIDIA's later tools accept; it reads PTX 8.3.
_OLDEST_PTXAS = 12030

def _find_home(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "")
    if home:
        if not ctx.path(home + "/bin/nvcc").exists:
            fail("CUDA_HOME is %s, but it holds no bin/nvcc: correct it or unset it" % home)
        return home
    if ctx.path("/usr/local/cuda/bin/nvcc").exists:
        return "/usr/local/cuda"
    nvcc = ctx.which("nvcc")
    if nvcc:
        return str(nvcc.realpath.dirname.dirname)
    return None

# CUDA_VERSION of cuda.h, as nvcc and ptxas report it: 12080 for "release 12.8".
def _find_version(ctx, program):
    told = ctx.execute([program, "--version"])
    release = told.stdout.partition("release ")[2].partition(",")[0]
    major, _, minor = release.partition(".")
    if told.return_code != 0 or not major.isdigit() or not minor.isdigit():
        fail("%s --version names no release: %s%s" % (program, told.stdout, told.stderr))
    return int(major) * 1000 + int(minor) * 10

# The path of a ptxas of CUDA 12 and its version; (None, 0) if there is none.
def _find_cuda12_ptxas(ctx):
    given = ctx.os.environ.get("CUDA12_PTXAS", "")
    if given:
        if not ctx.path(given).exists:
            fail("CUDA12_PTXAS is %s, which does not exist: correct it or unset it" % given)
        version = _find_version(ctx, given)
        if version < _OLDEST_PTXAS or version >= 13000:
            fail("CUDA12_PTXAS is %s, of CUDA %d.%d: name a ptxas of CUDA 12.3 to 12.9" % (
                given,
                version // 1000,
                version % 1000 // 10,
            ))
        return given, version

    # Where deploy/install_deps.sh puts it.
    cache = ctx.os.environ.get("XDG_CACHE_HOME", "") or ctx.os.environ.get("HOME", "") + "/.cache"
    installed = cache + "/datasetd-build/cuda12/ptxas"
    if not ctx.path(installed).exists:
        return None, 0
    return installed, _find_version(ctx, installed)

# The numbers of the architectures that a ptxas knows: ["50", ..., "120"].
def _find_archs(ctx, ptxas):
    told = ctx.execute([ptxas, "--help"])
    archs = []
    for piece in told.stdout.split("'sm_")[1:]:
        arch = piece.partition("'")[0]
        if arch.isdigit() and arch not in archs:
            archs.append(arch)
    if told.return_code != 0 or not archs:
        fail("%s --help names no architecture: %s" % (ptxas, told.stderr))
    return archs

_DEFS = """\
CUDA_FOUND = {found}

# The compiler of kernels, and its version as CUDA_VERSION of cuda.h is.
NVCC = "{nvcc}"
NVCC_VERSION = {nvcc_version}

# The oldest architecture that nvcc makes PTX for.
OLDEST_PTX_ARCH = "{oldest}"

# What makes machine code of PTX and for which architectures, and packs it.
PTXAS = "{ptxas}"
PTXAS_VERSION = {ptxas_version}
PTXAS_ARCHS = {archs}
FATBINARY = "{fatbinary}"
"""

def _cuda_toolkit_impl(ctx):
    home = None
    if ctx.os.environ.get("DATASETD_NO_CUDA", "") != "1":
        home = _find_home(ctx)
    if not home:
        # buildifier: disable=print
        print("no CUDA toolkit (set CUDA_HOME, or put nvcc on PATH): host-only build")
        ctx.file("BUILD", """\
package(default_visibility = ["//visibility:public"])
cc_library(name = "headers")
filegroup(name = "toolkit_files")
""")
        ctx.file("defs.bzl", _DEFS.format(
            found = False,
            nvcc = "",
            nvcc_version = 0,
            oldest = "",
            ptxas = "",
            ptxas_version = 0,
            archs = [],
            fatbinary = "",
        ))
        return
    ctx.symlink(home + "/include", "include")
    ctx.file("BUILD", """\
package(default_visibility = ["//visibility:public"])
exports_files(["include/cuda.h"])
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)
""")
    nvcc = home + "/bin/nvcc"
    codes = ctx.execute([nvcc, "--list-gpu-code"])
    if codes.return_code != 0:
        fail("%s --list-gpu-code: %s" % (nvcc, codes.stderr))
    version = _find_version(ctx, nvcc)
    ptxas = home + "/bin/ptxas"
    ptxas_version = version
    if version >= 13000:
        cuda12_ptxas, cuda12_version = _find_cuda12_ptxas(ctx)
        if cuda12_ptxas:
            ptxas = cuda12_ptxas
            ptxas_version = cuda12_version
        else:
            # buildifier: disable=print
            print(("no ptxas of CUDA 12 (deploy/install_deps.sh installs one, $CUDA12_PTXAS names " +
                   "another): the kernels need a driver of CUDA %d.0 or newer") % (version // 1000))
    ctx.file("defs.bzl", _DEFS.format(
        found = True,
        nvcc = nvcc,
        nvcc_version = version,
        oldest = codes.stdout.strip().split("\n")[0].replace("sm_", ""),
        ptxas = ptxas,
        ptxas_version = ptxas_version,
        archs = repr(_find_archs(ctx, ptxas)),
        fatbinary = home + "/bin/fatbinary",
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA12_PTXAS", "CUDA_HOME", "DATASETD_NO_CUDA", "HOME", "PATH", "XDG_CACHE_HOME"],
    local = True,
)
