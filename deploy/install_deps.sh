#!/bin/sh
# Installs the packages of Debian 12, or 13 (--build), that the build, the tests and
# the examples need. Changes nothing, and says nothing, when all are there.
#
#   deploy/install_deps.sh [--build] [--check | --list]
#
#   --build  of the daemon's build and of deploy/quickstart.sh only
#   --check  installs nothing; names what is missing; ends with 1 if something is
#   --list   names the packages
#
# As root, or with sudo. The CUDA toolkit is not among them: with one in
# $CUDA_HOME, /usr/local/cuda or on PATH, the build has the CUDA backend.
#
# Two things come into $XDG_CACHE_HOME/datasetd-build, ~/.cache by default: the
# sources of those Debian packages that release, wheel and .deb are compiled from
# (not with --build); and, beside a toolkit of CUDA 13, the ptxas of CUDA 12, by
# which the kernels run on the drivers of CUDA 12, too.
set -eu

# Build: Bazel, what WORKSPACE names, a compiler. Quick start: torch.
packages="
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
  bazel-skylib dpkg-dev g++ python3 python3-numpy python3-pip python3-torch
  unzip zip
"
# shellcheck disable=SC1091
debian=$(. /etc/os-release 2>/dev/null && echo "${VERSION_ID:-}") || debian=
# Its binutils have no gold any more.
[ "$debian" != 13 ] || packages="$packages binutils-gold"
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
  chromium clang clang-format clang-tidy cmake codespell debootstrap
  libclang-rt-14-dev libjemalloc2 lintian man-db mypy pkg-config prometheus
  python3-h5py python3-lmdb
  python3-pandas python3-pil python3-pytest python3-torchvision python3-tqdm
  python3-venv shellcheck systemd
"

# Those that are compiled here: see debian_source in WORKSPACE.
sourced="libabsl-dev libprotobuf-dev prometheus-cpp-dev"

if [ "${1:-}" = --build ]; then
  shift
  sourced=
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

# The folders of the sources: source package and version of what is installed.
missing_sources() {
  for package in $sourced; do
    source=$(dpkg-query -W -f '${source:Package}_${source:Version}' "$package" 2>/dev/null) ||
      source=$package
    [ -d "$build/sources/$source" ] || printf '%s ' "$source"
  done
}

# Fetches and unpacks SOURCE_VERSION... from where the packages come from.
fetch_sources() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$build/sources" "$work/lists/partial"
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$key" ] && key="[signed-by=$key]" || key=
  apt-get indextargets --format "deb-src $key \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
    'Identifier: Packages' 'Origin: Debian' | sort -u >"$work/sources.list"
  for source in "$@"; do
    (cd "$work" &&
      if [ ! -e updated ]; then apt_source update && touch updated; fi &&
      apt_source source --download-only "${source%%_*}=${source#*_}" &&
      dpkg-source --no-check -x "${source%%_*}"_*.dsc unpacked &&
      # Those of its own would hide its folders from third_party/*/source.BUILD.
      find unpacked \( -name BUILD -o -name BUILD.bazel \) -type f -delete) >"$work/log" 2>&1 || {
      cat "$work/log" >&2
      echo "install_deps: no source of $source; if there is a newer version, upgrade its -dev package" >&2
      return 1
    }
    mv "$work/unpacked" "$build/sources/$source"
  done
}

apt_source() {
  apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$work/lists" -o APT::Sandbox::User= -o DPkg::Lock::Timeout=300 "$@"
}

# True if the toolkit, found as third_party/cuda/toolkit.bzl does, wants the ptxas
# of CUDA 12.
misses_ptxas() {
  [ "${DATASETD_NO_CUDA:-}" != 1 ] && [ -z "${CUDA12_PTXAS:-}" ] &&
    [ ! -e "$build/cuda12/ptxas" ] || return 1
  nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
  [ -x "$nvcc" ] || nvcc=$(command -v nvcc) || return 1
  "$nvcc" --version | grep -Eq 'release (1[3-9]|[2-9][0-9])\.'
}

# NVIDIA publishes it with pip's packages; nothing else of the package is used.
fetch_ptxas() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$build/cuda12"
  echo "nvidia-cuda-nvcc-cu12==12.9.86" \
    "--hash=sha256:5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0" >"$work/wanted"
  if ! /usr/bin/python3 -m pip --quiet --disable-pip-version-check download --no-deps \
    --require-hashes --dest "$work" --requirement "$work/wanted" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    return 1
  fi
  unzip -qj "$work"/*.whl nvidia/cuda_nvcc/bin/ptxas -d "$work"
  chmod 755 "$work/ptxas"
  mv "$work/ptxas" "$build/cuda12/ptxas"
}

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
build=${XDG_CACHE_HOME:-$HOME/.cache}/datasetd-build
wanted=$(missing)
if [ "${1:-}" = --check ]; then
  wanted="$wanted$(missing_sources)"
  misses_ptxas && wanted="${wanted}ptxas "
  [ -n "$wanted" ] || exit 0
  echo "install_deps: missing: $wanted"
  exit 1
fi

if [ -n "$wanted" ]; then
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
fi

wanted=$(missing_sources)
if [ -n "$wanted" ]; then
  echo "install_deps: fetching the sources of $wanted"
  # shellcheck disable=SC2086
  fetch_sources $wanted
fi
if misses_ptxas; then
  echo "install_deps: fetching the ptxas of CUDA 12"
  fetch_ptxas ||
    echo "install_deps: without it the kernels need a driver of CUDA 13 (R580)" >&2
fi
