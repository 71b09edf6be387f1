# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pictures of a trained model and curves of its training."""
