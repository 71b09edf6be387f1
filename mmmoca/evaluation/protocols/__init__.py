# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each frozen protocol: from features to predictions, whoever made them."""
