# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .mmpretrain_hub import ModelHub, shipped  # noqa: F401  its older name
