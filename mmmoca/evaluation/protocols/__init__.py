# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Protocols for frozen encoders: predictions from features of any origin."""
