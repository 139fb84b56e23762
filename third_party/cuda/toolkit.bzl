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
cc_library(name = "cudart")
filegroup(name = "toolkit_files")
""")
        ctx.file("defs.bzl", "CUDA_FOUND = False\nNVCC = \"\"\n")
        return
    ctx.symlink(home + "/include", "include")
    lib = home + "/lib64"
    if not ctx.path(lib + "/libcudart_static.a").exists:
        lib = home + "/targets/x86_64-linux/lib"
    ctx.symlink(lib + "/libcudart_static.a", "lib/libcudart_static.a")
    ctx.file("BUILD", """\
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)
""")
    ctx.file("defs.bzl", "CUDA_FOUND = True\nNVCC = \"%s/bin/nvcc\"\n" % home)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME", "DATASETD_NO_CUDA", "PATH"],
    local = True,
)
