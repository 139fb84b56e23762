"""glibc_stubs: libraries to link with in the place of glibc's."""

# libpthread comes first: functions that it shares with libc are its own.
_LIBRARIES = ["libpthread.so.0", "libc.so.6", "libm.so.6", "libdl.so.2"]
_LOADERS = {
    "aarch64": "ld-linux-aarch64.so.1",
    "x86_64": "ld-linux-x86-64.so.2",
}

def _glibc_stubs_impl(ctx):
    stubs = [ctx.actions.declare_file(ctx.label.name + "/" + name) for name in _LIBRARIES + [_LOADERS[ctx.attr.arch]]]
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = ["-I", "-B", ctx.file._make_stubs.path, ctx.file.symbols.path, ctx.attr.arch, stubs[0].dirname],
        inputs = [ctx.file._make_stubs, ctx.file.symbols],
        outputs = stubs,
        mnemonic = "MakeStubs",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset(stubs))]

glibc_stubs = rule(
    implementation = _glibc_stubs_impl,
    attrs = {
        "arch": attr.string(mandatory = True),
        "symbols": attr.label(allow_single_file = True),
        "_make_stubs": attr.label(
            allow_single_file = True,
            default = ":make_stubs.py",
        ),
    },
    doc = "The stubs with `symbols`, and the loader's last.",
)
