# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A check of error messages."""

import re

import pytest


def raises(error, *parts):
    """Expect an error whose message has these parts in this order."""
    pattern = '.*'.join(re.escape(part) for part in parts)
    return pytest.raises(error, match=f'(?s){pattern}')
