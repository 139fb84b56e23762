#!/bin/sh
# Runs a command once per GPU of each node, by torchrun, with one daemon per node.
#
#   NODES=2 RANKS=8 HEAD=node0:29400 torchrun.sh COMMAND...
#
# Run it on every node. If a rank fails, torchrun starts all of them again, once
# the nodes have met, and they find the daemon with their datasets.
set -eu
exec ${TORCHRUN:-torchrun} --nnodes="${NODES:-1}" --nproc_per_node="${RANKS:-1}" \
  --max_restarts="${RESTARTS:-3}" --rdzv_backend=c10d \
  --rdzv_endpoint="${HEAD:-localhost:29400}" --rdzv_id="${JOB:-job}" \
  --no_python python3 -m datasetd run --per-node --linger="${LINGER:-60}" -- "$@"
