"""static_binaries: executables that need no shared library of the machine's but
glibc's."""

# Archives that take the place of a linker flag; Debian's -dev packages hold
# them. Nothing here needs TLS, so gRPC's are those without.
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

# prometheus-cpp has no archive. Whatever links it shares what passes its
# boundary, too: by name, the private copy of each.
_WITH_METRICS = {
    "-lprometheus-cpp-core": "libprometheus-cpp-core-datasetd.so.1.0",
    "-lstdc++": "libstdc++-datasetd.so.6",
}

_GCC_RUNTIME = "libgcc_s-datasetd.so.1"

# From bin/ of the release.
_RUNPATH = "$ORIGIN/../lib/datasetd"

def _static_arguments(argv, private_folder):
    """The link command with archives in the place of shared libraries.

    What needs prometheus-cpp takes it from `private_folder`, or, where that is
    None, from the system."""
    has_metrics = "-lprometheus-cpp-core" in argv
    kept = []
    names = {}
    for argument in argv:
        if has_metrics and argument in _WITH_METRICS:
            if private_folder:
                argument = "-l:" + _WITH_METRICS[argument]
            kept.append(argument)
            continue
        if argument == "-lgrpc++_reflection":
            # It registers itself before main: nothing refers to it.
            kept += [
                "-Wl,--whole-archive",
                "-l:libgrpc++_reflection.a",
                "-Wl,--no-whole-archive",
            ]
            names["grpc++_unsecure"] = True
        elif argument.startswith("-labsl_"):
            names.update({name: True for name in _ABSEIL})
        elif argument in _ARCHIVES:
            names.update({name: True for name in _ARCHIVES[argument]})
        elif argument.startswith("@"):
            pass  # The file that holds the same arguments.
        elif argument not in ["-Wl,--as-needed", "-Wl,--no-as-needed"]:
            kept.append(argument)
    if not has_metrics:
        kept.append("-static-libgcc")
    elif private_folder:
        kept += [
            "-L" + private_folder,
            "-Wl,-rpath-link," + private_folder,
            "-Wl,-rpath," + _RUNPATH,
            # Before the compiler adds the system's, as needed.
            "-l:" + _GCC_RUNTIME,
        ]
    return kept + ["-Wl,-s", "-Wl,--start-group"] + [
        "-l:lib%s.a" % name
        for name in names
    ] + ["-Wl,--end-group", "-Wl,--as-needed"]

StaticBinaryInfo = provider(
    doc = "An executable linked once more.",
    fields = ["file"],
)

def _static_link_impl(target, ctx):
    links = [a for a in target.actions if a.mnemonic == "CppLink"]
    executable = target.files_to_run.executable
    links = [a for a in links if executable in a.outputs.to_list()]
    if len(links) != 1:
        fail("%s is not linked by one action" % target.label)
    inputs = [links[0].inputs]
    private_folder = None
    folder = "static_for_system/"
    if ctx.attr.metrics == "private":
        folder = "static/"
        private = ctx.attr._metrics_libraries.files
        inputs.append(private)
        private_folder = private.to_list()[0].path + "/datasetd"
    out = ctx.actions.declare_file(folder + ctx.rule.attr.name)
    argv = [
        out.path if argument == executable.path else argument
        for argument in _static_arguments(links[0].argv, private_folder)
    ]
    args = ctx.actions.args()
    args.add_all(argv[1:])
    args.use_param_file("@%s", use_always = True)
    ctx.actions.run(
        executable = argv[0],
        inputs = depset(transitive = inputs),
        outputs = [out],
        arguments = [args],
        mnemonic = "StaticLink",
        use_default_shell_env = True,
    )
    return [StaticBinaryInfo(file = out)]

_static_link = aspect(
    implementation = _static_link_impl,
    attrs = {
        "metrics": attr.string(values = ["private", "system"]),
        "_metrics_libraries": attr.label(
            default = "//deploy:metrics_libraries",
        ),
    },
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
        "metrics": attr.string(
            default = "private",
            values = ["private", "system"],
        ),
    },
    doc = """The executables of `binaries` without symbols, needing no shared
library but glibc's; those with metrics also need prometheus-cpp and libstdc++.
With `metrics` private, in the folders `static` of their packages, these are the
copies in //deploy:metrics_libraries, found at ../lib/datasetd. With `metrics`
system, in the folders `static_for_system`, they are the machine's.""",
)
