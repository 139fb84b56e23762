#!/bin/sh
# Installs the packages of Debian 12, or 13 (--build), that the build, the tests and
# the examples need. Changes nothing, and says nothing, when all are there.
#
#   deploy/install_deps.sh [--build] [--aarch64] [--check | --list]
#
#   --build  of the daemon's build and of deploy/quickstart.sh only
#   --aarch64  what `bazel build --config=aarch64` needs, too: a compiler for it, and
#              the libraries, which are unpacked and not installed
#   --check  installs nothing; names what is missing; ends with 1 if something is
#   --list   names the packages
#
# As root, or with sudo. The CUDA toolkit is not among them: with one in
# $CUDA_HOME, /usr/local/cuda or on PATH, the build has the CUDA backend.
#
# These come into $XDG_CACHE_HOME/datasetd-build, ~/.cache by default: the sources of
# those Debian packages that release, wheel and .deb are compiled from (not with
# --build); beside a toolkit of CUDA 13, the ptxas of CUDA 12, by which the kernels
# run on the drivers of CUDA 12, too; and the libraries of --aarch64.
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
libraries="
  libabsl-dev
  libarchive-dev
  libbenchmark-dev
  libcli11-dev
  libdlpack-dev
  libgtest-dev libgmock-dev
  libgrpc++-dev
  libhwy-dev
  libjpeg62-turbo-dev
  nlohmann-json3-dev
  libpng-dev
  libprotobuf-dev
  libspdlog-dev libfmt-dev
  libxxhash-dev
  libyaml-cpp-dev
  prometheus-cpp-dev
  zlib1g-dev
"
# BLAKE3's are sources; the compilers run here.
packages="$packages $libraries librust-blake3-dev protobuf-compiler protobuf-compiler-grpc"
# Tests: clang compiles them, and the fuzzers; clang-format, clang-tidy, codespell
# and shellcheck are for tests/lint.sh, the Python packages for /usr/bin/python3.
# prometheus has promtool.
tests="
  chromium clang clang-format clang-tidy cmake codespell debootstrap
  libclang-rt-14-dev libjemalloc2 lintian man-db mypy pkg-config prometheus
  python3-h5py python3-lmdb
  python3-pandas python3-pil python3-pytest python3-soundfile
  python3-torchvision python3-tqdm python3-venv shellcheck systemd
"

# Those that are compiled here: see debian_source in WORKSPACE.
sourced="libabsl-dev libprotobuf-dev prometheus-cpp-dev"

if [ "${1:-}" = --build ]; then
  shift
  sourced=
else
  packages="$packages $tests"
fi
sysroot=
if [ "${1:-}" = --aarch64 ]; then
  shift
  sysroot=arm64
  packages="$packages g++-aarch64-linux-gnu"
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
    echo "usage: deploy/install_deps.sh [--build] [--aarch64] [--check | --list]" >&2
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

# Makes $work, and in it a list of where the packages come from, as FORM.
list_origins() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial"
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$key" ] && key="[signed-by=$key]" || key=
  apt-get indextargets --format "$1 $key \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
    'Identifier: Packages' 'Origin: Debian' | sort -u >"$work/sources.list"
}

apt_own() {
  apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$work/lists" -o APT::Sandbox::User= -o DPkg::Lock::Timeout=300 "$@"
}

# Fetches and unpacks SOURCE_VERSION... from where the packages come from.
fetch_sources() {
  list_origins deb-src
  mkdir -p "$build/sources"
  for source in "$@"; do
    (cd "$work" &&
      if [ ! -e updated ]; then apt_own update && touch updated; fi &&
      apt_own source --download-only "${source%%_*}=${source#*_}" &&
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

# Those that sources or compilers here must fit, with their versions.
fitting_versions() {
  dpkg-query -W -f '${Package} ${source:Version}\n' \
    libabsl-dev libgrpc++-dev libprotobuf-dev prometheus-cpp-dev 2>/dev/null | sort -u
}

misses_sysroot() {
  [ -n "$sysroot" ] && [ "$(fitting_versions)" != \
    "$(cat "$build/sysroots/$sysroot/versions" 2>/dev/null)" ]
}

apt_sysroot() {
  apt_own -o "APT::Architecture=$sysroot" -o "APT::Architectures=$sysroot" \
    -o "Dir::State=$work" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work" "$@"
}

# Fetches the libraries and what they depend on, and unpacks them.
fetch_sysroot() {
  list_origins deb
  mkdir -p "$build/sysroots" "$work/archives/partial" "$work/unpacked"
  : >"$work/status"
  # shellcheck disable=SC2086
  { apt_sysroot update &&
    apt_sysroot install --yes --no-install-recommends --download-only $libraries; } \
    >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    echo "install_deps: apt-get cannot fetch the libraries for $sysroot" >&2
    return 1
  }
  fitting_versions >"$work/unpacked/versions"
  while read -r package version; do
    # shellcheck disable=SC2016
    fetched=$(dpkg-deb -W --showformat '${source:Version}' "$work/archives/${package}"_*.deb)
    if [ "$fetched" != "$version" ]; then
      echo "install_deps: $package for $sysroot is $fetched, and $version is installed;" \
        "upgrade the older one" >&2
      return 1
    fi
  done <"$work/unpacked/versions"
  for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$work/unpacked" || return 1
  done
  # Other versions, other paths: see debian_sysroot in third_party/bazel.
  folder=${sysroot}_$(cd "$work/archives" && echo ./*.deb | sha256sum | cut -c 1-16)
  rm -rf "$build/sysroots/$sysroot"*
  mv "$work/unpacked" "$build/sysroots/$folder"
  chmod 755 "$build/sysroots/$folder"
  ln -s "$folder" "$build/sysroots/$sysroot"
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
  misses_sysroot && wanted="${wanted}libraries_of_$sysroot "
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
if misses_sysroot; then
  echo "install_deps: fetching the libraries for $sysroot"
  fetch_sysroot
fi
if misses_ptxas; then
  echo "install_deps: fetching the ptxas of CUDA 12"
  fetch_ptxas ||
    echo "install_deps: without it the kernels need a driver of CUDA 13 (R580)" >&2
fi
