"""What the archives of this package are made of: files, folders, links."""

# proto/version.h and the Python package say the same; tests compare.
VERSION = "0.1.0"

PYTHON = ["/usr/bin/python3", "-I", "-B"]

def bundle_library(ctx, name = "libdatasetd.so"):
    """The directory with the library, called `name`, and those it needs."""
    lib = ctx.actions.declare_directory(ctx.label.name + ".lib")
    ctx.actions.run(
        executable = PYTHON[0],
        arguments = PYTHON[1:] + [
            ctx.file._bundle_library.path,
            ctx.file.library.path,
            lib.path,
            name,
        ],
        inputs = [ctx.file._bundle_library, ctx.file.library],
        outputs = [lib],
        mnemonic = "BundleLibrary",
        use_default_shell_env = True,
    )
    return lib

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
    "library": attr.label(
        allow_single_file = True,
        doc = "libdatasetd.so",
    ),
    "links": attr.string_dict(doc = "symbolic links to what they hold"),
    "_bundle_library": attr.label(
        allow_single_file = True,
        default = ":bundle_library.py",
    ),
}
