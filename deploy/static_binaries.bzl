"""static_binaries: programs and libraries that need no shared library of the
machine's but glibc's, 2.28 or newer."""

load(":entries.bzl", "ABI")

# Archives that take the place of a linker flag; Debian's -dev packages hold
# them. Nothing here needs TLS, so gRPC's are those without. What a shared library
# cannot have of them, and prometheus-cpp, which has none, is compiled from Debian's
# sources: see _BUILT.
_ARCHIVES = {
    "-larchive": ["archive"],
    "-lbenchmark": ["benchmark"],
    "-lgmock": ["gmock"],
    "-lgmock_main": ["gmock_main"],
    "-lgpr": ["gpr"],
    "-lgrpc": [
        "grpc_unsecure",
        "address_sorting",
        "cares",
        "upb",
        "z",
    ],
    "-lgrpc++": ["grpc++_unsecure"],
    "-lgtest": ["gtest"],
    "-ljpeg": ["jpeg"],
    "-lpng": [
        "png16",
        "z",
    ],
    "-lprotobuf": [
        "protobuf",
        "z",
    ],
    "-lstdc++": ["stdc++"],
    "-lxxhash": ["xxhash"],
    "-lyaml-cpp": ["yaml-cpp"],
    "-lz": ["z"],
}

# Those that are not the tests', by name; of Abseil's one stands for all.
BUNDLED = ["absl_base"] + [
    name
    for flag, names in _ARCHIVES.items()
    if flag not in ["-lbenchmark", "-lgmock", "-lgmock_main", "-lgtest"]
    for name in names
]

# Abseil's targets link what their headers name; its archives need these, too.
_ABSEIL = [
    "absl_" + name
    for name in [
        "bad_optional_access",
        "bad_variant_access",
        "base",
        "city",
        "civil_time",
        "cord",
        "cord_internal",
        "cordz_functions",
        "cordz_handle",
        "cordz_info",
        "cordz_sample_token",
        "debugging_internal",
        "demangle_internal",
        "examine_stack",
        "exponential_biased",
        "graphcycles_internal",
        "hash",
        "hashtablez_sampler",
        "int128",
        "low_level_hash",
        "malloc_internal",
        "random_distributions",
        "random_internal_platform",
        "random_internal_pool_urbg",
        "random_internal_randen",
        "random_internal_randen_hwaes",
        "random_internal_randen_hwaes_impl",
        "random_internal_randen_slow",
        "random_internal_seed_material",
        "random_seed_gen_exception",
        "random_seed_sequences",
        "raw_hash_set",
        "raw_logging_internal",
        "spinlock_wait",
        "stacktrace",
        "status",
        "statusor",
        "str_format_internal",
        "strerror",
        "strings",
        "strings_internal",
        "symbolize",
        "synchronization",
        "throw_delegate",
        "time",
        "time_zone",
    ]
]

# Archives that are made here, of Debian's sources: prometheus-cpp has none, and some
# objects of protobuf's and Abseil's are not for a library: they name glibc's variables,
# or thread-local ones, as a program does, and the loader may have no room for more of
# these. The others are for a position-independent program, which is enough for a library
# that exports nothing of them.
_BUILT = {
    "metrics": "@prometheus_cpp_source//:prometheus_cpp",
    "protobuf": "@protobuf_source//:protobuf",
    "absl": "@abseil_source//:abseil",
}

# What the linker gets as glibc and the compiler's libraries.
_REPLACED = ["-ldl", "-lm", "-lpthread", "-pthread", "-lrt"]

