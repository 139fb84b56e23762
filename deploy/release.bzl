"""release: the self-contained archive."""

# server/version.h says the same; tests/deploy/release_test compares.
VERSION = "0.1.0"

_PYTHON = ["/usr/bin/python3", "-I", "-B"]

def _release_impl(ctx):
    name = "datasetd-%s-linux-x86_64" % VERSION
    archive = ctx.actions.declare_file(name + ".tar.gz")

    lib = ctx.actions.declare_directory(ctx.label.name + ".lib")
    ctx.actions.run(
        executable = _PYTHON[0],
        arguments = _PYTHON[1:] + [
            ctx.file._bundle_library.path,
            ctx.file.library.path,
            lib.path,
        ],
        inputs = [ctx.file._bundle_library, ctx.file.library],
        outputs = [lib],
        mnemonic = "BundleLibrary",
        use_default_shell_env = True,
    )

    # .bazelrc names the command that says it.
    commit = ctx.actions.declare_file(ctx.label.name + ".commit")
    ctx.actions.run_shell(
        inputs = [ctx.info_file],
        outputs = [commit],
        arguments = [ctx.info_file.path, commit.path],
        command = "sed -n 's/^STABLE_COMMIT //p' $1 >$2; " +
                  "[ -s $2 ] || echo unknown >$2",
        mnemonic = "Commit",
    )

    entries = ["COMMIT=" + commit.path, "lib=" + lib.path]
    inputs = [commit, lib]
    for target, folder in ctx.attr.folders.items():
        for file in target.files.to_list():
            entries.append("%s/%s=%s" % (folder, file.basename, file.path))
            inputs.append(file)
    for target, path in ctx.attr.files.items():
        file = target.files.to_list()[0]
        entries.append("%s=%s" % (path, file.path))
        inputs.append(file)
    for path in ctx.attr.empty_files:
        entries.append(path + "=/dev/null")
    for path, target in ctx.attr.links.items():
        entries.append("%s->%s" % (path, target))
    args = ctx.actions.args()
    args.add_all(_PYTHON[1:] + [ctx.file._make_release, archive, name])
    args.add_all(entries)
    ctx.actions.run(
        executable = _PYTHON[0],
        arguments = [args],
        inputs = inputs + [ctx.file._make_release],
        outputs = [archive],
        mnemonic = "Release",
    )
    return [DefaultInfo(
        files = depset([archive]),
        runfiles = ctx.runfiles([archive]),
    )]

release = rule(
    implementation = _release_impl,
    attrs = {
        "empty_files": attr.string_list(doc = "paths in the release"),
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "a file to its path in the release",
        ),
        "folders": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "files to their folder in the release",
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
        "_make_release": attr.label(
            allow_single_file = True,
            default = ":make_release.py",
        ),
    },
    doc = "datasetd-VERSION-linux-x86_64.tar.gz",
)
