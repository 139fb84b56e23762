#!/bin/sh
# Slurm's Prolog, as root on each node of a job: starts a daemon for the job, as
# its user. slurm_task_prolog.sh tells tasks where it is; slurm_epilog.sh ends it.
#
#   PrologFlags=Alloc
#   Prolog=/etc/slurm/slurm_prolog.sh
#   TaskProlog=/etc/slurm/slurm_task_prolog.sh
#   Epilog=/etc/slurm/slurm_epilog.sh
set -eu
# Root's, but for the folder of the sockets: in a directory of the user, the
# files that root writes could be links to others.
directory=/run/datasetd-jobs/$SLURM_JOB_ID-$SLURMD_NODENAME
sockets=$directory/sockets
rm -rf "$directory"
mkdir -p /run/datasetd-jobs
install -d -m 755 "$directory"
group=$(id -g "$SLURM_JOB_UID")
install -d -m 700 -o "$SLURM_JOB_UID" -g "$group" "$sockets"
install -m 600 -o "$SLURM_JOB_UID" -g "$group" /dev/null "$directory/log"
# Prolog has a bare environment, and Slurm kills its process group at its end:
# waits until the daemon's process is in a session of its own. Clients wait until
# it serves.
PATH=/usr/local/bin:/usr/bin:/bin
daemon=${DATASETD_DAEMON:-datasetd}
# shellcheck disable=SC2016  # the inner shell expands its own
setsid --fork sh -c '
  directory=$1 sockets=$2 user=$3 group=$4 daemon=$5
  # The number and the start time of the process, field 22, which exec keeps.
  start=$(sed "s/.*) //" "/proc/$$/stat" | cut -d " " -f 20)
  echo "$$ $start" >"$directory/pid"
  exec setpriv --reuid="$user" --regid="$group" --init-groups --inh-caps=-all \
    --no-new-privs "$daemon" --socket_path="$sockets/datasetd.sock" --data_root=/
' prolog "$directory" "$sockets" "$SLURM_JOB_UID" "$group" "$daemon" \
  </dev/null >"$directory/log" 2>&1
until [ -s "$directory/pid" ]; do
  sleep 0.05
done