def _static_arguments(argv, built, shim, stubs):
    """The link command with archives in the place of shared libraries.

    Args:
      argv: the command
      built: the paths of the archives of _BUILT, by the same names
      shim: that of //third_party/glibc's archive
      stubs: those of its stubs
    Returns: a list
    """
    is_library = "-shared" in argv
    kept = []
    names = {}
    for argument in argv:
        if argument == "-lgrpc++_reflection":
            # It registers itself before main: nothing refers to it.
            kept += [
                "-Wl,--whole-archive",
                "-l:libgrpc++_reflection.a",
                "-Wl,--no-whole-archive",
            ]
            names["-l:libgrpc++_unsecure.a"] = True
        elif argument == "-lprometheus-cpp-core":
            names[built["metrics"]] = True
        elif argument.startswith("-labsl_"):
            names.update({"-l:lib%s.a" % name: True for name in _ABSEIL})
        elif argument in _ARCHIVES:
            names.update({"-l:lib%s.a" % name: True for name in _ARCHIVES[argument]})
        elif argument.startswith("@"):
            pass  # The file that holds the same arguments.
        elif argument not in _REPLACED + ["-Wl,--as-needed", "-Wl,--no-as-needed"]:
            kept.append(argument)
    if is_library:
        # All of them, so that no object of Debian's defines the same.
        kept += ["-Wl,--whole-archive", built["protobuf"], built["absl"], "-Wl,--no-whole-archive"]
        kept += [
            "-Wl,-z,text",
            "-Wl,-soname,libdatasetd.so." + ABI,
            # It is weak: what an archive defines is taken from there.
            "-Wl,-u,__cxa_pure_virtual",
        ]
    return kept + ["-nodefaultlibs", "-Wl,-s", "-Wl,--start-group"] + names.keys() + [
        "-l:libstdc++.a",
        "-lgcc",
        "-lgcc_eh",
        shim,
        # Debian's, of what a program has of glibc in itself.
        "-l:libc_nonshared.a",
        "-Wl,--end-group",
    ] + stubs

# A cc_library has one for those who want all of it, too.
def _archive(target):
    return [file for file in target.files.to_list() if file.extension == "a"][0]

StaticBinaryInfo = provider(
    doc = "A program or library linked once more.",
    fields = ["file"],
)

def _static_link_impl(target, ctx):
    links = [a for a in target.actions if a.mnemonic == "CppLink"]
    executable = target.files_to_run.executable
    links = [a for a in links if executable in a.outputs.to_list()]
    if len(links) != 1:
        fail("%s is not linked by one action" % target.label)
    argv = links[0].argv
    is_library = "-shared" in argv

    built = {
        name: _archive(getattr(ctx.attr, "_" + name))
        for name in _BUILT
        if (is_library if name != "metrics" else "-lprometheus-cpp-core" in argv)
    }
    shim = _archive(ctx.attr._shim if is_library else ctx.attr._program_shim)
    stubs = ctx.attr._stubs.files.to_list()
    out = ctx.actions.declare_file("static/" + ctx.rule.attr.name)
    args = ctx.actions.args()
    args.add_all([
        out.path if argument == executable.path else argument
        for argument in _static_arguments(
            argv[1:],
            {name: file.path for name, file in built.items()},
            shim.path,
            [file.path for file in stubs],
        )
    ])
    args.use_param_file("@%s", use_always = True)
    ctx.actions.run(
        executable = argv[0],
        inputs = depset(built.values() + [shim] + stubs, transitive = [links[0].inputs]),
        outputs = [out],
        arguments = [args],
        mnemonic = "StaticLink",
        use_default_shell_env = True,
    )
    return [StaticBinaryInfo(file = out)]

_static_link = aspect(
    implementation = _static_link_impl,
    attrs = dict(
        {
            "_" + name: attr.label(default = label)
            for name, label in _BUILT.items()
        },
        _program_shim = attr.label(default = "//third_party/glibc:program_shim"),
        _shim = attr.label(default = "//third_party/glibc:shim"),
        _stubs = attr.label(default = "//third_party/glibc:stubs"),
    ),
    doc = "Repeats the link of a cc_binary or cc_test, of the same objects.",
)

def _static_binaries_impl(ctx):
    files = [binary[StaticBinaryInfo].file for binary in ctx.attr.binaries]
    return [DefaultInfo(
        files = depset(files),
        runfiles = ctx.runfiles(files),
    )]

static_binaries = rule(
    implementation = _static_binaries_impl,
    attrs = {
        "binaries": attr.label_list(
            aspects = [_static_link],
            doc = "cc_binary and cc_test targets",
        ),
    },
    doc = """The programs and libraries of `binaries` without symbols, in the
folders `static` of their packages. They need no shared library but glibc's, of
2.28 or newer: what third_party/glibc/symbols.txt does not name is not found.""",
)
