"""Tests under a sanitizer in a build whose other code has none."""

# The host's vector code for one instruction set: it takes a minute and a half for all.
_COPTS = [
    "-O0",
    "-Wthread-safety",
    # Clang's check of called functions needs UBSan's library for C++.
    "-fno-sanitize=function",
    "-DHWY_COMPILE_ONLY_STATIC",
]

def _with_sanitizer_impl(settings, attr):
    return {
        "//command_line_option:compilation_mode": "dbg",
        "//command_line_option:copt": settings["//command_line_option:copt"] + _COPTS,
        "//command_line_option:features": settings["//command_line_option:features"] +
                                          ["by_clang", "-prefers_clang", attr.sanitizer],
    }

_with_sanitizer = transition(
    implementation = _with_sanitizer_impl,
    inputs = [
        "//command_line_option:copt",
        "//command_line_option:features",
    ],
    outputs = [
        "//command_line_option:compilation_mode",
        "//command_line_option:copt",
        "//command_line_option:features",
    ],
)

def _sanitized_test_impl(ctx):
    test = ctx.attr.test[0][DefaultInfo]
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = program,
        target_file = test.files_to_run.executable,
        is_executable = True,
    )
    return [DefaultInfo(executable = program, runfiles = test.default_runfiles)]

sanitized_test = rule(
    doc = """A cc_test that does not link gRPC, compiled by clang with a sanitizer.

    gRPC's build alone would take longer than such a test. Clang refuses the client's
    thread annotations, which name a std::mutex.""",
    implementation = _sanitized_test_impl,
    attrs = {
        "sanitizer": attr.string(mandatory = True, values = ["asan", "tsan"]),
        "test": attr.label(mandatory = True, cfg = _with_sanitizer),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    test = True,
)
