#!/bin/sh
# Installs the Debian 12 packages that the build, the tests and the examples
# need. Changes nothing, and says nothing, when all are there.
#
#   deploy/install_deps.sh [--check | --list]
#
#   --check  installs nothing; names what is missing; ends with 1 if something is
#   --list   names the packages
#
# As root, or with sudo. The CUDA toolkit is not among them: with one in
# $CUDA_HOME, /usr/local/cuda or on PATH, the build has the CUDA backend.
set -eu

# Build: Bazel, what WORKSPACE names, compilers. clang is for the fuzzers,
# clang-format, clang-tidy, codespell and shellcheck for tests/lint.sh.
packages="
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
  bazel-skylib clang clang-format clang-tidy codespell dpkg-dev g++
  libclang-rt-14-dev patchelf shellcheck unzip zip
"
# Libraries: one line for each folder of third_party.
packages="$packages
  libabsl-dev
  libarchive-dev
  libbenchmark-dev
  librust-blake3-dev
  libcli11-dev
  libdlpack-dev
  libgtest-dev libgmock-dev
  libgrpc++-dev protobuf-compiler-grpc
  libhwy-dev
  libjpeg62-turbo-dev
  nlohmann-json3-dev
  libpng-dev
  libprotobuf-dev protobuf-compiler
  libspdlog-dev libfmt-dev
  libxxhash-dev
  libyaml-cpp-dev
  prometheus-cpp-dev
  zlib1g-dev
"
# Tests, examples and the Python package, for /usr/bin/python3. Of prometheus it
# is promtool; Debian's package starts the server, too.
packages="$packages
  chromium cmake lintian man-db mypy pkg-config prometheus python3 python3-h5py
  python3-lmdb python3-numpy python3-pandas python3-pil python3-pytest
  python3-torch python3-torchvision python3-tqdm python3-venv systemd
"

missing() {
  for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=
    [ "$state" = installed ] || printf '%s ' "$package"
  done
}

case "${1:-}" in
  --list)
    # shellcheck disable=SC2086
    printf '%s\n' $packages
    exit 0
    ;;
  --check | "") ;;
  *)
    echo "usage: deploy/install_deps.sh [--check | --list]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps: this system has no apt; install what corresponds to:" >&2
  # shellcheck disable=SC2086
  printf '  %s\n' $packages >&2
  exit 1
fi

wanted=$(missing)
[ -n "$wanted" ] || exit 0
if [ "${1:-}" = --check ]; then
  echo "install_deps: missing: $wanted"
  exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: run as root, or install sudo; missing: $wanted" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "install_deps: installing $wanted"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # shellcheck disable=SC2086
  if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq \
    -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "install_deps: apt-get $* failed; the lines above say why" >&2
    exit 1
  fi
}
apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends $wanted
left=$(missing)
if [ -n "$left" ]; then
  echo "install_deps: still missing: $left" >&2
  exit 1
fi
# shellcheck disable=SC2086
set -- $wanted
echo "install_deps: installed $# packages"
