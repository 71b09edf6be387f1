# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Break runs on purpose, at length; the short form is the tests beside it."""
