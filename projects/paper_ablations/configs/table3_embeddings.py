# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './table3_assignments.py'

custom_imports = dict(imports=['projects.paper_ablations.targets'])
model = dict(head=dict(type='mmmoca.EmbeddingHead'))
