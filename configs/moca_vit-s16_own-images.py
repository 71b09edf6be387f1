# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = 'moca/moca_vit-s16_own-images.py'
