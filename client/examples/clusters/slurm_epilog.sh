#!/bin/sh
# Slurm's Epilog, as root on each node of a job that has ended: ends its daemon.
set -eu
directory=/run/datasetd-jobs/$SLURM_JOB_ID-$SLURMD_NODENAME
[ -f "$directory/pid" ] || exit 0
pid=$(cat "$directory/pid")
# Only the daemon of this directory, should the number be another's by now.
if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null |
  grep -qF -- "--socket_path=$directory/datasetd.sock"; then
  kill "$pid"
  timeout 10 tail --pid="$pid" -f /dev/null || kill -KILL "$pid"
fi
rm -rf "$directory"
