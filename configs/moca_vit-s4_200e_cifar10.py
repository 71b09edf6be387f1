# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = 'moca/moca_vit-s4_200e_cifar10.py'
