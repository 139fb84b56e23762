#!/bin/sh
# Installs the Debian 12 packages that the build, the tests and the examples
# need. Changes nothing, and says nothing, when all are there.
#
#   deploy/install_deps.sh [--build] [--check | --list]
#
#   --build  of the build and of deploy/quickstart.sh only
#   --check  installs nothing; names what is missing; ends with 1 if something is
#   --list   names the packages
#
# As root, or with sudo. The CUDA toolkit is not among them: with one in
# $CUDA_HOME, /usr/local/cuda or on PATH, the build has the CUDA backend.
set -eu

# Build: Bazel, what WORKSPACE names, a compiler. Quick start: torch.
packages="
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
  bazel-skylib dpkg-dev g++ patchelf python3 python3-numpy python3-torch unzip
  zip
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
# Tests: clang compiles them, and the fuzzers; clang-format, clang-tidy, codespell
# and shellcheck are for tests/lint.sh, the Python packages for /usr/bin/python3.
# prometheus has promtool.
tests="
  chromium clang clang-format clang-tidy cmake codespell libclang-rt-14-dev
  lintian man-db mypy pkg-config prometheus python3-h5py python3-lmdb
  python3-pandas python3-pil python3-pytest python3-torchvision python3-tqdm
  python3-venv shellcheck systemd
"

if [ "${1:-}" = --build ]; then
  shift
else
  packages="$packages $tests"
fi

missing() {
  for package in $packages; do
    # A line for each architecture.
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null |
      grep -qx installed || printf '%s ' "$package"
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
    echo "usage: deploy/install_deps.sh [--build] [--check | --list]" >&2
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
case " $wanted" in
  *" prometheus "*)
    # Debian starts the server, which everybody may reach.
    [ ! -d /run/systemd/system ] || $as_root systemctl disable --quiet --now prometheus
    ;;
esac
left=$(missing)
if [ -n "$left" ]; then
  echo "install_deps: still missing: $left" >&2
  exit 1
fi
# shellcheck disable=SC2086
set -- $wanted
echo "install_deps: installed $# packages"
