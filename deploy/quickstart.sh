#!/bin/bash
# From a fresh Debian 12 to two jobs that draw their own batches from one
# resident CIFAR-10.
#
#   deploy/quickstart.sh [DIR]
#
# Installs what is missing, builds, starts a private daemon (on the GPU if there
# is one, else on the host backend), loads CIFAR-10 (the binary version) from
# DIR or a made-up set of the same format and size, runs a C++ and a Python job
# at once, says how fast they were and what is resident, and leaves
# augmented.png here.
set -euo pipefail

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${XDG_CACHE_HOME:-$HOME/.cache}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }

if [[ $# -gt 1 || ${1:-} == -* ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  [[ ${1:-} == -h || ${1:-} == --help ]] && exit 0
  exit 2
fi
if [[ $# -eq 1 ]]; then
  if [[ ! -d $1 ]]; then
    echo "quickstart: $1 is no directory; give the one with data_batch_1.bin," \
      "or none" >&2
    exit 2
  fi
  data=$(cd "$1" && pwd)
else
  data=
fi

"$repository/deploy/install_deps.sh"

say "Building"
(cd "$repository" &&
  bazel build "--disk_cache=$cache/datasetd-bazel" --ui_event_filters=-info \
    //server:datasetd //client/ctl:datasetctl //client:libdatasetd.so \
    //client/examples:read_batches)

if [[ -z $data ]]; then
  data=$cache/datasetd-quickstart/cifar10-made-up
  # The names come last.
  if [[ ! -e $data/batches.meta.txt ]]; then
    say "Making data in the format and size of CIFAR-10"
    /usr/bin/python3 "$repository/deploy/make_cifar10.py" "$data"
  fi
fi

# The output folder by its real name: a second build may move bazel-bin.
bin=$(cd "$repository/bazel-bin" && pwd -P)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$bin/client/ctl/datasetctl" run --daemon "$bin/server/datasetd" \
  --daemon_log "$log" -- \
  "$repository/deploy/quickstart_jobs.sh" "$repository" "$bin" "$data" ||
  status=$?
if [[ $status -ne 0 ]]; then
  echo "quickstart: failed with $status; the end of the daemon's log:" >&2
  tail -20 "$log" >&2
fi
exit "$status"
