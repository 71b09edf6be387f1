# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.quietly  # noqa: F401

from .building import adapt_backbone, build_vit
from .errors import CheckpointError
from .fitting import check_fit, loaded_names
from .layouts import Backbone, find_backbone, read_backbone
from .preprocessing import Preprocessing, preprocessing_of, run_record
from .pretrained_init import check_pretrained_inits
from .reading import local_file, read_checkpoint
from .release import (
    convert_release,
    convert_release_name,
    convert_release_state_dict,
)
from .run_folder import (
    INTERRUPTED,
    FolderLock,
    find_checkpoints,
    newest_checkpoint,
    not_finite,
)
from .scheme import FILE_SCHEME, guarded
from .start import START_SCHEME, load_start
from .weights import resize_positions
from .writing import backbone_checkpoint, plain, write_checkpoint

__all__ = [
    'FILE_SCHEME',
    'INTERRUPTED',
    'START_SCHEME',
    'Backbone',
    'CheckpointError',
    'FolderLock',
    'Preprocessing',
    'adapt_backbone',
    'backbone_checkpoint',
    'build_vit',
    'check_fit',
    'check_pretrained_inits',
    'convert_release',
    'convert_release_name',
    'convert_release_state_dict',
    'find_backbone',
    'find_checkpoints',
    'guarded',
    'load_start',
    'loaded_names',
    'local_file',
    'newest_checkpoint',
    'not_finite',
    'plain',
    'preprocessing_of',
    'read_backbone',
    'read_checkpoint',
    'resize_positions',
    'run_record',
    'write_checkpoint',
]
