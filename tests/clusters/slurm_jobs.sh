#!/bin/bash
# Runs in slurm_world.sh: the jobs of slurm_test.py, each with its outcome.
#
#   slurm_jobs.sh EXAMPLES DATA
set -euo pipefail
examples=$1 data=$2
here=$PWD

# until_true SECONDS COMMAND...: waits for it.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= end)); then
      echo "not in time: $*" >&2
      exit 1
    fi
    read -rt 0.1 <> <(:) || :
  done
}
idle() {
  [[ $(sinfo -h -o %t -N | sort -u) == idle ]]
}
ended() {
  [[ -z $(squeue -h -j "$1" 2>/dev/null) ]] && idle
}
pending() {
  [[ $(squeue -h -o %T -j "$1") == PENDING ]]
}
lines() {
  [[ -f $1 ]] && (($(wc -l <"$1") >= $2))
}
daemons() {
  pgrep -cf -- --private=/tmp/datasetd- || :
}
no_daemons() {
  [[ $(daemons) == 0 ]]
}
no_directories() {
  [[ -z $(ls /run/datasetd-jobs) ]]
}

until_true 60 idle

# A job of two nodes, requeued in the middle of its second epoch.
mkdir requeued
export TRAINED=$here/requeued/trained
job=$(sbatch --parsable --output="$here/requeued/out" \
  "$examples/job.sbatch" /usr/bin/python3 "$here/held_train.py" \
  "$examples/train.py" \
  "$data" "$here/requeued/checkpoint" 2)
for rank in 0 1 2 3; do
  until_true 120 lines "$TRAINED.$rank" 11
done
daemons >requeued/daemons
scontrol requeue "$job"
until_true 60 pending "$job"
wc -l <"$TRAINED.0" >requeued/before
touch requeued/checkpoint.go
# Else it waits for two minutes.
scontrol update "JobId=$job" StartTime=now
until_true 240 ended "$job"
scontrol show job "$job" | grep -o 'Restarts=[0-9]*\|JobState=[A-Z]*' >requeued/state

# It goes on with one node.
job=$(sbatch --parsable --nodes=1 --output="$here/requeued/out" \
  "$examples/job.sbatch" /usr/bin/python3 "$examples/train.py" \
  "$data" "$here/requeued/checkpoint" 3)
until_true 120 ended "$job"
scontrol show job "$job" | grep -o 'JobState=[A-Z]*' >requeued/last_state
until_true 60 no_daemons

# The daemon of prolog and epilog.
srun --nodes=2 --ntasks-per-node=2 /usr/bin/python3 -c "
import os, datasetd
with datasetd.connect() as client:
    print(os.environ['SLURMD_NODENAME'], client.status()['pid'], client.address)
" >prolog
until_true 60 idle
until_true 60 no_directories
pgrep -af -- --socket_path=/run/datasetd-jobs >epilog || :

# mpirun: two processes of one job.
mpirun --allow-run-as-root --oversubscribe -n 3 /usr/bin/python3 -m datasetd \
  run --per-node --device=cpu -- /usr/bin/python3 -c "
import datasetd
with datasetd.connect() as client:
    print(client.status()['pid'], client.address, flush=True)
" >mpi
daemons >mpi_daemons
