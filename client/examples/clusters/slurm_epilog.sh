#!/bin/sh
# Slurm's Epilog, as root on each node of a job that has ended: ends its daemon.
# Slurm drains a node whose Epilog fails.
set -u
directory=/run/datasetd-jobs/$SLURM_JOB_ID-$SLURMD_NODENAME
if read -r pid start 2>/dev/null <"$directory/pid" &&
  [ -n "$start" ] &&
  # The same process, should the number be another's by now.
  [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 20)" = "$start" ]; then
  kill "$pid" 2>/dev/null
  timeout 10 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$directory"
