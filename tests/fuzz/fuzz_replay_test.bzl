"""fuzz_replay_test: a fuzz harness run over its committed corpus."""

load("//tests:datasetd_test.bzl", "compiled_as_a_test")

def fuzz_replay_test(name, corpus, deps, size = "small", data = [], env = {}, tags = []):
    """Compiles `name`.cc as a test; tests/fuzz/run.sh compiles it as a fuzzer.

    Args:
      name: the harness, ending in _fuzz; the test is `name`_test.
      corpus: the folder of inputs, below this package.
      deps: of the harness.
      size: of the test.
      data: of the harness, beside the corpus.
      env: of the test.
      tags: of the test.
    """
    native.cc_test(
        name = name + "_test",
        size = size,
        srcs = [name + ".cc"],
        args = [native.package_name() + "/" + corpus],
        data = native.glob([corpus + "/**"]) + data,
        env = env,
        tags = tags,
        **compiled_as_a_test({}, deps + ["//tests/fuzz:replay_main"])
    )
