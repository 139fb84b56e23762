"""Finds the CUDA toolkit; without one the build is host-only and says so."""

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

# CUDA_VERSION of cuda.h, as nvcc tells it: 12080 for "release 12.8".
def _find_version(ctx, nvcc):
    told = ctx.execute([nvcc, "--version"])
    release = told.stdout.partition("release ")[2].partition(",")[0]
    major, _, minor = release.partition(".")
    if told.return_code != 0 or not major.isdigit() or not minor.isdigit():
        fail("%s --version names no release: %s%s" % (nvcc, told.stdout, told.stderr))
    return int(major) * 1000 + int(minor) * 10

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
        ctx.file("defs.bzl", "CUDA_FOUND = False\nNVCC = \"\"\nNVCC_VERSION = 0\nGPU_CODES = []\n")
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
    ctx.file("defs.bzl", "CUDA_FOUND = True\nNVCC = \"%s\"\nNVCC_VERSION = %d\nGPU_CODES = %s\n" % (
        nvcc,
        _find_version(ctx, nvcc),
        repr(codes.stdout.strip().split("\n")),
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME", "DATASETD_NO_CUDA", "PATH"],
    local = True,
)
