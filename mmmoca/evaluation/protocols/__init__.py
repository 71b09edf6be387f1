# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each frozen protocol: predictions from features of any origin."""
