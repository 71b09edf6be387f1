# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Every row of the ablations' table is a model that trains."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
import torch
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS, init_default_scope

ABLATIONS = Path(__file__).parents[1] / 'projects' / 'paper_ablations'
ROWS = re.findall(
    r'^\| [^|]+ \| `([^`|]+)` \| (?:`([^`|]+)`)? ?\|',
    (ABLATIONS / 'README.md').read_text(),
    flags=re.MULTILINE,
)


def test_table_and_configs_agree():
    files = {path.stem for path in (ABLATIONS / 'configs').iterdir()}
    assert {f'moca_vit-b16_100e_{name}' for name, _ in ROWS} == files
    assert len(set(ROWS)) == len(ROWS) == 17


@pytest.mark.parametrize(('name', 'options'), ROWS)
def test_ablation_trains(name, options):
    path = ABLATIONS / 'configs' / f'moca_vit-b16_100e_{name}.py'
    cfg = Config.fromfile(path)
    assert cfg.train_cfg.max_epochs == 100
    default = cfg.model.to_dict()
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='*', action=DictAction)
    args = parser.parse_args(['--cfg-options', *shlex.split(options)])
    cfg.merge_from_dict(args.cfg_options)
    assert (cfg.model.to_dict() != default) == bool(options)

    cfg.model.backbone.update(arch='deit-tiny', img_size=64, patch_size=8)
    cfg.model.codebook.num_words = 64
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model).train()
    model.init_weights()
    losses = model.loss(list(torch.randn(2, 2, 3, 64, 64)))
    weight = cfg.model.head.lambda_img
    assert ('loss_img' in losses) == (weight > 0)
    assert ('loss_loc' in losses) == (weight < 1)
    loss, _ = model.parse_losses(losses)
    loss.backward()
    assert model.backbone.patch_embed.projection.weight.grad.norm() > 0
