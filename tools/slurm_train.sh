#!/usr/bin/env bash
# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Usage: tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [arguments]
# Environment: GPUS, GPUS_PER_NODE, CPUS_PER_TASK, SRUN_ARGS.
set -euo pipefail

USAGE="Usage: $0 PARTITION JOB_NAME CONFIG WORK_DIR [arguments of train.py]"
PARTITION=${1:?$USAGE}
JOB_NAME=${2:?$USAGE}
CONFIG=${3:?$USAGE}
WORK_DIR=${4:?$USAGE}
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
CPUS_PER_TASK=${CPUS_PER_TASK:-5}
TOOLS=$(cd "$(dirname "$0")" && pwd)

STATUS=0
# SRUN_ARGS holds any number of arguments.
# shellcheck disable=SC2086
PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}" \
srun -p "$PARTITION" \
    --job-name="$JOB_NAME" \
    --gres="gpu:$GPUS_PER_NODE" \
    --ntasks="$GPUS" \
    --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="$CPUS_PER_TASK" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    python -u "$TOOLS/train.py" "$CONFIG" --work-dir="$WORK_DIR" \
    --launcher slurm "${@:5}" || STATUS=$?

# A run that was asked to stop has saved itself. If its batch job passes
# --resume, the run continues when Slurm starts the job again.
if [ "$STATUS" -eq 75 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$STATUS"
