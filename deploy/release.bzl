"""release: the self-contained archive."""

load(":entries.bzl", "ENTRIES_ATTRS", "VERSION", "entries", "pack")

def _release_impl(ctx):
    name = "datasetd-%s-linux-x86_64" % VERSION
    archive = ctx.actions.declare_file(name + ".tar.gz")

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
        [name, "COMMIT=" + commit.path] + arguments +
        [path + "=/dev/null" for path in ctx.attr.empty_files],
        inputs + [commit],
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
