"""What the archives of this package are made of, files, folders and links, and
the rules that run its scripts."""

# proto/version.h and the Python package say the same; tests compare.
VERSION = "0.1.0"

# DATASETD_ABI_VERSION of client/c_api/datasetd.h; tests/deploy compares.
ABI = "1"

def run_python(ctx, script, outputs, arguments, inputs, mnemonic):
    """Runs a script of this package by the system's Python."""
    args = ctx.actions.args()
    args.add_all(["-I", "-B", script])
    args.add_all(arguments)
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [args],
        inputs = inputs + [script],
        outputs = outputs,
        mnemonic = mnemonic,
        use_default_shell_env = True,
    )

def pack(ctx, script, out, arguments, inputs):
    """Runs a script that packs the archive `out`; returns what a rule does."""
    run_python(ctx, script, [out], [out.path] + arguments, inputs, "Package")
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

def entries(ctx):
    """(the arguments PATH=FILE and LINK->TARGET, the files) of `ctx.attr`."""
    arguments = []
    inputs = []
    for target, folder in ctx.attr.folders.items():
        for file in target.files.to_list():
            arguments.append("%s/%s=%s" % (folder, file.basename, file.path))
            inputs.append(file)
    for target, path in ctx.attr.files.items():
        file = target.files.to_list()[0]
        arguments.append("%s=%s" % (path, file.path))
        inputs.append(file)
    for path, target in ctx.attr.links.items():
        arguments.append("%s->%s" % (path, target))
    return arguments, inputs

ENTRIES_ATTRS = {
    "files": attr.label_keyed_string_dict(
        allow_files = True,
        doc = "a file to its path in the archive",
    ),
    "folders": attr.label_keyed_string_dict(
        allow_files = True,
        doc = "files to their folder in the archive",
    ),
    "links": attr.string_dict(doc = "symbolic links to what they hold"),
}
