# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401

from .backbone import Backbone, find_backbone, read_backbone
from .errors import CheckpointError
from .preprocessing import Preprocessing, preprocessing_of
from .read import local_file, read_checkpoint
from .record import run_record
from .schemes import FILE_SCHEME, guarded
from .vit import adapt_backbone, build_vit
from .write import backbone_checkpoint, write_checkpoint

__all__ = [
    'FILE_SCHEME',
    'Backbone',
    'CheckpointError',
    'Preprocessing',
    'adapt_backbone',
    'backbone_checkpoint',
    'build_vit',
    'find_backbone',
    'guarded',
    'local_file',
    'preprocessing_of',
    'read_backbone',
    'read_checkpoint',
    'run_record',
    'write_checkpoint',
]
