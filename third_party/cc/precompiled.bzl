"""Headers that clang reads once for many sources."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_headers_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    dep = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = dep.compilation_context
    output = ctx.actions.declare_file(ctx.label.name + ".pch")

    # Relocatable: it names our headers by their paths from what -isysroot says, which is
    # another folder for each action.
    flags = ctx.attr.copts + ["-fpch-instantiate-templates"]
    for flag in ["-fno-pch-timestamp", "-relocatable-pch"]:
        flags += ["-Xclang", flag]
    for header in ctx.attr.headers:
        flags += ["-include", header]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             flags + ["-xc++-header"],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        source_file = "/dev/null",
        output_file = output.path,
        use_pic = True,  # --force_pic
    )
    clang = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
    )
    ctx.actions.run_shell(
        mnemonic = "Precompile",
        command = "exec " + clang + " -Xclang -isysroot -Xclang $PWD \"$@\"",
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        inputs = depset([ctx.file._versions] + ctx.files.srcs, transitive = [context.headers]),
        outputs = [output],
    )
    compiled_with = cc_common.create_compilation_context(
        # Clang looks whether they are still as they were.
        headers = depset([output] + ctx.files.srcs, transitive = [context.headers]),
    )
    return [
        DefaultInfo(files = depset([output])),
        CcInfo(compilation_context = compiled_with),
    ]

precompiled_headers = rule(
    doc = """NAME.pch, for the option -include-pch of what has this among its deps.

    Nothing is linked for it.""",
    implementation = _precompiled_headers_impl,
    attrs = {
        "headers": attr.string_list(mandatory = True, doc = "As in #include."),
        "srcs": attr.label_list(allow_files = True, doc = "Those of `headers` that no `deps` have."),
        "copts": attr.string_list(doc = "Those of the sources, too."),
        "deps": attr.label_list(providers = [CcInfo]),
        # Clang refuses headers that have changed since.
        "_versions": attr.label(default = "@debian_versions//:versions.txt", allow_single_file = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
