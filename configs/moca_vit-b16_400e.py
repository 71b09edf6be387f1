# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = 'moca/moca_vit-b16_400e.py'
