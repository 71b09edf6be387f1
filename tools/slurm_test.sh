#!/usr/bin/env bash
# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Usage: tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [arguments]
# Environment: GPUS, GPUS_PER_NODE, CPUS_PER_TASK, SRUN_ARGS.
set -euo pipefail

USAGE="Usage: $0 PARTITION JOB_NAME CONFIG CHECKPOINT [arguments of test.py]"
PARTITION=${1:?$USAGE}
JOB_NAME=${2:?$USAGE}
CONFIG=${3:?$USAGE}
CHECKPOINT=${4:?$USAGE}
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
CPUS_PER_TASK=${CPUS_PER_TASK:-5}
TOOLS=$(cd "$(dirname "$0")" && pwd)

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
    python -u "$TOOLS/test.py" "$CONFIG" "$CHECKPOINT" \
    --launcher slurm "${@:5}"
