#!/bin/sh
# Slurm's TaskProlog: tells a task the address of its job's daemon.
directory=/run/datasetd-jobs/$SLURM_JOB_ID-$SLURMD_NODENAME
echo "export DATASETD_ADDRESS=$directory/sockets/datasetd.sock"
