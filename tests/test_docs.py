# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The code in the documentation runs as it is printed."""

import argparse
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from mmmoca.engine import CheckpointFitHook
from mmmoca.registry import HOOKS, MODELS

from .helpers.builders import MOCA_SIZE, build_moca, random_views
from .helpers.images import write_images
from .helpers.runs import NO_VALIDATION, demo_runner
from .helpers.tools import ROOT, run_tool, snippets

# A quick config, saved under the name of the config for one's own images.
CONFIG = f"""
_base_ = '{ROOT}/configs/moca_vit-s16_own-images.py'
small = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
vit = dict(arch=dict(small, _delete_=True), tap_layer=1)
model = dict(backbone=vit, neck=dict(embed_dims=32))
alone = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(alone, batch_size=16)
val_dataloader = alone
val_cfg = dict(bank_dataloader=alone)
log_level = 'ERROR'
"""

# Pages whose commands are checked, and the files and folders they name.
GUIDES = [
    path.relative_to(ROOT).as_posix()
    for place in ('*.md', 'docs/get_started/*.md', 'docs/guides/*.md')
    for path in sorted(ROOT.glob(place))
    if '```shell' in path.read_text()
]
FILES = re.compile(r'[\w./-]+\.(?:pth|tar|jpg|npy|safetensors)\b|CHECKPOINT')
FOLDERS = (
    'images',
    'data/imagenet/train',
    'path/to/images',
    'path/to/labelled',
    'path/to/masks',
    'work_dirs/RUN',
)
# Positions of arguments that a script does not pass to its program.
KEPT = dict(
    dist_train=(1,), dist_test=(2,), slurm_train=(0, 1, 3), slurm_test=(0, 1)
)


@pytest.mark.slow
def test_python(tmp_path, monkeypatch):
    """The Python code of the README and of the guide runs."""
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / 'labelled', train=6, val=2)
    shutil.copytree('labelled/train', 'images')
    for name in ('a.jpg', 'b.jpg'):
        shutil.copy('images/class_0/0.jpg', name)
    Path('moca_vit-s16_own-images.py').write_text(CONFIG)
    readme = snippets('README.md', 'python')
    assert snippets('docs/index.md', 'python') == readme
    code = next(c for c in readme if 'pretrain' in c)
    names = {}
    exec(code.replace('epochs=200', 'epochs=1'), names)
    assert names['features'].shape == (18, 32)
    shutil.copy(names['checkpoint'], 'epoch_200.pth')
    python = iter(snippets('docs/guides/embed.md', 'python'))
    exec(next(python), names)
    exec(next(python), names)
    assert names['found'].patches.shape == (18, 32, 14, 14)
    assert len(names['found'].paths) == len(names['array']) == 18
    assert torch.equal(names['found'].avg, names['features'])
    exec(next(python), names)
    (code,) = snippets('docs/guides/embed.md', 'shell')
    run_tool(*code.splitlines()[0].split()[1:])
    np.testing.assert_allclose(
        np.load('features.npy'), names['array'], rtol=1e-4, atol=1e-5
    )
    exec(next(python), names)
    assert len(names['groups']) == len(names['paths']) == 18
    assert Path('groups.png').stat().st_size > 5000
    exec(next(python), names)
    assert len({*names['nearest'], names['paths'][0]}) == 6
    exec(next(python), names)  # pairs that may be duplicates
    code = next(python)
    if find_spec('faiss') is not None:
        exec(code, names)
        assert names['names'][0] == 'class_0/0.jpg'
    code = next(python).replace('epochs=200', 'epochs=1')
    exec(code, names)
    assert names['checkpoint'].parent == Path('work_dirs/labelled')
    assert next(python, None) is None


def test_backbone_of_the_guide():
    names = {}
    exec(snippets('docs/guides/checkpoints.md', 'python')[0], names)
    with torch.device('meta'):
        vit = MODELS.build(names['model']['backbone'])
    assert vit.num_layers == 12
    (hook,) = names['custom_hooks']
    assert isinstance(HOOKS.build(hook), CheckpointFitHook)


class Parsed(BaseException):
    """Signals that a command has accepted its arguments."""


def check_arguments(program, *arguments):
    """Check that a program accepts these arguments, without running it."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(self, args=None, namespace=None):
        parse_args(self, args, namespace)
        raise Parsed

    script = Path(program)
    if script.suffix == '.sh':
        kept = KEPT[script.stem]
        arguments = [a for i, a in enumerate(arguments) if i not in kept]
        program = f'tools/{script.stem.partition("_")[2]}.py'
    with (
        mock.patch.object(argparse.ArgumentParser, 'parse_args', parse),
        pytest.raises(Parsed),
    ):
        run_tool(program, *arguments)


@pytest.mark.parametrize('file', GUIDES)
def test_shell(file, tmp_path, monkeypatch):
    """Programs accept the arguments in the commands of a page."""
    monkeypatch.chdir(tmp_path)
    makefile = (ROOT / 'Makefile').read_text()
    for name in ('tools', 'configs', 'projects'):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True)
    for code in snippets(file, 'shell'):
        code = code.replace('/path/to', 'path/to').replace('\\\n', '')
        for name in FILES.findall(code):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ['make']:
                assert f'\n{words[1]}:' in makefile
            for place, word in enumerate(words):
                if re.match(r'(tools|projects)/.*\.(py|sh)$', word):
                    check_arguments(*words[place:])


@pytest.mark.slow
def test_tensorboard(root, tmp_path, monkeypatch):
    pytest.importorskip('tensorboard')
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(snippets('docs/guides/watch.md', 'python')[0], names)
    options = {'train_cfg.max_iters': 1, 'default_hooks.logger.interval': 1}
    options |= NO_VALIDATION | dict(visualizer=names['visualizer'])
    demo_runner(root, 'curves', **options).train()
    assert list(tmp_path.rglob('tensorboard/events.out.tfevents.*'))


def test_target_of_ones_own():
    code = snippets('docs/developers/architecture.md', 'python')
    own = {}
    exec(code[0], own)
    exec(code[1], own)
    try:
        model = build_moca(head=own['model']['head'], backbone__in_channels=3)
    finally:
        MODELS.module_dict.pop('PatchColourHead')
    predictor = model.head.predictor
    with torch.no_grad():
        predictor.weight.zero_()
        predictor.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    # Each image has one colour, which all of its patches share.
    colours = torch.randn(2, 4, 3, 1, 1)
    losses = model.loss(list(colours.expand(-1, -1, -1, *MOCA_SIZE)))
    error = colours.flatten(2) - predictor.bias
    # lambda is one half, and there are two views.
    torch.testing.assert_close(losses['loss_loc'], error.square().mean())
    model.parse_losses(losses)[0].backward()
    assert predictor.weight.grad.any()


def test_divergence_of_ones_own():
    code = snippets('docs/developers/architecture.md', 'python')[2]
    exec(code, {})
    try:
        model = build_moca(head=dict(type='mmmoca.SquaredErrorHead'))
    finally:
        MODELS.module_dict.pop('SquaredErrorHead')
    with torch.autocast('cpu', torch.bfloat16):
        loss = model.loss(random_views())['loss_loc']
    # Two distributions differ by at most sqrt(2).
    assert loss.dtype == torch.float32 and 0 < loss < 2
    loss.backward()
    assert model.neck.projection.weight.grad.any()
