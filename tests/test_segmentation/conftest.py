# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest


@pytest.fixture(scope='package')
def streets(tmp_path_factory):
    """Eight training and two validation images. Read it only."""
    from ..helpers.cityscapes import write_tree

    root = tmp_path_factory.mktemp('streets')
    write_tree(root, train=4, val=1)
    return root
