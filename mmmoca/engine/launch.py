# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .config import load_config  # noqa: F401  its older place
