# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os

# This is set before anything imports NumPy or PyTorch. The workers of
# pytest-xdist share the cores, so the threads of all workers would wait for
# each other.
if 'PYTEST_XDIST_WORKER' in os.environ:
    os.environ.setdefault('OMP_NUM_THREADS', '1')
