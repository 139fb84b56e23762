"""static_binaries: executables that need no shared library but glibc's."""

# What takes the place of a linker flag. Debian's -dev packages hold the
# archives. Nothing here needs TLS, so gRPC's are those without.
_ARCHIVES = {
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
    "-lminizip": [
        "minizip",
        "z",
    ],
    "-lpng": [
        "png16",
        "z",
    ],
    # No archives: //server:metrics_endpoint_absent stands in for their user.
    "-lprometheus-cpp-core": [],
    "-lprometheus-cpp-pull": [],
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

# Shared where the metrics are wanted: prometheus-cpp, and what passes its
# boundary.
_SHARED_WITH_METRICS = ["-lprometheus-cpp-core", "-lprometheus-cpp-pull", "-lstdc++"]

def _static_arguments(argv, has_metrics):
    """The link command with archives in the place of shared libraries."""
    kept = []
    names = {}
    for argument in argv:
        if has_metrics and argument in _SHARED_WITH_METRICS:
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
    has_metrics = ctx.attr.metrics == "shared"
    folder = "static_with_metrics/" if has_metrics else "static/"
    out = ctx.actions.declare_file(folder + ctx.rule.attr.name)
    replaced = {executable.path: out.path}
    stand_ins = []
    for linker_input in ctx.attr._metrics_absent[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            for object in (library.objects or []) + (library.pic_objects or []):
                stand_ins.append(object)
                if not has_metrics:
                    replaced[object.path.replace("_absent", "")] = object.path
    argv = [
        replaced.get(argument, argument)
        for argument in _static_arguments(links[0].argv, has_metrics)
    ]
    args = ctx.actions.args()
    args.add_all(argv[1:])
    args.use_param_file("@%s", use_always = True)
    ctx.actions.run(
        executable = argv[0],
        inputs = depset(stand_ins, transitive = [links[0].inputs]),
        outputs = [out],
        arguments = [args],
        mnemonic = "StaticLink",
        use_default_shell_env = True,
    )
    return [StaticBinaryInfo(file = out)]

_static_link = aspect(
    implementation = _static_link_impl,
    attrs = {
        "metrics": attr.string(values = ["absent", "shared"]),
        "_metrics_absent": attr.label(
            default = "//server:metrics_endpoint_absent",
            providers = [CcInfo],
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
            default = "absent",
            values = ["absent", "shared"],
        ),
    },
    doc = """The executables of `binaries` without symbols, in the folders
`static` of their packages, needing no shared library but glibc's. With
`metrics` shared, in the folders `static_with_metrics`: those of prometheus-cpp
and libstdc++, too.""",
)
