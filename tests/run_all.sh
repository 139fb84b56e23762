#!/bin/bash
# Builds and runs the tests, and closes with the line `N passed, N failed`
# (`, N skipped` behind it where some were).
#
#   tests/run_all.sh [--full]
#
# Installs the Debian packages that are missing. Runs each test that is not tagged full
# once: those of files, readers and the attach protocol's messages under Address- and
# UBSanitizer, those of base, the attach protocol, feeds and the registry under
# ThreadSanitizer, the others without. Most code is compiled without optimization. Then
# checks the form of the sources (tests/lint.sh), whether the layers depend on each other
# as they may, and whether the documentation names files that are there. Every test case
# counts in every pass it ran in, and targets with skipped cases are named. Exits non-zero
# if anything failed, was not built, or ran no case.
#
#   --full  every target as it is released, and every test in its long form; each source
#           compiled by itself; all C++ tests under Address- and UBSanitizer, and the tests of
#           wrong, hostile and dying clients with a daemon under them; all tests with
#           threads under ThreadSanitizer; fuzzers; as root, the build from source in a
#           fresh Debian 13, and the wheel for aarch64 in an emulator
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

full=false
case "${1:-}" in
  "") ;;
  --full) full=true ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    [[ $1 == -h || $1 == --help ]] && exit 0
    exit 2
    ;;
esac

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${XDG_CACHE_HOME:-$HOME/.cache}/datasetd-bazel

if ! deploy/install_deps.sh; then
  echo "0 passed, 1 failed"
  exit 1
fi

events=$(mktemp -d)
trap 'rm -rf "$events"' EXIT
passes=()

# pass NAME BAZEL_ARGUMENTS...: runs tests; their events go to $events/NAME.
pass() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s: bazel test %s\n' "$name" "$*"
  bazel test --keep_going "--disk_cache=$cache" --ui_event_filters=-info,-debug \
    "--build_event_json_file=$events/$name" "$@"
  local code=$?
  # 3: a test failed, 4: there was none; the events say so. The rest says that
  # not all was built.
  if [[ $code -ne 0 && $code -ne 3 && $code -ne 4 ]]; then
    echo "bazel ended with $code" >>"$events/$name.broken"
  fi
  if [[ -f $events/$name ]]; then
    /usr/bin/python3 tests/count_cases.py --reduce "$events/$name"
  fi
  echo "== $name: $((SECONDS - start)) s"
  passes+=("$name")
}

# Beside the tests, which leave a processor idle now and then.
tests/lint.sh "$events/lint" >"$events/lint.log" 2>&1 &

if $full; then
  # Some tests do less without it.
  thorough=(--test_env=DATASETD_TEST_FULL=1)
  pass all "${thorough[@]}" --build_tag_filters=-short --test_tag_filters=-short //...
  printf '\n== apart: each source by itself\n'
  if bazel build "--disk_cache=$cache" --define=apart=true --copt=-O0 \
      //server/... //client/... //cuda/... //tests/emulated_gpu/{driver,ptx}; then
    echo '{"case": "apart", "result": "passed"}' >"$events/apart"
  else
    echo '{"case": "apart", "result": "failed"}' >"$events/apart"
  fi
  passes+=(apart)
  # Sanitized tests take several times as long as their sizes say.
  slow=--test_timeout=300,900,3600,7200
  # Python is not instrumented, and cannot load what is.
  pass asan "${thorough[@]}" "$slow" --config=asan --build_tests_only \
    --test_lang_filters=cc //tests/...

  # The daemon itself under both sanitizers, driven by those tests of processes in
  # which clients send what is wrong, are hostile, fork, die or are many. Their
  # Python and client are as ever.
  sanitized=$events/datasetd
  options=quarantine_size_mb=4:detect_leaks=1:abort_on_error=1
  # As in .bazelrc, which says why.
  options+=:handle_sigbus=0:intercept_tls_get_addr=0
  tests=(bad_input_test closed_test detach_test fork_test hostile_attach_test
    hostile_flood_test hostile_order_test hostile_ring_test kill_storm_test
    kill_test many_feeds_test)
  printf '\n== asan_daemon: bazel build --config=asan //server:datasetd\n'
  # Kernels are compiled for one GPU only: this daemon runs on the host.
  if bazel build "--disk_cache=$cache" --config=asan --define=cuda_archs=90 \
      //server:datasetd &&
    cp bazel-bin/server/datasetd "$sanitized"; then
    pass asan_daemon "$slow" "--test_env=DATASETD_TEST_DAEMON=$sanitized" \
      "--test_env=ASAN_OPTIONS=$options" \
      --test_env=UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
      "${tests[@]/#///tests/integration:}"
  else
    echo "//server:datasetd was not built" >"$events/asan_daemon.broken"
    passes+=(asan_daemon)
  fi

  pass tsan "$slow" --config=tsan --build_tests_only --build_tag_filters=tsan \
    //tests/...
else
  # Code that reads foreign data, or that threads share, runs under a sanitizer only.
  # None links gRPC, whose build alone would take longer than these.
  once=-full,-sanitized
  pass all --config=quick --build_tests_only "--build_tag_filters=$once" \
    "--test_tag_filters=$once" //...
fi

printf '\n== lint\n'
wait
cat "$events/lint.log"
passes+=(lint)

printf '\n== layers\n'
tests/layers.py "$events/layers"
passes+=(layers)

printf '\n== docs\n'
/usr/bin/python3 tests/docs/links.py "$events/docs"
passes+=(docs)

# system NAME SCRIPT: a script of tests/deploy that needs root.
system() {
  printf '\n== %s: %s\n' "$1" "$2"
  if "$2"; then
    echo "{\"case\": \"$1\", \"result\": \"passed\"}" >"$events/$1"
  else
    echo "{\"case\": \"$1\", \"result\": \"failed\"}" >"$events/$1"
  fi
  passes+=("$1")
}
if $full && [[ $EUID -eq 0 ]]; then
  system debian13 tests/deploy/source_build.sh
  system aarch64 tests/deploy/aarch64.sh
fi

if $full && [[ -x tests/fuzz/run.sh ]]; then
  printf '\n== fuzz\n'
  if tests/fuzz/run.sh; then
    echo '{"case": "fuzz", "result": "passed"}' >"$events/fuzz"
  else
    echo '{"case": "fuzz", "result": "failed"}' >"$events/fuzz"
  fi
  passes+=(fuzz)
fi

echo
/usr/bin/python3 tests/count_cases.py "$events" "${passes[@]}"
