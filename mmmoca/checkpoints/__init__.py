# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .release_keys import (
    convert_release_name,
    convert_release_state_dict,
    convert_timm_name,
)

__all__ = [
    'convert_release_name',
    'convert_release_state_dict',
    'convert_timm_name',
]
