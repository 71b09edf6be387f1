# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = 'moca/moca_vit-l16_200e.py'
