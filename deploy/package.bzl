"""deb and wheel: what package managers install."""

load(":entries.bzl", "ENTRIES_ATTRS", "VERSION", "bundle_library", "entries", "pack")

# DATASETD_ABI_VERSION of client/c_api/datasetd.h; tests/deploy compares.
ABI = "1"

def _deb_impl(ctx):
    deb = ctx.actions.declare_file("datasetd_%s-1_amd64.deb" % VERSION)
    lib = bundle_library(ctx, "libdatasetd.so." + ABI)
    arguments, inputs = entries(ctx)
    return pack(
        ctx,
        ctx.file._make_deb,
        deb,
        ["DEBIAN/%s=%s" % (file.basename, file.path) for file in ctx.files.control] +
        ["%s=%s" % (ctx.attr.library_folder, lib.path)] + arguments,
        inputs + ctx.files.control + [lib],
    )

deb = rule(
    implementation = _deb_impl,
    attrs = dict(
        ENTRIES_ATTRS,
        control = attr.label_list(
            allow_files = True,
            doc = "the files of DEBIAN/",
        ),
        library_folder = attr.string(),
        _make_deb = attr.label(
            allow_single_file = True,
            default = ":make_deb.py",
        ),
    ),
    doc = "datasetd_VERSION-1_amd64.deb",
)

def _wheel_impl(ctx):
    # The glibc that the build's own is compatible with; make_wheel.py checks.
    tag = "py3-none-manylinux_2_36_x86_64"
    wheel = ctx.actions.declare_file("datasetd-%s-%s.whl" % (VERSION, tag))
    lib = bundle_library(ctx)
    arguments, inputs = entries(ctx)
    return pack(
        ctx,
        ctx.file._make_wheel,
        wheel,
        [VERSION, tag, ctx.file.description.path, ctx.file.entry_points.path] +
        ["datasetd/lib=" + lib.path] + arguments,
        inputs + [lib, ctx.file.description, ctx.file.entry_points],
    )

wheel = rule(
    implementation = _wheel_impl,
    attrs = dict(
        ENTRIES_ATTRS,
        description = attr.label(allow_single_file = True),
        entry_points = attr.label(allow_single_file = True),
        _make_wheel = attr.label(
            allow_single_file = True,
            default = ":make_wheel.py",
        ),
    ),
    doc = "datasetd-VERSION-TAG.whl, with programs and libraries inside",
)

def _filled_impl(ctx):
    outs = []
    for file in ctx.files.srcs:
        out = ctx.actions.declare_file("filled/" + file.basename)
        ctx.actions.expand_template(
            template = file,
            output = out,
            substitutions = {"@ABI@": ABI, "@VERSION@": VERSION},
        )
        outs.append(out)
    return [DefaultInfo(files = depset(outs))]

filled = rule(
    implementation = _filled_impl,
    attrs = {"srcs": attr.label_list(allow_files = True)},
    doc = "The files with @VERSION@ and @ABI@ filled in.",
)
