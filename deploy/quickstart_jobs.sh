#!/bin/bash
# The part of quickstart.sh that runs beside its daemon.
#
#   quickstart_jobs.sh REPOSITORY BIN DATA [BATCHES]
#
# BIN is bazel-bin, DATA the binary CIFAR-10; $DATASETD_ADDRESS is the daemon.
# BATCHES is how many each job reads, where the device is slow.
set -euo pipefail
repository=$1 bin=$2 data=$3 batches=${4:-}
ctl=$bin/client/ctl/datasetctl
name=cifar10-train

export DATASETD_LIBRARY=$bin/client/c_api/libdatasetd.so
export PYTHONPATH=$repository/client/python PYTHONDONTWRITEBYTECODE=1

say() { printf '\n== %s\n' "$*"; }

# A field of the daemon's JSON: json 'expression of x' < JSON
json() {
  /usr/bin/python3 -c "import json, sys; x = json.load(sys.stdin); print($1)"
}

device=$("$ctl" --json status | json 'x["devices"][0]["name"]')
what=$("$ctl" --json status | json 'x["devices"][0]["description"]')
if [[ $device == cpu ]]; then
  say "The daemon serves from the host backend ($what):" \
    "no GPU here, or no CUDA toolkit at the build"
else
  say "The daemon serves from GPU $device ($what)"
fi

say "Loading $data"
"$ctl" load "$name" --format cifar10 --path "$data" --split train

# A training job where a torch knows the device; else one that only reads.
python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" - "$device" 2>/dev/null <<'PY'; then
import sys
import numpy, torch
sys.exit(0 if sys.argv[1] == "cpu" or torch.cuda.is_available() else 1)
PY
    python=$candidate
    break
  fi
done

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

say "Two jobs at once, with their own seed, transforms and batch size"
"$bin/client/examples/read_batches" "$data" --name "$name" --seed 1 \
  --batch_size 512 --transforms crop_flip --epochs 20 \
  ${batches:+--batches "$batches"} >"$out/cc" &
cc=$!
if [[ -n $python ]]; then
  "$python" "$repository/client/examples/train_cifar.py" "$data" \
    --name "$name" --seed 2 --batch_size 250 --transforms alternating \
    --batches "${batches:-60}" >"$out/py" &
else
  echo "(no torch here knows $device: the Python job reads and does not train)"
  /usr/bin/python3 "$repository/deploy/read_batches.py" "$name" --seed 2 \
    --batch_size 250 --batches "${batches:-1000}" >"$out/py" &
fi
py=$!

# Ask the daemon what it holds while both draw from it.
while kill -0 "$cc" 2>/dev/null && kill -0 "$py" 2>/dev/null; do
  "$ctl" --json datasets "$name" >"$out/new"
  if [[ $(json 'x["num_feeds"]' <"$out/new") -ge 2 ]]; then
    "$ctl" --json status >"$out/status"
    mv "$out/new" "$out/dataset"
    break
  fi
  sleep 0.05
done
wait "$cc"
wait "$py"
cat "$out/cc" "$out/py"

say "The daemon, while both ran"
if [[ ! -e $out/dataset ]]; then
  echo "one job had ended before the other began; the dataset:"
  "$ctl" --json datasets "$name" >"$out/dataset"
  "$ctl" --json status >"$out/status"
fi
echo "resident: $(json '"{} bytes of samples, held once for {} feeds".format(
  x["resident_bytes"], x["num_feeds"])' <"$out/dataset")"
echo "slabs:    $(json '"{} bytes of batches made ahead, all feeds".format(
  sum(int(d["slab_bytes"]) for d in x["devices"]))' <"$out/status")"

say "What the transforms do"
"$ctl" preview "$name" --output augmented.png --transforms crop-flip --seed 1
