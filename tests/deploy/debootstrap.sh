#!/bin/bash
# Installs the Debian package into a fresh Debian 12, which systemd boots in a
# container, and lives with it: members and strangers, upgrades under a
# running job, removal, purge. installed.sh is what runs inside.
#
#   tests/deploy/debootstrap.sh DEB [LOG]
#
# As root. Needs debootstrap, systemd-container, python3-numpy, python3-pil and a
# mirror of Debian's; so it is run by hand. Ends with 0 if every step did what it should; LOG gets what
# the steps said.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
if [[ $EUID -ne 0 ]]; then
  echo "debootstrap.sh: needs root, to make a system and to boot it" >&2
  exit 1
fi
for program in debootstrap systemd-nspawn; do
  if ! command -v "$program" >/dev/null; then
    echo "debootstrap.sh: no $program: apt-get install debootstrap" \
      "systemd-container" >&2
    exit 1
  fi
done
deb=$(realpath "$1")
log=$(realpath "${2:-/dev/stdout}")
here=$(dirname "$(realpath "$0")")

work=$(mktemp -d /var/tmp/datasetd-root.XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root
packages=dbus,init-system-helpers,libpam-systemd,python3,systemd,systemd-sysv
debootstrap --variant=minbase --include=$packages bookworm "$root" \
  >"$work/debootstrap.log" ||
  { tail -5 "$work/debootstrap.log" >&2; exit 1; }

# The same package, as the next version.
dpkg-deb -R "$deb" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
mkdir "$root/srv/check"
dpkg-deb --root-owner-group -Zgzip --build "$work/next" \
  "$root/srv/check/next.deb" >/dev/null
# And as the one after that, with another socket.
sed -i 's/^Version: .*/&+last/' "$work/next/DEBIAN/control"
sed -i 's/^Backlog=.*/Backlog=512/' \
  "$work/next/lib/systemd/system/datasetd.socket"
dpkg-deb --root-owner-group -Zgzip --build "$work/next" \
  "$root/srv/check/last.deb" >/dev/null
cp "$deb" "$root/srv/check/first.deb"
cp "$here/installed.sh" "$here/installed_job.py" "$root/srv/check/"
# Files that Python's own library does not write.
mkdir -p "$root/srv/data/images/one" "$root/srv/data/images/two"
/usr/bin/python3 - "$root/srv/data" <<'PYTHON'
import sys

import numpy
import PIL.Image

root = sys.argv[1]
pixels = numpy.arange(20 * 8 * 8 * 3, dtype=numpy.uint32).astype(numpy.uint8)
pixels = pixels.reshape(20, 8, 8, 3)
numpy.savez(f"{root}/images.npz", image=pixels,
            label=numpy.arange(20, dtype=numpy.int64))
for i, image in enumerate(pixels):
    folder = "one" if i % 2 else "two"
    suffix = "png" if i % 4 < 2 else "jpg"
    PIL.Image.fromarray(image).save(f"{root}/images/{folder}/{i}.{suffix}")
PYTHON

cat >"$root/etc/systemd/system/check.service" <<'UNIT'
[Unit]
Description=Check of datasetd's package

[Service]
ExecStart=/bin/bash /srv/check/installed.sh
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >/srv/check/code'
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=file:/srv/check/log
StandardError=inherit
UNIT
ln -s ../check.service \
  "$root/etc/systemd/system/multi-user.target.wants/check.service"

# With BPF, by which systemd keeps a service to its devices and addresses.
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout --kill-after=10 900 \
  systemd-nspawn --quiet --boot --register=no --system-call-filter=bpf \
  --keep-unit --console=read-only --machine=datasetd-check \
  --directory="$root" </dev/null >"$work/console.log" 2>&1 ||
  { tail -20 "$work/console.log" >&2; exit 1; }
cat "$root/srv/check/log" >"$log"
code=$(cat "$root/srv/check/code")
if [[ $code != 0 ]]; then
  echo "debootstrap.sh: a step failed; the end of the log tells which" >&2
  tail -20 "$root/srv/check/log" >&2
  exit 1
fi
