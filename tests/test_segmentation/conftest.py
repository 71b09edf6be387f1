# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest


@pytest.fixture(scope='package')
def streets(tmp_path_factory):
    """Draw eight training and two validation images. Tests only read them."""
    from ..helpers.cityscapes import write_tree

    root = tmp_path_factory.mktemp('streets')
    write_tree(root, train=4, val=1)
    return root
