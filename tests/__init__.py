# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os

# Before anything imports NumPy or PyTorch: workers of pytest-xdist share the
# cores, and threads of all would wait for each other.
if 'PYTEST_XDIST_WORKER' in os.environ:
    os.environ.setdefault('OMP_NUM_THREADS', '1')
