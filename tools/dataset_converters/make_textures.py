# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The place of tools/drawn_sets/make_textures.py in older scripts."""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parents[1] / 'drawn_sets'
sys.path.insert(0, str(folder))
runpy.run_path(str(folder / Path(__file__).name), run_name='__main__')
