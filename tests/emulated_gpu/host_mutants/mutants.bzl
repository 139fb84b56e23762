"""host_mutants: tests that pass if a planted fault is found."""

def _planted_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = ["-I", "-B", ctx.file._plant.path, ctx.file.src.path, out.path, ctx.attr.before, ctx.attr.after],
        inputs = [ctx.file.src, ctx.file._plant],
        outputs = [out],
        mnemonic = "Plant",
    )
    return [DefaultInfo(files = depset([out]))]

_planted = rule(
    implementation = _planted_impl,
    attrs = {
        "after": attr.string(),
        "before": attr.string(mandatory = True),
        "src": attr.label(allow_single_file = True),
        "_plant": attr.label(allow_single_file = True, default = ":plant.py"),
    },
)

def host_mutants(src, suite, suite_deps, env, mutants, data = [], **kwargs):
    """A test for each mutant of a source.

    Args:
      src: the source.
      suite: a library with the test cases, linked whole.
      suite_deps: what the source needs; its own library is among them.
      env: of the tests.
      mutants: (name, text, what replaces it, a case that finds it), and "hangs"
        behind them where the case then does not end.
      data: of the tests.
      **kwargs: of all.
    """
    plain = suite.split(":")[1] + "_plain"
    if not native.existing_rule(plain):
        native.cc_binary(
            name = plain,
            testonly = True,
            deps = [suite],
            **kwargs
        )
    for mutant in mutants:
        name, before, after, case = mutant[:4]
        _planted(
            name = name + "_planted",
            src = src,
            before = before,
            after = after,
            tags = ["full"],
        )

        # Linked whole and first: the library's own object is left out.
        native.cc_library(
            name = name + "_object",
            testonly = True,
            srcs = [name + "_planted"],
            deps = suite_deps,
            alwayslink = True,
            tags = ["full"],
            **kwargs
        )
        native.cc_binary(
            name = name + "_suite",
            testonly = True,
            deps = [
                name + "_object",
                suite,
            ],
            tags = ["full"],
            **kwargs
        )
        native.sh_test(
            name = name,
            size = "medium",
            srcs = ["is_found.sh"],
            args = [
                "$(rootpath %s)" % plain,
                "$(rootpath %s_suite)" % name,
                case,
            ] + list(mutant[4:]),
            data = [
                plain,
                name + "_suite",
            ] + data,
            env = env,
            tags = ["full"],
            **kwargs
        )
