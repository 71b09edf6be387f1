# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What all tests of tools share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope='module')
def one_thread():
    """The processes of the suite share the cores: threads would wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
