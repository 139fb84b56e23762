"""deb and wheel: what package managers install."""

load(":entries.bzl", "ABI", "ENTRIES_ATTRS", "VERSION", "entries", "pack")

def _deb_impl(ctx):
    deb = ctx.actions.declare_file("datasetd_%s-1_amd64.deb" % VERSION)
    arguments, inputs = entries(ctx)
    return pack(
        ctx,
        ctx.file._make_deb,
        deb,
        ["DEBIAN/%s=%s" % (file.basename, file.path) for file in ctx.files.control] +
        arguments,
        inputs + ctx.files.control,
    )

deb = rule(
    implementation = _deb_impl,
    attrs = dict(
        ENTRIES_ATTRS,
        control = attr.label_list(
            allow_files = True,
            doc = "the files of DEBIAN/",
        ),
        _make_deb = attr.label(
            allow_single_file = True,
            default = ":make_deb.py",
        ),
    ),
    doc = "datasetd_VERSION-1_amd64.deb",
)

def _wheel_impl(ctx):
    # As third_party/glibc has it; make_wheel.py checks.
    tag = "py3-none-manylinux_2_28_" + ctx.attr.arch
    wheel = ctx.actions.declare_file("datasetd-%s-%s.whl" % (VERSION, tag))
    arguments, inputs = entries(ctx)
    return pack(
        ctx,
        ctx.file._make_wheel,
        wheel,
        [VERSION, tag, ctx.file.description.path, ctx.file.entry_points.path] +
        arguments,
        inputs + [ctx.file.description, ctx.file.entry_points],
    )

wheel = rule(
    implementation = _wheel_impl,
    attrs = dict(
        ENTRIES_ATTRS,
        arch = attr.string(mandatory = True),
        description = attr.label(allow_single_file = True),
        entry_points = attr.label(allow_single_file = True),
        _make_wheel = attr.label(
            allow_single_file = True,
            default = ":make_wheel.py",
        ),
    ),
    doc = "datasetd-VERSION-TAG.whl, with programs and library inside",
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
