"""Repositories that Bazel 4.2 expects and Debian does not ship in usable form."""

def _rules_cc_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"rules_cc\")\n")
    ctx.file("BUILD", "")
    ctx.file("cc/BUILD", "")
    ctx.file("cc/defs.bzl", """\
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
""")

_rules_cc = repository_rule(implementation = _rules_cc_impl)

def _remote_coverage_tools_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"remote_coverage_tools\")\n")
    ctx.file("BUILD", """\
filegroup(
    name = "coverage_report_generator",
    srcs = [],
    visibility = ["//visibility:public"],
)
""")

_remote_coverage_tools = repository_rule(implementation = _remote_coverage_tools_impl)

def _debian_versions_impl(ctx):
    result = ctx.execute(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"] + ctx.attr.packages,
    )
    if result.return_code != 0:
        fail("dpkg-query: {}; deploy/install_deps.sh installs what is missing".format(result.stderr))
    ctx.file("versions.txt", result.stdout)
    ctx.file("BUILD", "exports_files([\"versions.txt\"])\n")

# Read again when Bazel starts.
debian_versions = repository_rule(
    attrs = {"packages": attr.string_list(mandatory = True)},
    implementation = _debian_versions_impl,
    local = True,
)

def debian_bazel_repositories():
    """Declares @rules_cc (the native rules) and an empty @remote_coverage_tools."""
    _rules_cc(name = "rules_cc")
    _remote_coverage_tools(name = "remote_coverage_tools")
