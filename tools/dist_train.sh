#!/usr/bin/env bash
# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Usage: tools/dist_train.sh CONFIG PROCESSES [arguments of train.py]
# Environment: NNODES, NODE_RANK, MASTER_ADDR, PORT, OMP_NUM_THREADS.
# A process takes one GPU; without GPUs it trains on its share of the cores.
set -euo pipefail

CONFIG=${1:?Usage: $0 CONFIG PROCESSES [arguments of train.py]}
GPUS=${2:?Usage: $0 CONFIG PROCESSES [arguments of train.py]}
TOOLS=$(cd "$(dirname "$0")" && pwd)
# The division below would run any other text as a shell expression.
if ! [[ $GPUS =~ ^[1-9][0-9]*$ ]]; then
    printf 'PROCESSES must be a whole number, not %q\n' "$GPUS" >&2
    exit 2
fi

# Processes that each start a thread per core stall one another.
CORES=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
THREADS=$((CORES / GPUS))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((THREADS > 0 ? THREADS : 1))}
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-$OMP_NUM_THREADS}

PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}" \
exec python "$TOOLS/_launch.py" \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$GPUS" \
    "$TOOLS/train.py" "$CONFIG" --launcher pytorch "${@:3}"
