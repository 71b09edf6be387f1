# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One picture of what a model has learned, from its config and checkpoint."""

import copy
import os

import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmpretrain.registry import MODELS

from mmmoca.apis import Encoder, load
from mmmoca.checkpoints import read_checkpoint
from mmmoca.checkpoints.record import record_of
from mmmoca.checkpoints.start import with_resized_mean
from mmmoca.models import MOCA

from . import panels
from .gallery import Gallery, open_sets, pick_images, root_of
from .tiles import Panel, draw_tiles

LEGEND = 'grey: masked;  hatched: masked and to be predicted;  '
FRAMES = 'green frame: same class, red frame: another;  '


def draw_overview(
    cfg: Config,
    checkpoint: str | os.PathLike,
    data: str | None = None,
    images: int = 8,
    bank_size: int = 2000,
    num_workers: int = 2,
    seed: int = 0,
) -> Figure:
    """Draw a row for each image: masks, features, words and neighbours.

    If a folder ``masks`` beside the images contains their segmentation masks,
    the row also shows the true mask and the mask predicted in context, that
    is, from the nearest patches of other images.

    Args:
        cfg (Config): A pretraining config.
        checkpoint (str | os.PathLike): A checkpoint of the whole model.
        data (str, optional): Where the images are: a folder, shards, or a
            Hugging Face data set. Defaults to the images of the config.
        images (int): Number of images shown.
        bank_size (int): Number of images to search for neighbours.
        num_workers (int): Number of processes that read images.
        seed (int): Seed of the choice of images and of the student's masks.

    Returns:
        Figure: The figure.

    Raises:
        TypeError: If the config's model is not a MOCA.
        ValueError: If the config does not say how images are prepared.
        RuntimeError: If the checkpoint belongs to another model.
        OSError: If no image can be read. If only some cannot, they are left
            out, and a log line counts them.
    """
    # MMEngine would log the initialisation of each parameter.
    MMLogger.get_instance('overview').setLevel('WARNING')
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    torch.manual_seed(seed)
    model, encoder, untrained = _load_models(cfg, checkpoint)
    queries, bank = open_sets(cfg, data, encoder.pipeline)
    encoding = encoder, model.image_embedding, num_workers
    members = sorted(torch.randperm(len(bank))[:bank_size].tolist())
    known = Gallery(bank, members, encoder.pipeline).encoded(*encoding)
    pool = known
    if queries is not bank:
        rows = range(len(queries))
        pool = Gallery(queries, rows, encoder.pipeline)
    picked = pick_images([folder for folder, _ in pool.names], images)
    shown = pool.part(picked).encoded(*encoding)

    pictures = [shown.picture(i) for i in range(len(shown))]
    packed = torch.stack([shown[i] for i in range(len(shown))])
    inputs = encoder.data_preprocessor(dict(inputs=packed))['inputs']
    masks = model.masking.draw(len(pictures), torch.device('cpu'))
    grid = encoder.backbone.patch_resolution
    drawn = [
        Panel('image', [''], [[picture] for picture in pictures]),
        panels.student_panel(pictures, masks, grid),
        *panels.feature_panels(encoder, untrained, model.codebook, inputs),
        panels.mask_panel(encoder, shown, known, num_workers),
        *(panels.nearest_panel(n, shown, known) for n in shown.features),
    ]
    names = ['\n'.join(name) for name in shown.names]
    legend = LEGEND if None in shown.labels else LEGEND + FRAMES
    legend += f'nearest: among {len(known)} random images of {root_of(bank)}'
    title = f'{checkpoint}, images of {root_of(queries)}'
    height, width = packed.shape[-2:]
    return draw_tiles(
        [*filter(None, drawn)], names, height / width, title, legend
    )


def _load_models(
    cfg: Config, checkpoint: str | os.PathLike
) -> tuple[MOCA, Encoder, Encoder]:
    """Load the model (on the CPU), its encoder, and an untrained encoder."""
    model = MODELS.build(cfg.model)
    if not isinstance(model, MOCA):
        raise TypeError(
            f'a MOCA model is needed, got a {type(model).__name__}'
        )
    model.init_weights()
    initial = copy.deepcopy(model.teacher.state_dict())
    content = read_checkpoint(checkpoint)
    teacher = model.teacher
    grid = record_of(content.get('meta')).get('grid')
    grid = tuple(grid or teacher.patch_resolution)
    state = content.get('state_dict', content)
    # The config may use larger images than the run did.
    model.load_state_dict(with_resized_mean(state, grid, model))
    encoder = load(
        checkpoint,
        num_heads=teacher.arch_settings['num_heads'],
        source_grid=grid,
        img_size=teacher.img_size,
        config=cfg,
    )
    untrained = copy.deepcopy(encoder)
    untrained.backbone.load_state_dict(initial)
    return model.eval(), encoder, untrained
