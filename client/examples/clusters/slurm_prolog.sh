#!/bin/sh
# Slurm's Prolog, as root on each node of a job: starts a daemon for the job, as
# its user. slurm_task_prolog.sh tells tasks where it is; slurm_epilog.sh ends it.
#
#   PrologFlags=Alloc
#   Prolog=/etc/slurm/slurm_prolog.sh
#   TaskProlog=/etc/slurm/slurm_task_prolog.sh
#   Epilog=/etc/slurm/slurm_epilog.sh
set -eu
directory=/run/datasetd-jobs/$SLURM_JOB_ID-$SLURMD_NODENAME
mkdir -p /run/datasetd-jobs
install -d -m 700 -o "$SLURM_JOB_UID" "$directory"
# Prolog has a bare environment, and Slurm kills its process group at its end:
# waits until the daemon's process is in a session of its own. Clients wait until
# it serves.
PATH=/usr/local/bin:/usr/bin:/bin
daemon=${DATASETD_DAEMON:-datasetd}
# shellcheck disable=SC2016  # the inner shell expands its own
setsid --fork sh -c '
  directory=$1 user=$2 daemon=$3
  echo $$ >"$directory/pid"
  exec setpriv --reuid="$user" --init-groups "$daemon" \
    --socket_path="$directory/datasetd.sock" --data_root=/
' prolog "$directory" "$SLURM_JOB_UID" "$daemon" \
  </dev/null >"$directory/log" 2>&1
until [ -s "$directory/pid" ]; do
  sleep 0.05
done
