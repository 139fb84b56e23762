#!/bin/bash
# From a fresh Debian 12 to two jobs that draw their own batches from one
# resident CIFAR-10.
#
#   deploy/quickstart.sh [--emulated_gpu] [DIR]
#
# Installs what is missing, builds, starts a private daemon (on the GPU if there
# is one, else on the host backend), loads CIFAR-10 (the binary version) from
# DIR or a made-up set of the same format and size, runs a C++ and a Python job
# at once, says how fast they were and what is resident, and leaves
# augmented.png here.
#
# --emulated_gpu: without a GPU, daemon and jobs run on the one of the tests,
# which executes the kernels' PTX, thousands of times slower than a GPU. The
# build needs the CUDA toolkit; see docs/emulated-gpu.md.
set -euo pipefail

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${XDG_CACHE_HOME:-$HOME/.cache}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }

emulated=
if [[ ${1:-} == --emulated_gpu ]]; then
  emulated=yes
  shift
fi
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

if [[ -n $emulated ]]; then
  # The GPU of the tests is compiled as they are.
  "$repository/deploy/install_deps.sh"
else
  "$repository/deploy/install_deps.sh" --build
fi

targets=(//server:datasetd //client/ctl:datasetctl
  //client/c_api:libdatasetd.so //client/examples:read_batches)
if [[ -n $emulated ]]; then
  nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
  if [[ ! -x $nvcc || ${DATASETD_NO_CUDA:-0} == 1 ]]; then
    echo "quickstart: --emulated_gpu runs the kernels that nvcc compiles:" \
      "install the CUDA toolkit, or name it in CUDA_HOME" >&2
    exit 2
  fi
  targets+=(//tests/emulated_gpu/driver:libcuda.so.1)
fi

say "Building"
(cd "$repository" &&
  bazel build "--disk_cache=$cache/datasetd-bazel" --ui_event_filters=-info \
    "${targets[@]}")

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
options=()
batches=
if [[ -n $emulated ]]; then
  export LD_LIBRARY_PATH=$bin/tests/emulated_gpu/driver
  export DATASETD_EMULATED_GPU_DEVICES=1
  options=(--device cuda:0)
  batches=4
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$bin/client/ctl/datasetctl" run --daemon "$bin/server/datasetd" \
  --daemon_log "$log" "${options[@]}" -- \
  "$repository/deploy/quickstart_jobs.sh" "$repository" "$bin" "$data" \
  $batches ||
  status=$?
if [[ $status -ne 0 ]]; then
  echo "quickstart: failed with $status; the end of the daemon's log:" >&2
  tail -20 "$log" >&2
fi
exit "$status"
