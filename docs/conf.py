# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The site of this folder: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import mmmoca  # noqa: E402

project = 'mmmoca'
author = copyright = 'mmmoca contributors'
version = release = mmmoca.__version__
extensions = [
    'generate',
    'myst_nb',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinx_copybutton',
]
exclude_patterns = ['_build', '_generated']

html_theme = 'furo'
html_title = 'mmmoca'
html_static_path = ['_static']
html_css_files = ['site.css']
html_show_sphinx = False

nb_execution_mode = 'off'  # notebooks are committed with their outputs
myst_heading_anchors = 3

autodoc_default_options = {'members': False}
autodoc_typehints = 'none'  # docstrings have types, with shapes
napoleon_google_docstring = True
napoleon_numpy_docstring = False
