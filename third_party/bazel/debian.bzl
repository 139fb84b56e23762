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
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n"] +
        ctx.attr.packages,
    )
    if result.return_code != 0:
        fail("dpkg-query: {}; deploy/install_deps.sh installs what is missing".format(result.stderr))
    ctx.file("versions.txt", "\n".join([
        line
        for line in result.stdout.split("\n")
        if line.startswith("installed ")
    ]) + "\n")
    ctx.file("BUILD", "exports_files([\"versions.txt\"])\n")

# The installed packages of these names, which may be patterns. Read again when
# Bazel starts.
debian_versions = repository_rule(
    attrs = {"packages": attr.string_list(mandatory = True)},
    implementation = _debian_versions_impl,
    local = True,
)

def _debian_crate_impl(ctx):
    registry = ctx.path("/usr/share/cargo/registry")
    found = [
        entry
        for entry in (registry.readdir() if registry.exists else [])
        if entry.basename.rpartition("-")[0] == ctx.attr.crate
    ]
    if len(found) != 1:
        fail("%d crates %s in %s; deploy/install_deps.sh installs librust-%s-dev" % (
            len(found),
            ctx.attr.crate,
            registry,
            ctx.attr.crate,
        ))
    ctx.symlink(found[0].get_child("c"), "c")
    ctx.symlink(ctx.attr.build_file, "BUILD")

# The C sources of a Rust package, of whatever version is installed.
debian_crate = repository_rule(
    attrs = {
        "build_file": attr.label(mandatory = True),
        "crate": attr.string(mandatory = True),
    },
    implementation = _debian_crate_impl,
    local = True,
)

def _has_library(ctx, name):
    return "/" in ctx.execute(["gcc", "-print-file-name=" + name]).stdout

def _debian_linkopts_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file("defs.bzl", "ABSEIL = {}\nFMT = {}\n".format(
        ["-labsl_string_view"] if _has_library(ctx, "libabsl_string_view.so") else [],
        # Up to fmt 9 third_party/spdlog/spdlog.cc has all of it.
        [] if _has_library(ctx, "libfmt.so.9") else ["-lfmt"],
    ))

# What Debian 13's libraries need beside those of Debian 12.
debian_linkopts = repository_rule(
    implementation = _debian_linkopts_impl,
    local = True,
)

# What deploy/install_deps.sh fetches is there.
def _build_cache(ctx):
    cache = ctx.os.environ.get("XDG_CACHE_HOME", "") or ctx.os.environ.get("HOME", "") + "/.cache"
    return cache + "/datasetd-build"

def _debian_source_impl(ctx):
    result = ctx.execute(
        ["dpkg-query", "-W", "-f", "${source:Package}_${source:Version}", ctx.attr.package],
    )
    if result.return_code != 0:
        fail("dpkg-query: {}; deploy/install_deps.sh installs what is missing".format(result.stderr))

    source = ctx.path(_build_cache(ctx) + "/sources/" + result.stdout)
    if not source.exists:
        ctx.file("BUILD", _NO_SOURCE.format(
            name = ctx.attr.target,
            source = source,
        ))
        return
    for entry in source.readdir():
        if entry.basename not in ["BUILD", "BUILD.bazel", "WORKSPACE"]:
            ctx.symlink(entry, entry.basename)
    ctx.file("program_only.bzl", "PROGRAM_ONLY = %r\n" % _program_only(ctx))
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

# The sources of those objects in the package's archives that only a program can have: they
# name thread-local variables, or glibc's, as a program does.
def _program_only(ctx):
    result = ctx.execute(["sh", "-c", """set -e
        for archive in $(dpkg-query -L "$1" | grep '\\.a$'); do readelf -sW "$archive"; done |
            awk '/^File:/ { sub(/.*\\(/, ""); sub(/(\\.cc)?\\.o\\)/, ".cc"); file = $0 }
                 $4 == "TLS" || $7 == "UND" && $8 ~ /^(std(in|out|err)|environ)$/ {
                     print file
                 }' | sort -u""", "sh", ctx.attr.package])
    if result.return_code != 0:
        fail("readelf of the archives of {}: {}".format(ctx.attr.package, result.stderr))
    return result.stdout.split("\n")[:-1]

_NO_SOURCE = """\
genrule(
    name = "{name}",
    outs = ["lib{name}.a"],
    cmd = "echo '{source} is not there: deploy/install_deps.sh fetches the source' >&2; exit 1",
    visibility = ["//visibility:public"],
)
"""

# The source of an installed package, of the same version, compiled by `build_file`,
# which may load from :program_only.bzl the list PROGRAM_ONLY, names of those sources that
# are compiled for a shared library. Without the source the build of `target` fails, and
# nothing else.
debian_source = repository_rule(
    attrs = {
        "build_file": attr.label(mandatory = True),
        "package": attr.string(mandatory = True),
        "target": attr.string(mandatory = True),
    },
    environ = ["HOME", "XDG_CACHE_HOME"],
    implementation = _debian_source_impl,
    local = True,
)

def _debian_sysroot_impl(ctx):
    ctx.file("BUILD", "")
    sysroot = ""
    is_cross = ctx.execute(["uname", "-m"]).stdout.strip() != ctx.attr.arch
    if is_cross:
        # Where deploy/install_deps.sh --aarch64 unpacks it. Another version has
        # another path, which the objects that are kept go by.
        link = ctx.path(_build_cache(ctx) + "/sysroots/" + ctx.attr.debian_arch)
        if link.exists:
            sysroot = str(link.realpath)
    ctx.file("defs.bzl", "IS_CROSS = {}\nSYSROOT = {}\n".format(is_cross, repr(sysroot)))

# Debian's libraries for another processor, unpacked. Empty if there are none.
debian_sysroot = repository_rule(
    attrs = {
        "arch": attr.string(mandatory = True, doc = "as uname -m names it"),
        "debian_arch": attr.string(mandatory = True),
    },
    environ = ["HOME", "XDG_CACHE_HOME"],
    implementation = _debian_sysroot_impl,
    local = True,
)

def debian_bazel_repositories():
    """Declares @rules_cc (the native rules) and an empty @remote_coverage_tools."""
    _rules_cc(name = "rules_cc")
    _remote_coverage_tools(name = "remote_coverage_tools")
