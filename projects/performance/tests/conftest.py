# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The programs of the project import the modules beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
