# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Where the host waits for the GPU, and how long that has nothing to do."""

import gzip
import json
from collections import Counter
from pathlib import Path

# Calls of CUDA that return when the device is done. A copy that blocks is a
# cudaMemcpyAsync and a cudaStreamSynchronize.
WAITS = ('Synchronize', 'cudaMemcpy', 'cuMemcpy')
LAUNCHES = ('LaunchKernel', 'GraphLaunch')
DEVICE_WORK = ('kernel', 'gpu_memcpy', 'gpu_memset')


def read_trace(path: Path) -> list[dict]:
    """Events of a trace that PyTorch's profiler exported (.json.gz)."""
    with gzip.open(path, 'rt') as file:
        events = json.load(file)['traceEvents']
    return [event for event in events if event.get('ph') == 'X']


def count_waits(events: list[dict]) -> Counter:
    """Calls for which the host waits, by name.

    On threads that launch kernels, and only before the last launch: the
    profiler itself waits at its end.
    """
    calls = [
        e for e in events if e.get('cat') in ('cuda_runtime', 'cuda_driver')
    ]
    launches = [e for e in calls if any(x in e['name'] for x in LAUNCHES)]
    if not launches:
        return Counter()
    threads = {e['tid'] for e in launches}
    last = max(e['ts'] for e in launches)
    return Counter(
        e['name']
        for e in calls
        if e['tid'] in threads and e['ts'] < last and _waits(e['name'])
    )


def _waits(name: str) -> bool:
    return any(x in name for x in WAITS) and 'Async' not in name


def idle_share(events: list[dict]) -> float | None:
    """Share of the time from first to last work that the device has none.

    None if the device did nothing.
    """
    spans = sorted(
        (e['ts'], e['ts'] + e['dur'])
        for e in events
        if e.get('cat') in DEVICE_WORK
    )
    if not spans:
        return None
    start = end = spans[0][0]
    idle = 0.0
    for begin, finish in spans:
        idle += max(0.0, begin - end)
        end = max(end, finish)
    return idle / (end - start)
