# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .conversion import adapt_backbone, write_converted
from .fitting import check_fit
from .grids import adapt_in_channels, position_grid, resize_positions
from .layouts import Backbone, find_backbone, read_backbone
from .preprocessing import Preprocessing, preprocessing_of
from .pretrained import check_pretrained_inits
from .reading import (
    CheckpointError,
    check_intact,
    listed,
    local_file,
    read_checkpoint,
)
from .records import run_record
from .release_keys import convert_release_name, convert_release_state_dict
from .release_model import convert_release
from .run_folder import (
    INTERRUPTED,
    FolderLock,
    find_checkpoints,
    newest_checkpoint,
    not_finite,
)
from .scheme import FILE, SCHEME, guarded
from .starts import START, fit_start, is_start, read_start
from .timm_keys import convert_timm_name, convert_to_timm_name
from .vits import build_vit, num_heads_of
from .writing import backbone_checkpoint, file_sha256, write_checkpoint

__all__ = [
    'FILE',
    'INTERRUPTED',
    'SCHEME',
    'START',
    'Backbone',
    'CheckpointError',
    'FolderLock',
    'Preprocessing',
    'adapt_backbone',
    'adapt_in_channels',
    'backbone_checkpoint',
    'build_vit',
    'check_fit',
    'check_intact',
    'check_pretrained_inits',
    'convert_release',
    'convert_release_name',
    'convert_release_state_dict',
    'convert_timm_name',
    'convert_to_timm_name',
    'file_sha256',
    'find_backbone',
    'find_checkpoints',
    'fit_start',
    'guarded',
    'is_start',
    'listed',
    'local_file',
    'newest_checkpoint',
    'not_finite',
    'num_heads_of',
    'position_grid',
    'preprocessing_of',
    'read_backbone',
    'read_checkpoint',
    'read_start',
    'resize_positions',
    'run_record',
    'write_checkpoint',
    'write_converted',
]
