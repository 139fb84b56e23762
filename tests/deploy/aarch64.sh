#!/bin/bash
# Builds the wheel for aarch64 and runs it in an emulator, qemu: pip installs it, the
# daemon starts, and the digest of 2,000 augmented samples is that of this machine's
# build.
#
#   tests/deploy/aarch64.sh
#
# As root, on x86-64. Needs debootstrap and a mirror of Debian's. qemu, which is Debian
# 13's, and Debian's Python for aarch64 stay in $XDG_CACHE_HOME/datasetd-build/roots
# for the next time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

if [[ $EUID -ne 0 ]]; then
  echo "aarch64.sh: needs root, for debootstrap" >&2
  exit 1
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}
roots=$cache/datasetd-build/roots
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$roots"

# Debian 12's, 7.2, does not know openat2.
qemu=$roots/qemu-aarch64
if [[ ! -x $qemu ]]; then
  mkdir -p "$work/apt/lists/partial"
  # shellcheck disable=SC2016  # apt-get's words
  mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | head -1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
    >"$work/apt/sources.list"
  apt() {
    (cd "$work/apt" && apt-get -qq -o "Dir::Etc::SourceList=$work/apt/sources.list" \
      -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/apt/lists" \
      -o APT::Sandbox::User= "$@")
  }
  apt update
  apt download qemu-user
  dpkg-deb --fsys-tarfile "$work"/apt/qemu-user_*.deb |
    tar x -C "$work" ./usr/bin/qemu-aarch64
  mv "$work/usr/bin/qemu-aarch64" "$qemu"
fi

# Packages are unpacked and not configured, which would take as long as all the rest.
root=$roots/bookworm-arm64
if [[ ! -d $root ]]; then
  debootstrap --foreign --arch=arm64 --variant=minbase \
    --include=python3-numpy,python3-pip-whl bookworm "$work/root"
  for package in "$work"/root/var/cache/apt/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
  done
  rm -r "$work/root/var/cache/apt/archives"
  mv "$work/root" "$root"
fi

deploy/install_deps.sh --aarch64
# Bazel looks for the libraries when it starts.
bazel shutdown
job=tests/deploy/source_build_job.py
bazel build "--disk_cache=$cache/datasetd-bazel" //server:datasetd //client/c_api:libdatasetd.so
expected=$(DATASETD_DAEMON=bazel-bin/server/datasetd PYTHONPATH=client/python \
  DATASETD_LIBRARY=bazel-bin/client/c_api/libdatasetd.so /usr/bin/python3 "$job")

bazel build "--disk_cache=$cache/datasetd-bazel" --config=aarch64 //deploy:wheel
wheel=(bazel-out/aarch64-opt/bin/deploy/datasetd-*-manylinux_2_28_aarch64.whl)
# A program of aarch64 starts no other; a script does. The daemon gets the loader and
# glibc alone: qemu would show it the other folders of the root, too.
mkdir "$work/glibc"
ln -s "$root/lib" "$work/glibc/lib"
cat >"$work/datasetd" <<SCRIPT
#!/bin/sh
exec "$qemu" -L "$work/glibc" "$work/installed/datasetd/bin/datasetd" "\$@"
SCRIPT
chmod +x "$work/datasetd"
libraries=$root/usr/lib/aarch64-linux-gnu
# python PATH ARGUMENTS...: with PATH as PYTHONPATH.
python() {
  PYTHONPATH=$1 PYTHONHOME=$root/usr "$qemu" -L "$root" \
    -E "LD_LIBRARY_PATH=$libraries/blas:$libraries/lapack" "$root/usr/bin/python3" "${@:2}"
}
python "$(echo "$root"/usr/share/python-wheels/pip-*.whl)" -m pip install --quiet \
  --no-index --no-compile --root-user-action=ignore --disable-pip-version-check \
  --target "$work/installed" "${wheel[0]}"
start=$SECONDS
actual=$(DATASETD_DAEMON=$work/datasetd \
  python "$work/installed:$root/usr/lib/python3/dist-packages" "$job")
echo "here: $expected"
echo "aarch64: $actual, $((SECONDS - start)) s under $("$qemu" --version | head -1)"
[[ $expected =~ ^[0-9a-f]{64}$ && $actual == "$expected" ]]
