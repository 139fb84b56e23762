"""pages: the documentation, with links that work in an archive."""

load(":entries.bzl", "run_python")

def _pages_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    paths = {file: ctx.attr.folder + "/" + file.basename for file in ctx.files.srcs}
    for target, path in ctx.attr.files.items():
        paths[target.files.to_list()[0]] = path
    run_python(
        ctx,
        ctx.file._make_pages,
        [out],
        [out.path] +
        ["%s=%s" % (file.path, path) for file, path in paths.items()] +
        ["%s->%s" % item for item in ctx.attr.others.items()],
        paths.keys(),
        "Pages",
    )
    return [DefaultInfo(files = depset([out]))]

pages = rule(
    implementation = _pages_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "a page to its path in the archive",
        ),
        "folder": attr.string(doc = "of the pages in `srcs`"),
        "others": attr.string_dict(
            doc = "files of the tree to their paths in the archive",
        ),
        "srcs": attr.label_list(allow_files = True),
        "_make_pages": attr.label(
            allow_single_file = True,
            default = ":make_pages.py",
        ),
    },
    doc = "A folder of pages at their paths in the archive.",
)
