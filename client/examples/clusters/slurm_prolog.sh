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
# Prolog has a bare environment. In a session of its own, so that it outlives this
# script; clients wait until it serves.
PATH=/usr/local/bin:/usr/bin:/bin
setsid setpriv --reuid="$SLURM_JOB_UID" --init-groups \
  "${DATASETD_DAEMON:-datasetd}" --socket_path="$directory/datasetd.sock" \
  --data_root=/ </dev/null >"$directory/log" 2>&1 &
echo $! >"$directory/pid"
