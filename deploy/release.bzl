"""release: the self-contained archive, and private libraries for it."""

load(":entries.bzl", "ENTRIES_ATTRS", "VERSION", "bundle_library", "entries", "pack", "run_python")

def _release_impl(ctx):
    name = "datasetd-%s-linux-x86_64" % VERSION
    archive = ctx.actions.declare_file(name + ".tar.gz")
    lib = bundle_library(ctx)

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

    arguments, inputs = entries(ctx)
    return pack(
        ctx,
        ctx.file._make_release,
        archive,
        [name, "COMMIT=" + commit.path, "lib=" + lib.path] + arguments +
        [path + "=/dev/null" for path in ctx.attr.empty_files],
        inputs + [commit, lib],
    )

release = rule(
    implementation = _release_impl,
    attrs = dict(
        ENTRIES_ATTRS,
        empty_files = attr.string_list(doc = "paths in the release"),
        _make_release = attr.label(
            allow_single_file = True,
            default = ":make_release.py",
        ),
    ),
    doc = "datasetd-VERSION-linux-x86_64.tar.gz",
)

def _private_libraries_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    run_python(
        ctx,
        ctx.file._bundle_library,
        [folder],
        ["--only", ctx.attr.soname, folder.path],
        [],
        "BundleLibrary",
    )
    return [DefaultInfo(files = depset([folder]))]

private_libraries = rule(
    implementation = _private_libraries_impl,
    attrs = {
        "soname": attr.string(doc = "a library of the system"),
        "_bundle_library": ENTRIES_ATTRS["_bundle_library"],
    },
    doc = """The folder datasetd/ with private copies of the library and of what
it needs, as beside libdatasetd.so.""",
)
