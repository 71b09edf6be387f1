# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Let tests import the project's modules as its programs do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
