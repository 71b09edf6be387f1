# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch


@pytest.fixture(scope='package', autouse=True)
def one_thread():
    """Threads cost such small models more than they give."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
