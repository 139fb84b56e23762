#!/bin/bash
# Builds the daemon and the clients from the sources in a fresh Debian 13, without
# CUDA, and compares the digest of 2,000 augmented samples with that of the build of
# this machine.
#
#   tests/deploy/source_build.sh
#
# As root. Needs debootstrap and a mirror of Debian's. The new system stays in
# $XDG_CACHE_HOME/datasetd-build/roots, with its compiled objects, for the next time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

if [[ $EUID -ne 0 ]]; then
  echo "source_build.sh: needs root, to make a system" >&2
  exit 1
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}
root=$cache/datasetd-build/roots/trixie-build
if [[ ! -d $root ]]; then
  mkdir -p "${root%/*}"
  new=$(mktemp -d -p "${root%/*}")
  chmod 755 "$new"
  debootstrap --variant=minbase --include=ca-certificates,python3 trixie "$new"
  mv "$new" "$root"
fi
rm -rf "$root/src"
mkdir "$root/src"
git ls-files -z | tar --null -T - -c | tar x -C "$root/src"

targets=(//server:datasetd //client/c_api:libdatasetd.so //client/ctl:datasetctl)
# job DIRECTORY: prints the digest of the batches of the build there.
# shellcheck disable=SC2016  # expanded by the shells that run these
job='
  cd "$1" && DATASETD_DAEMON=bazel-bin/server/datasetd \
    DATASETD_LIBRARY=bazel-bin/client/c_api/libdatasetd.so \
    PYTHONPATH=client/python /usr/bin/python3 tests/deploy/source_build_job.py'

bazel build "--disk_cache=$cache/datasetd-bazel" "${targets[@]}"
expected=$(sh -c "$job" sh "$PWD")
# /proc and /dev go with the mount namespace.
# shellcheck disable=SC2016
actual=$(unshare --mount --pid --fork --kill-child sh -c '
  mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive DATASETD_NO_CUDA=1 /bin/sh -c "
      set -e
      cd /src
      { apt-get -qq update
        deploy/install_deps.sh --build
        bazel build --disk_cache=/root/.cache/datasetd-bazel $3; } >&2
      bazel-bin/client/ctl/datasetctl --version >&2
      $2" sh /src' sh "$root" "$job" "${targets[*]}")

echo "here: $expected"
echo "there: $actual"
[[ $expected =~ ^[0-9a-f]{64}$ && $actual == "$expected" ]]
