"""Debian's GCC, and its clang where a feature asks for it.

  by_clang       of a build: all of it
  prefers_clang  of a target whose code's speed does not matter: clang takes two
                 thirds of GCC's time. Sanitizers, whose libraries are a
                 compiler's own, forbid it by --features=-prefers_clang.
  asan, tsan     of a build: all of it under Address- and UBSanitizer, or under
                 ThreadSanitizer
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load(
    "@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl",
    "action_config",
    "feature",
    "flag_group",
    "flag_set",
    "tool",
    "tool_path",
    "with_feature_set",
)

_COMPILE = [
    ACTION_NAMES.assemble,
    ACTION_NAMES.preprocess_assemble,
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
]
_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

# Features that Bazel has and that an action names itself.
_COMPILE_IMPLIES = [
    "user_compile_flags",
    "sysroot",
    "unfiltered_compile_flags",
    "compiler_input_flags",
    "compiler_output_flags",
]
_LINK_IMPLIES = [
    "strip_debug_symbols",
    "linkstamps",
    "output_execpath_flags",
    "runtime_library_search_directories",
    "library_search_directories",
    "libraries_to_link",
    "force_pic_flags",
    "user_link_flags",
    "default_link_libs",
    "linker_param_file",
    "fission_support",
    "sysroot",
]
_LIBRARY_IMPLIES = ["build_interface_libraries", "dynamic_library_linker_tool", "shared_flag"]

_CLANG = ["by_clang", "prefers_clang"]
_BY_CLANG = [with_feature_set(features = [name]) for name in _CLANG]
_BY_GCC = [with_feature_set(not_features = _CLANG)]
_JOINED_BY_GCC = [with_feature_set(features = ["joined"], not_features = _CLANG)]
_OPT = [with_feature_set(features = ["opt"])]

def _action(name, implies, gcc):
    return action_config(
        action_name = name,
        tools = [
            tool(path = "/usr/bin/clang", with_features = _BY_CLANG),
            tool(path = gcc, with_features = _BY_GCC),
        ],
        implies = implies,
    )

def _flags(actions, flags, with_features = []):
    return flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = with_features,
    )

def _sanitizer(name, flags):
    return feature(name = name, flag_sets = [
        _flags(_COMPILE, ["-g1", "-O1"] + flags),
        _flags(_LINK, flags),
    ])

def _cc_toolchain_config_impl(ctx):
    sysroot = ctx.attr.sysroot
    if ctx.attr.is_cross and not sysroot:
        fail(("there are no libraries for {arch}: run deploy/install_deps.sh --{arch}, " +
              "then bazel shutdown").format(arch = ctx.attr.arch))
    triple = ctx.attr.arch + "-linux-gnu"
    prefix = "/usr/bin/" + (triple + "-" if ctx.attr.is_cross else "")
    features = [
        feature(name = "dbg"),
        feature(name = "opt"),
        feature(name = "by_clang"),
        feature(name = "prefers_clang"),
        feature(name = "joined"),
        feature(name = "supports_pic", enabled = True),
        feature(name = "supports_start_end_lib", enabled = True),
        feature(
            name = "default_compile_flags",
            enabled = True,
            flag_sets = [
                _flags(_COMPILE, [
                    "-U_FORTIFY_SOURCE",
                    "-fstack-protector",
                    "-fno-omit-frame-pointer",
                ]),
                _flags(_COMPILE, [
                    "-Wall",
                    "-Wunused-but-set-parameter",
                    "-Wno-free-nonheap-object",
                    # GCC collects its garbage from 1 GiB on, which most sources
                    # do not reach: a twelfth less to compile.
                    "--param=ggc-min-heapsize=1048576",
                ], _BY_GCC),
                _flags(_COMPILE, ["-Wall", "-Wself-assign"], _BY_CLANG),
                # Classes of a .cc file may have members of its unnamed namespace.
                _flags(_COMPILE, ["-Wno-subobject-linkage"], _JOINED_BY_GCC),
                _flags(_COMPILE, ["-g"], [with_feature_set(features = ["dbg"])]),
                _flags(_COMPILE, [
                    "-g0",
                    "-O2",
                    "-D_FORTIFY_SOURCE=1",
                    "-DNDEBUG",
                    "-ffunction-sections",
                    "-fdata-sections",
                ], _OPT),
            ],
        ),
        _sanitizer("asan", [
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            # To look at a vptr UBSan makes a pipe, and takes a process without free
            # descriptors for one without the object.
            "-fno-sanitize=vptr",
            # Indices of vectors and spans, too.
            "-D_GLIBCXX_ASSERTIONS",
        ]),
        _sanitizer("tsan", ["-fsanitize=thread"]),
        feature(
            name = "cross_flags",
            enabled = ctx.attr.is_cross,
            flag_sets = [_flags(_COMPILE + _LINK, ["--target=" + triple], _BY_CLANG)],
        ),
        feature(
            name = "default_link_flags",
            enabled = True,
            flag_sets = [
                _flags(_LINK, [
                    "-fuse-ld=gold",
                    "-Wl,-z,relro,-z,now",
                ]),
                _flags(_LINK, ["-Wl,--gc-sections"], _OPT),
            ],
        ),
        # Bazel's own, but behind the flags above: a target may name its linker.
        feature(
            name = "user_link_flags",
            enabled = True,
            flag_sets = [flag_set(
                actions = _LINK,
                flag_groups = [flag_group(
                    flags = ["%{user_link_flags}"],
                    iterate_over = "user_link_flags",
                    expand_if_available = "user_link_flags",
                )],
            )],
        ),
        feature(
            name = "unfiltered_compile_flags",
            enabled = True,
            flag_sets = [
                _flags(_COMPILE, [
                    "-Wno-builtin-macro-redefined",
                    "-D__DATE__=\"redacted\"",
                    "-D__TIMESTAMP__=\"redacted\"",
                    "-D__TIME__=\"redacted\"",
                ]),
                # Headers of the system are told by the paths below.
                _flags(_COMPILE, ["-fno-canonical-system-headers"], _BY_GCC),
                _flags(_COMPILE, [
                    "-no-canonical-prefixes",
                    "-Wno-unused-command-line-argument",
                ], _BY_CLANG),
            ],
        ),
        feature(
            name = "default_link_libs",
            enabled = True,
            flag_sets = [_flags(_LINK, ["-lstdc++", "-lm"])],
        ),
    ]
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        features = features,
        action_configs =
            [_action(name, _COMPILE_IMPLIES, prefix + "gcc") for name in _COMPILE] +
            [_action(_LINK[0], _LINK_IMPLIES, prefix + "gcc")] +
            [
                _action(name, _LIBRARY_IMPLIES + _LINK_IMPLIES, prefix + "gcc")
                for name in _LINK[1:]
            ],
        builtin_sysroot = sysroot or None,
        cxx_builtin_include_directories = [
            "/usr/include",
            "/usr/lib",
            "/usr/local/include",
            "/dev/null",  # the main file of precompiled headers
        ] + (["/usr/" + triple, sysroot] if sysroot else []),
        toolchain_identifier = "debian",
        host_system_name = "local",
        target_system_name = "local",
        target_cpu = ctx.attr.cpu,
        target_libc = "local",
        compiler = "gcc",
        abi_version = "local",
        abi_libc_version = "local",
        tool_paths = [
            tool_path(name = name, path = prefix + name)
            for name in ["ar", "cpp", "dwp", "gcc", "gcov", "ld", "nm", "objcopy", "objdump", "strip"]
        ],
    )

cc_toolchain_config = rule(
    implementation = _cc_toolchain_config_impl,
    attrs = {
        "arch": attr.string(mandatory = True),
        "cpu": attr.string(mandatory = True),
        "is_cross": attr.bool(doc = "the code is for another processor than the compiler's"),
        "sysroot": attr.string(doc = "a folder with the libraries, if they are not the system's"),
    },
    provides = [CcToolchainConfigInfo],
)
