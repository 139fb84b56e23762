#!/bin/bash
# Builds the libFuzzer harnesses with clang and runs each for a while.
#
#   tests/fuzz/run.sh [SECONDS [HARNESS...]]     all harnesses, each for
#                                                $DATASETD_FUZZ_SECONDS or 60
#
# Needs clang-14 and libclang-rt-14-dev. Builds in $DATASETD_FUZZ_DIR (default:
# a folder in the user's cache), where new inputs and findings stay too. Exits
# 1 if a harness found a fault or was not built.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-${DATASETD_FUZZ_SECONDS:-60}}
shift || true
harnesses=("$@")
if [[ ${#harnesses[@]} -eq 0 ]]; then
  harnesses=(cifar_reader image_codec image_csv_reader image_folder_reader
    join_reader mnist_reader npy_reader npy_header pushed_images raw_reader
    tokens_reader webdataset_reader config cache_entry manifest ring attach requests
    pipelines)
fi
out=${DATASETD_FUZZ_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/datasetd-fuzz}
mkdir -p "$out/gen"

# shellcheck disable=SC2054
flags=(-std=c++20 -O1 -g -fno-omit-frame-pointer -ffp-contract=off
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
  -DSPDLOG_COMPILED_LIB -DSPDLOG_SHARED_LIB -DSPDLOG_FMT_EXTERNAL
  -I. "-I$out/gen" -I/usr/share/cargo/registry/blake3-1.3.1/c)
# shellcheck disable=SC2054
libraries=(-Wl,--as-needed -larchive -ljpeg -lpng -lz -lyaml-cpp -lprotobuf
  -lspdlog -lfmt -lxxhash
  -labsl_raw_hash_set -labsl_hash
  -labsl_statusor -labsl_status -labsl_cord -labsl_str_format_internal
  -labsl_strings -labsl_synchronization -labsl_time -labsl_time_zone
  -labsl_base -labsl_bad_optional_access -labsl_throw_delegate
  -labsl_raw_logging_internal -lpthread)

# As third_party/blake3 builds it.
(
  cd "$out"
  clang -O2 -c /usr/share/cargo/registry/blake3-1.3.1/c/{blake3{,_dispatch,_portable}.c,*_x86-64_unix.S}
  ar rcs libblake3.a blake3*.o
)
libraries+=("$out/libblake3.a")

# Prints the object file of a source, compiled if it is older.
compile() {
  local object
  object=$out/$(tr / _ <<<"${1#"$out"/}").o
  if [[ ! -e $object || -n $(find "$1" server tests proto cuda \
    base -name '*.h' -newer "$object" -print -quit) || $1 -nt $object ]]; then
    clang++ "${flags[@]}" -c "$1" -o "$object" || return
  fi
  echo "$object"
}

protoc -Iproto -I/usr/include "--cpp_out=$out/gen" proto/datasetd/v1/*.proto

# The sources of a target of Bazel's, and what protoc made; but for those with a
# main, which libFuzzer has.
sources_of() {
  local files
  files=$(bazel query --ui_event_filters=-info,-debug \
    "kind('source file', deps($1))" 2>/dev/null)
  grep -E '^//(base|client|cuda|server|tests).*\.cc$' <<<"$files" |
    sed 's#^//##; s#:#/#' | xargs grep -L '^int main('
  grep -E '^//.*\.proto$' <<<"$files" |
    sed "s#^//proto:#$out/gen/#; s#proto\$#pb.cc#"
}

found=0
for harness in "${harnesses[@]}"; do
  corpus=corpus/$harness
  name=$harness
  case $harness in
    config | ring | attach)
      folder=$harness
      corpus=corpus
      ;;
    requests | pipelines)
      folder=$harness
      name=${harness%s}
      corpus=corpus
      ;;
    cache_entry | manifest) folder=stores ;;
    *) folder=readers ;;
  esac
  source=tests/fuzz/$folder/${name}_fuzz.cc
  corpus=tests/fuzz/$folder/$corpus
  target=//tests/fuzz/$folder:${name}_fuzz_test
  mapfile -t sources < <(sources_of "$target" | grep -v '_fuzz\.cc$')
  objects=()
  for file in "$source" "${sources[@]}"; do
    object=$(compile "$file") || break
    objects+=("$object")
  done
  if [[ ${#objects[@]} -le ${#sources[@]} ]] || ! clang++ -fsanitize=fuzzer,address,undefined "${objects[@]}" \
    "${libraries[@]}" -o "$out/$harness"; then
    echo "== $harness was not built"
    found=1
    continue
  fi
  mkdir -p "$out/corpus/$harness" "$out/findings"
  echo "== $harness, $seconds s"
  # The time limit is also for a fuzzer that hangs in reporting.
  if ! timeout -s KILL "$((seconds + 60))" \
    "$out/$harness" -max_total_time="$seconds" -max_len=16384 \
    -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
    "-artifact_prefix=$out/findings/$harness-" \
    "$out/corpus/$harness" "$corpus" 2>"$out/$harness.log"; then
    found=1
    tail -40 "$out/$harness.log"
    echo "== $harness found a fault: $out/findings"
  fi
  grep -E '^stat::(number_of_executed_units|peak_rss_mb)' \
    "$out/$harness.log" || true
done
exit "$found"
