#!/bin/bash
# A Slurm of two nodes, n0 and n1, on this machine, installed into an overlay of
# its root that goes with this process:
#
#   unshare --mount --pid --fork slurm_world.sh DIRECTORY COMMAND...
#
# Runs COMMAND in it. DIRECTORY, below /tmp, is shared with the outside and has
# prolog.sh, task_prolog.sh and epilog.sh; logs go there. Ends with 77 if Slurm
# cannot be installed. Needs root and Debian's packages.
set -euo pipefail
directory=$1
shift

root=$directory/root
mkdir -p "$root"
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/all"
if ! mount -t overlay overlay "$root/all" -o \
  "lowerdir=/,upperdir=$root/upper,workdir=$root/work"; then
  exit 77
fi
cd "$root/all"
mount --rbind /dev dev
mount -t proc proc proc
mount --rbind /sys sys
mkdir -p ".$directory" run
mount -t tmpfs tmpfs run
mount --bind "$directory" ".$directory"

cat >inside.sh <<'INSIDE'
set -euo pipefail
directory=$1
shift
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
if ! {
  apt-get update &&
    apt-get install -y --no-install-recommends slurm-wlm munge openmpi-bin
} >"$directory/apt.log" 2>&1; then
  exit 77
fi
echo "127.0.0.1 n0 n1" >>/etc/hosts
mkdir -p /run/munge /var/spool/ctld /var/log/munge
chown munge: /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged
cat >/etc/slurm/slurm.conf <<CONFIG
ClusterName=two
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$SLURM_TEST_PORT
SlurmUser=root
StateSaveLocation=/var/spool/ctld
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
PrologFlags=Alloc
Prolog=$directory/prolog.sh
TaskProlog=$directory/task_prolog.sh
Epilog=$directory/epilog.sh
NodeName=n0 NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) Port=$((SLURM_TEST_PORT + 1)) CPUs=8 State=UNKNOWN
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) Port=$((SLURM_TEST_PORT + 2)) CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n0,n1 Default=YES State=UP
CONFIG
slurmctld
for node in n0 n1; do
  mkdir -p "/var/spool/slurmd.$node"
  slurmd -N "$node"
done
cd "$directory"
exec "$@"
INSIDE
exec chroot . bash inside.sh "$directory" "$@"
