# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a config file and options to the config of a run."""

import inspect
import json
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmengine.config import Config
from mmengine.runner import Runner
from mmpretrain.registry import MODELS, TRANSFORMS

from mmmoca.engine.build_errors import explained
from mmmoca.engine.config import load_config, read_run
from mmmoca.engine.config_check import RUN_KEYS
from mmmoca.engine.copies import copies
from mmmoca.engine.file_check import check_paths
from mmmoca.engine.options import place, read_option
from mmmoca.engine.settings import unwritten_settings
from mmmoca.engine.slips import unread_variables

from ..helpers.errors import raises
from ..helpers.images import CONFIGS
from ..helpers.runs import NO_VALIDATION
from ..helpers.tools import install_configs

CONFIG = CONFIGS / 'moca_vit-b16_200e.py'
CLASSES = CONFIGS / 'classification/finetune_vit-b16_100e_own-classes.py'
ATTENTIVE = CONFIGS / 'classification/attentive_vit-b16_own-classes.py'
TINY = CONFIGS / 'demo/moca_vit-tiny_own-images.py'
DETECTION = (
    CONFIGS / 'detection/cascade-mask-rcnn_moca-vit-b16_fpn_1x_own-coco.py'
)
SEGMENTATION = (
    CONFIGS / 'segmentation/segmenter_moca-vit-b16_mask_own-masks-512x512.py'
)


def load(**options):
    return read_run(CONFIG, options)


def test_none_leaves_a_hook_out():
    options = {f'default_hooks.{k}': None for k in ('step_log', 'logger')}
    hooks = load(**options).default_hooks
    assert 'step_log' not in hooks and 'codebook' in hooks
    assert hooks.logger is None  # MMEngine's own hook, which accepts None


def test_what_a_file_inherits(tmp_path):
    """A file inherits shorthands, and dicts without MMEngine's scope marks."""
    own = CONFIGS / 'moca_vit-b16_own-images.py'
    file = tmp_path / 'child.py'
    collate = "dict(type='default_collate', _scope_='mmmoca')"
    file.write_text(
        f"_base_ = '{own}'\nepochs = 3\nbatch_size = 16\n"
        f'train_dataloader = dict(collate_fn={collate}, num_workers=0, '
        "pin_memory=False, dataset=dict(data_root='mine'))\n"
        "work_dir = '~/runs'\n"
    )
    cfg = read_run(file)
    assert cfg.train_cfg.max_epochs == 3 and 'epochs' not in cfg
    assert '~' not in cfg.work_dir
    train, bank = cfg.train_dataloader, load().val_cfg.bank_dataloader
    assert (train.batch_size, train.dataset.data_root) == (16, 'mine')
    assert not train.persistent_workers and not train.pin_memory
    assert train.sampler.drop_last and train.drop_last
    assert bank.persistent_workers and bank.num_workers > 0
    for loader in (train, bank):
        assert loader.collate_fn == dict(type='default_collate')
    cfg = read_run(file, dict(epochs=5))
    assert cfg.train_cfg.max_epochs == 5
    # Images for segmentation differ in size.
    cfg = read_run(SEGMENTATION)
    assert 'collate_fn' not in cfg.val_dataloader
    # RUN_KEYS lists the runner's keys without importing it.
    assert inspect.signature(Runner).parameters.keys() <= RUN_KEYS


# These values follow from the settings of a template.
OWN = {
    SEGMENTATION: {
        'train_dataloader.dataset.pipeline[4].crop_size': (64, 64),
        'model.data_preprocessor.size': (64, 64),
        'model.test_cfg.stride': (42, 42),
        'model.decode_head.num_classes': 3,
        'model.decode_head.in_channels': 1024,
        'model.decode_head.channels': 1024,
        'model.decode_head.embed_dims': 1024,
        'model.decode_head.num_heads': 16,
    },
    DETECTION: {
        'val_dataloader.dataset.pipeline[1].scale': (64, 64),
        'test_evaluator.ann_file': 'mine/annotations/val.json',
        'model.neck[1].in_channels': [1024] * 4,
        'model.backbone.out_indices': [7, 11, 15, 23],
        'activation_checkpointing[-1]': 'backbone.layers.23',
        'param_scheduler[0].warmup': 0.05,
    },
    CLASSES: {
        'model.data_preprocessor.num_classes': 3,
        'test_dataloader.dataset.pipeline[1].scale': 73,
        'param_scheduler.warmup': 0.05,
    },
}


@pytest.mark.parametrize(
    'template',
    [
        pytest.param(
            path, marks=[pytest.mark.ops] * ('detection' in str(path))
        )
        for path in OWN
    ],
    ids=lambda path: path.stem,
)
def test_what_follows_from_the_settings_of_a_template(
    template, tmp_path, monkeypatch
):
    """Command lines and files that inherit an installed template act alike."""
    install_configs(monkeypatch, tmp_path)
    size = 'crop_size' if template == SEGMENTATION else 'img_size'
    values = {'data_root': 'mine', 'epochs': 3, 'arch': 'l', size: 64}
    texts = ['classes=a b,2,c', *(f'{k}={v}' for k, v in values.items())]
    base = f'mmmoca::{template.relative_to(CONFIGS)}'
    values |= {'_base_': base, 'classes': ['a b', '2', 'c']}
    file = tmp_path / 'child.py'
    file.write_text('\n'.join(f'{k} = {v!r}' for k, v in values.items()))
    for source, options in ((file, ()), (template, texts)):
        cfg = read_run(source, options)
        for key, value in OWN[template].items():
            assert eval(f'cfg.{key}') == value, key
        dataset = cfg.test_dataloader.dataset
        assert dataset.metainfo['classes'] == values['classes']
        assert (dataset.data_root, cfg.train_cfg.max_epochs) == ('mine', 3)


def test_epochs_in_the_place_of_steps(tmp_path, monkeypatch):
    """Epochs replace steps, whatever MMEngine adds to an installed config."""
    install_configs(monkeypatch, tmp_path)
    child = tmp_path / 'child.py'
    child.write_text(
        f"_base_ = 'mmmoca::{ATTENTIVE.relative_to(CONFIGS)}'\nepochs = 3\n"
    )
    loop = read_run(child).train_cfg
    assert loop.max_epochs == 3 and 'max_iters' not in loop


def test_a_batch_size_of_a_test_alone():
    """The batch size applies to the images and to the bank."""
    knn = CONFIGS / 'demo' / 'knn_vit-tiny_textures.py'
    cfg = read_run(knn, dict(batch_size=5))
    sizes = cfg.test_dataloader, cfg.test_cfg.bank_dataloader
    assert [loader.batch_size for loader in sizes] == [5, 5]
    for length in (dict(epochs=2), dict(steps=2)):
        with pytest.raises(ValueError, match='not train'):
            read_run(knn, length)


# The value changes in place, so the file's assignments do not show it.
VIEWS = """train_pipeline = _base_.train_pipeline
for view in train_pipeline[2].transforms:
    view[0].crop_ratio_range = (0.3, 1.0)"""
TAKEN = 'train_dataloader = dict(dataset=dict(pipeline=train_pipeline))'


@pytest.mark.parametrize(
    'line, named',
    [
        ("data_root = 'images'", 'train_dataloader.dataset.data_root'),
        ('epochs = 3', 'epochs'),
        ('epochs, seed = 3, 1', 'epochs'),
        ('num = 8\ntrain_dataloader = dict(num_workers=num)', None),
        ('compile = True', None),
        (VIEWS, 'train_dataloader.dataset.pipeline'),
        (f'{VIEWS}\n{TAKEN}', None),
        (f'{VIEWS}\n{TAKEN.replace("train_data", "val_data")}', None),
    ],
)
def test_variables_that_nothing_reads(tmp_path, line, named):
    """An example is a setting in a file whose base has no settings."""
    file = tmp_path / 'own.py'
    file.write_text(f'_base_ = {str(CONFIG)!r}\n{line}\n')
    found = unread_variables(read_run(file))
    assert named in found if named else found is None
    child = tmp_path / 'child.py'
    child.write_text("_base_ = 'own.py'\n")
    assert (unread_variables(read_run(child)) is None) == (named is None)


def inherited(folder, texts, base=SEGMENTATION):
    """Write files that each inherit the previous one; return the last."""
    for number, text in enumerate(texts):
        file = folder / f'{number}.py'
        file.write_text(f'_base_ = [{str(base)!r}]\n{text}\n')
        base = file
    return base


@pytest.mark.parametrize(
    'texts, expected',
    [
        # A file's keys override settings, inherited ones and its own.
        (['batch_size = 2', 'train_dataloader = dict(batch_size=7)'], 7),
        (['batch_size = 2\ntrain_dataloader = dict(batch_size=7)'], 7),
        (['batch_size = 2\npart = dict(batch_size=7)\n'
          'train_dataloader = {**part}'], 7),
        (['batch_size = 2', "_base_.train_dataloader['batch_size'] = 7"], 7),
        (['batch_size = 2', 'train_dataloader: dict = dict(batch_size=7)',
          'epochs = 3'], 7),
        # Settings override inherited keys.
        (['train_dataloader = dict(batch_size=7)', 'batch_size = 2'], 2),
        (['batch_size = 7', 'batch_size = 2'], 2),
        # A value taken from a base is not the file's own.
        (['batch_size = 2\n'
          'train_dataloader = dict(_base_.train_dataloader)'], 2),
        (['batch_size = 2\ntrain_dataloader = dict(num_workers=1)\n'
          'train_dataloader.update(batch_size=7)'], 7),
        # Any code may compute the keys, but only code that runs counts.
        (['batch_size = 2', 'def seven():\n    return dict(batch_size=7)\n'
          'train_dataloader = seven()'], 7),
        (['batch_size = 2',
          'train_dataloader = dict(batch_size=7) if 1 else dict()'], 7),
        (['batch_size = 2', 'train_dataloader = _base_.train_dataloader\n'
          'train_dataloader.batch_size = 7'], 7),
        (['batch_size = 2', 'try:\n    train_dataloader = dict() | dict('
          'batch_size=7)\nfinally:\n    pass'], 7),
        (['batch_size = 7',
          'if False:\n    train_dataloader = dict(batch_size=2)'], 7),
        (['batch_size = 2', 'train_dataloader = dict(batch_size=7)',
          'if False:\n    batch_size = 3'], 7),
        # The value equals the template's.
        (['batch_size = 2', 'train_dataloader = dict(batch_size=8)'], 8),
        (['batch_size = 2',
          'one = 4\none += 4\ntrain_dataloader = dict(batch_size=one)'], 8),
        (['batch_size = 2',
          'train_dataloader = dict(batch_size={{"$OWN:7"}})'], 7),
    ],
)  # fmt: skip
def test_the_nearest_file_wins(tmp_path, texts, expected):
    """The nearest file decides, by a setting or by a full key."""
    file = inherited(tmp_path, texts)
    assert read_run(file).train_dataloader.batch_size == expected


@pytest.mark.parametrize(
    'texts',
    [
        ['batch_size = 2', 'train_dataloader = dict(batch_size=7)'],
        ['train_dataloader = dict(batch_size=7)', 'batch_size = 2'],
        ['batch_size = 2\ntrain_dataloader = dict(num_workers=1)\n'
         'train_dataloader.update(batch_size=7)'],
    ],
)  # fmt: skip
def test_what_is_given_wins_over_files(tmp_path, texts):
    """Options win over files, and a JSON file's keys win over its base."""
    file, key = inherited(tmp_path, texts), 'train_dataloader.batch_size'
    assert read_run(file, {key: 9}).train_dataloader.batch_size == 9
    assert read_run(file, ['batch_size=9']).train_dataloader.batch_size == 9
    whole = file.with_suffix('.json')
    whole.write_text(json.dumps({'_base_': str(file), **nested(key, 5)}))
    assert read_run(whole).train_dataloader.batch_size == 5


OWN_TINY = f"_base_ = '{CONFIGS}/demo/moca_vit-tiny_own-images.py'\n"


def test_the_size_that_a_config_has_changes_nothing(tmp_path):
    text = 'img_size = 48\nimg_size_ = 3\n'
    (tmp_path / 'own.py').write_text(OWN_TINY + text)
    labelled = dict(knn_root='/labelled')  # otherwise no image is resized
    cfg = read_run(tmp_path / 'own.py', labelled)
    usual = read_run(TINY, labelled)
    for key in ('train_dataloader', 'val_dataloader', 'val_cfg', 'model'):
        assert cfg[key] == usual[key]


def test_a_size_leaves_a_loader_that_does_not_reduce(tmp_path):
    (tmp_path / 'own.py').write_text(
        f'{OWN_TINY}img_size = 32\n'
        'pipeline = _base_.train_dataloader.dataset.pipeline\n'
        'pipeline[1] = dict(type="mmmoca.LoadImage", reduce_to=None)\n'
        'train_dataloader = dict(dataset=dict(pipeline=pipeline))\n'
    )
    cfg = read_run(tmp_path / 'own.py')
    assert cfg.train_dataloader.dataset.pipeline[1].reduce_to is None
    (tmp_path / 'own.py').write_text(f'{OWN_TINY}img_size = (32, 64)\n')
    with pytest.raises(ValueError, match='img_size'):
        read_run(tmp_path / 'own.py')


@pytest.mark.parametrize(
    ('wrapper', 'inside'),
    [
        ("dict(type='RepeatDataset', times=2, dataset=part)", 'dataset'),
        ("dict(type='ConcatDataset', datasets=[part])", 'datasets.0'),
    ],
)
@pytest.mark.parametrize('own', [None, '/own'])
@pytest.mark.slow
def test_settings_reach_a_wrapped_data_set(tmp_path, wrapper, inside, own):
    """Settings reach a wrapped data set unless a file sets the same key."""
    file = tmp_path / 'own.py'
    file.write_text(
        f"_base_ = '{CONFIGS}/moca_vit-b16_own-images.py'\n"
        "data_root = '/setting'\n"
        'part = _base_.train_dataloader.dataset\n'
        f'part.data_root = {own!r} or part.data_root\n'
        f'whole = dict(_delete_=True, **{wrapper})\n'
        'train_dataloader = dict(dataset=whole)\n'
    )
    key = f'train_dataloader.dataset.{inside}.data_root'
    assert place(read_run(file), key)[1] == (own or '/setting')
    child = tmp_path / 'child.py'  # wraps the inherited set again
    child.write_text(
        "_base_ = 'own.py'\npart = _base_.train_dataloader.dataset\n"
        'whole = dict(_delete_=True, type="RepeatDataset", times=2, '
        'dataset=part)\ntrain_dataloader = dict(dataset=whole)\n'
    )
    inner = f'train_dataloader.dataset.dataset.{inside}.data_root'
    assert place(read_run(child), inner)[1] == (own or '/setting')
    bare = tmp_path / 'bare.py'
    bare.write_text(
        "_base_ = 'own.py'\ndata_root = '/other'\n"
        f'part = _base_.train_dataloader.dataset.{inside}\n'.replace(
            '.0', '[0]'
        )
        + 'train_dataloader = dict(dataset=dict(_delete_=True, **part))\n'
    )
    key = 'train_dataloader.dataset.data_root'
    assert place(read_run(bare), key)[1] == '/other'


@pytest.mark.parametrize(
    'template, texts, options, expected',
    [
        # Values in lists, and parts that a setting would replace.
        ('segmentation/segmenter_moca-vit-b16_mask_own-masks-512x512.py',
         ['crop_size = (256, 256)', 'p = _base_.train_pipeline\n'
          'p[4].crop_size = (128, 128)\n'
          'train_dataloader = dict(dataset=dict(pipeline=p))'], {},
         ('train_dataloader.dataset.pipeline.RandomCrop.crop_size',
          (128, 128))),
        ('segmentation/segmenter_moca-vit-b16_mask_own-masks-512x512.py',
         ['epochs = 3', 'train_cfg = dict(_delete_=True, max_iters=500, '
          'type="IterBasedTrainLoop")\n'
          'param_scheduler = []'], {},
         ('train_cfg.max_epochs', None)),
        ('classification/attentive_vit-b16_own-classes.py',
         ['epochs = 3', 'train_cfg = dict(max_iters=500)'], {},
         ('train_cfg.max_iters', 500)),
        ('classification/attentive_vit-b16_own-classes.py',
         ['epochs = 3'], {'train_cfg.max_iters': 500},
         ('train_cfg.max_epochs', None)),
    ],
)  # fmt: skip
def test_nearer_values_take_a_setting_away(
    tmp_path, template, texts, options, expected
):
    file = inherited(tmp_path, texts, CONFIGS / template)
    key, value = expected
    assert place(read_run(file, options), key)[1] == value


def test_settings_that_a_run_does_not_follow(tmp_path):
    """Without our reader, MMEngine takes a setting for a variable."""
    file = tmp_path / 'own.py'
    file.write_text(f'_base_ = {str(SEGMENTATION)!r}\nepochs = 3\n')
    assert unwritten_settings(Config.fromfile(file)) == ['epochs=3']
    assert not unwritten_settings(read_run(file))
    assert not unwritten_settings(Config.fromfile(SEGMENTATION))


def test_settings_stand_together(tmp_path):
    """The settings in one base apply to another base, in either order."""
    data, child = tmp_path / 'data.py', tmp_path / 'child.py'
    data.write_text("classes = ['a', 'b', 'c']\nepochs = 7\n")
    elsewhere = [f'data_root={tmp_path}/shards']
    bases = [str(data), str(CLASSES)]
    for order in (bases, bases[::-1]):
        child.write_text(f'_base_ = {order}\n')
        cfg = read_run(child, elsewhere)
        assert cfg.train_cfg.max_epochs == 7
        assert cfg.model.head.num_classes == 3
    data.write_text("classes = 'gone.txt'\n")
    with pytest.raises(ValueError, match='gone.txt'):
        read_run(child)
    assert read_run(child, ['classes=a,b']).model.head.num_classes == 2


@pytest.mark.slow
def test_parts_of_a_data_set_keep_their_roots(tmp_path):
    """Roots in a file win over its data_root; a later data_root is refused."""
    own = tmp_path / 'own.py'
    own.write_text(
        f"_base_ = '{CONFIGS}/moca_vit-b16_own-images.py'\n"
        "data_root = 'a'\n"
        'one = dict(_base_.train_dataloader.dataset)\n'
        "two = [dict(one, data_root='a'), dict(one, data_root='b')]\n"
        "both = dict(type='ConcatDataset', datasets=two)\n"
        'train_dataloader = dict(dataset=dict(_delete_=True, **both))\n'
    )
    parts = read_run(own).train_dataloader.dataset.datasets
    assert [part.data_root for part in parts] == ['a', 'b']
    child = tmp_path / 'child.py'
    child.write_text("_base_ = 'own.py'\ndata_root = 'c'\n")
    for file, options in ((own, ['data_root=c']), (child, [])):
        with pytest.raises(ValueError, match='a, b'):
            read_run(file, options)
    first = 'train_dataloader.dataset.datasets.0.data_root'
    for root in 'cb':
        parts = read_run(own, {first: root}).train_dataloader.dataset.datasets
        assert [part.data_root for part in parts] == [root, 'b']


COCO = CONFIGS / 'detection/cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'
SET = 'test_dataloader.dataset'


def data_set(settings):
    """Return a config line that changes the test's data set."""
    return f'test_dataloader = dict(dataset=dict({settings}))'


def judged(file):
    """Return a config line that sets the evaluator's annotation file."""
    return f'test_evaluator = dict(ann_file={file!r})'


REPEATED = (
    "_delete_=True, type='RepeatDataset', times=2, dataset=dict("
    "type='mmmoca.CheckedCocoDataset', data_root='a', ann_file='b.json')"
)
VAL = 'annotations/val.json'
A = "data_root = 'a'"


@pytest.mark.parametrize(
    'base, texts, options, expected',
    [
        (DETECTION, [''], ['data_root=a'], f'a/{VAL}'),
        (DETECTION, [A], [f'{SET}.ann_file=b.json'], 'a/b.json'),
        (DETECTION, [data_set("ann_file='b.json'")], ['data_root=a'],
         'a/b.json'),
        (DETECTION, [data_set("data_root='a'") + '\n' + judged('b.json')], [],
         f'a/{VAL}'),
        (DETECTION, [A + '\n' + judged(f'a/{VAL}')], ['data_root=b'],
         f'b/{VAL}'),
        (DETECTION, [A + '\n' + judged(f'a/{VAL}'), "data_root = 'b'"], [],
         f'b/{VAL}'),
        (DETECTION, [data_set(REPEATED)], [], 'a/b.json'),
        (COCO, [''], [f'{SET}.data_root=a'],
         'a/annotations/instances_val2017.json'),
        (COCO, [data_set("data_root='a', ann_file='b.json'")], [], 'a/b.json'),
        (COCO, [data_set("data_root='a'")],
         [f'{SET}.ann_file=b.json', 'test_evaluator.ann_file=./a/b.json'],
         'a/b.json'),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_an_evaluator_reads_what_its_data_set_does(
    tmp_path, base, texts, options, expected
):
    file = inherited(tmp_path, texts, base)
    cfg = read_run(file, options)
    assert cfg.test_evaluator.ann_file == expected
    # This is the config that a run leaves.
    cfg.dump(tmp_path / 'dumped.py')
    inside = f'{SET}.dataset' if REPEATED in texts[0] else SET
    new = {f'{inside}.ann_file': 'new'}
    root = place(cfg, f'{inside}.data_root')[1]
    evaluator = read_run(tmp_path / 'dumped.py', new).test_evaluator
    assert evaluator.ann_file == f'{root}/new'


def test_parts_have_no_file_that_an_evaluator_could_read():
    parts = [dict(ann_file='a'), dict(ann_file='b')]
    cfg = dict(val_evaluator=dict(type='CocoMetric', ann_file='a'))
    cfg['val_dataloader'] = dict(dataset=dict(datasets=parts[:1]))
    assert [said for _, _, said in copies(Config(cfg))] == ['a']
    cfg['val_dataloader'] = dict(dataset=dict(datasets=parts))
    assert not [*copies(Config(cfg))]


@pytest.mark.slow
def test_a_pyramid_reads_other_layers(tmp_path):
    sizes = dict(embed_dims=64, num_heads=2, feedforward_channels=128)
    for depth, layers in (
        (4, [0, 1, 2, 3]),
        (5, [0, 1, 2, 4]),
        (6, [1, 2, 3, 5]),
        (24, [7, 11, 15, 23]),
    ):
        arch = {'arch': dict(sizes, num_layers=depth)}
        cfg = read_run(DETECTION, arch)
        assert cfg.model.backbone.out_indices == layers
    # The first file names the last four of twelve layers.
    for name, base, line in (
        (
            'a',
            DETECTION,
            'model = dict(backbone=dict(out_indices=[8,9,10,11]))',
        ),
        ('b', tmp_path / 'a.py', f'arch = {dict(sizes, num_layers=4)}'),
    ):
        file = tmp_path / f'{name}.py'
        file.write_text(f'_base_ = {str(base)!r}\n{line}\n')
    assert read_run(file).model.backbone.out_indices == [0, 1, 2, 3]
    # Layers that a config names itself count, if there are as many.
    own = {'model.backbone.out_indices': [0, 1, 1, 2]}
    arch = {'arch': dict(sizes, num_layers=3)}
    assert read_run(DETECTION, arch | own).model.backbone.out_indices[3] == 2


def test_mmseg_infers_as_it_tests(tmp_path, monkeypatch):
    """A file may inherit the template of an installed package."""
    install_configs(monkeypatch, tmp_path)
    child = tmp_path / 'own.py'
    child.write_text(f"_base_ = 'mmmoca::segmentation/{SEGMENTATION.name}'\n")
    for file in (SEGMENTATION, child):
        cfg = read_run(file, ['scale=96,72'])
        assert cfg.test_pipeline == cfg.test_dataloader.dataset.pipeline
        assert cfg.test_pipeline[1].scale == (96, 72)


def nested(key, value):
    """Return a dict of dicts with a value at a dotted key."""
    for name in reversed(key.split('.')):
        value = {name: value}
    return value


def test_a_variable_that_is_read_already(tmp_path):
    """Options for variables that the config has already read are refused."""
    with pytest.raises(ValueError, match=r'train_dataloader\.dataset\.pipe'):
        read_run(CONFIG, ['train_pipeline.0.type=mmmoca.LoadBands'])
    file = tmp_path / 'own.py'
    file.write_text(
        f'_base_ = {str(CONFIG)!r}\nown = dict(a=1)\nown["b"] = 2\n'
    )
    assert read_run(file, ['own.b=3']).own == dict(a=1, b=3)
    # The variable equals a part that is not computed from it.
    file.write_text(
        f"_base_ = {str(CONFIG)!r}\nown = dict(type='PackInputs')\n"
    )
    assert read_run(file, ['own.b=3']).own == dict(type='PackInputs', b=3)


def test_placeholders_of_mmengine(tmp_path, monkeypatch):
    """A file may be invalid until MMEngine's placeholders are replaced."""
    monkeypatch.setenv('OWN_EPOCHS', '7')
    base = CONFIGS / 'moca_vit-b16_own-images.py'
    for name, text in {
        'a.yaml': f'_base_: {base}\nepochs: {{{{$OWN_EPOCHS:3}}}}\n',
        'a.json': f'{{"_base_": "{base}", "epochs": {{{{$OWN_EPOCHS:3}}}}}}',
        'a.py': f"_base_ = '{base}'\nepochs = int('{{{{$OWN_EPOCHS:3}}}}')\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert read_run(tmp_path / name).train_cfg.max_epochs == 7


def test_settings_and_whole_keys(tmp_path):
    """Full keys win over settings, and the folders of classes are counted."""
    pipeline = 'train_dataloader.dataset.pipeline'
    options = {f'{pipeline}.RandomCrop.crop_size': 16, 'crop_size': 32}
    options |= {'data_root': 'mine'} | NO_VALIDATION
    cfg = read_run(SEGMENTATION, options)
    assert cfg.train_dataloader.dataset.pipeline[4].crop_size == 16
    assert cfg.model.test_cfg.crop_size == (32, 32)
    (tmp_path / 'train' / 'cat').mkdir(parents=True)  # a folder of a class
    cfg = read_run(CLASSES, [f'data_root={tmp_path}'])
    assert cfg.model.head.num_classes == 1
    twice = Config(dict(pipeline=[dict(type='Pad'), dict(type='Pad', size=3)]))
    assert place(twice, 'pipeline.1.size') == ('pipeline.1.size', 3)
    with pytest.raises(ValueError, match='param_scheduler.0.end'):
        read_run(CONFIG, ['param_scheduler.0.end=3'])
    (tmp_path / 'names.txt').write_text('cat\ndog\n\n', 'utf-16')
    for names in ('cat', 'cat,dog'):  # as on a command line
        cfg = read_run(SEGMENTATION, {'classes': names})
        assert cfg.model.decode_head.num_classes == names.count(',') + 1
    names = [f'classes={tmp_path}/names.txt']
    # Users' scripts may know the function by this name.
    cfg = load_config(SEGMENTATION, cfg_options=names)
    assert cfg.train_dataloader.dataset.metainfo.classes == ['cat', 'dog']
    assert cfg.model.decode_head.num_classes == 2


def test_a_training_without_validation(tmp_path):
    """The validation's folder may be missing; MMEngine needs three Nones."""
    options = dict(data_root=str(tmp_path), val_cfg=None)
    cfg = read_run(TINY, options, stages=['train', 'val'])
    assert {key: cfg[key] for key in NO_VALIDATION} == NO_VALIDATION


def test_a_test_needs_no_validation_that_its_settings_fit(tmp_path):
    """The config of a run on unlabelled images is an example."""
    agreement = dict(type='mmmoca.NeighbourAgreementValLoop', _delete_=True)
    own = Config.fromfile(TINY)
    own.merge_from_dict(dict(val_cfg=agreement))
    own.dump(tmp_path / 'own.py')
    options = dict(data_root=str(tmp_path), knn_root=str(tmp_path))
    cfg = read_run(tmp_path / 'own.py', options, stages=['test'])
    assert cfg.test_cfg.data_root == str(tmp_path)
    with pytest.raises(ValueError, match='^knn_root'):
        read_run(tmp_path / 'own.py', options, stages=['train'])


def test_a_view_without_a_transform_has_probability_0():
    assert read_run(TINY, ['solarize=0', 'flip=.5'])


def test_parts_of_ones_own_lie_beside_the_config(tmp_path):
    """An earlier config may have modules of the same names."""
    for name in 'ab':
        folder = tmp_path / name
        folder.mkdir()
        (folder / 'own_part.py').write_text('from own_help import NAME\n')
        (folder / 'own_help.py').write_text(f'NAME = {name!r}\n')
        (folder / 'own.py').write_text(
            f"_base_ = '{CONFIG}'\n"
            "custom_imports = dict(imports=['own_part'])\n"
        )
    before = [*sys.path]
    parts = {}
    for name in 'abab':
        read_run(tmp_path / name / 'own.py')
        part = sys.modules['own_part']
        assert name == part.NAME and sys.path == [
            *before,
            f'{tmp_path}/{name}',
        ]
        assert parts.setdefault(name, part) is part  # registered once
    # The module is in the same folder as the inherited config.
    (tmp_path / 'heir.py').write_text("_base_ = 'a/own.py'\n")
    read_run(tmp_path / 'heir.py')
    assert sys.modules['own_part'] is parts['a']
    read_run(tmp_path / 'b' / 'own.py')
    # Another package already has this name.
    (tmp_path / 'b' / 'json.py').touch()
    own = tmp_path / 'b' / 'own.py'
    own.write_text(own.read_text().replace("'own_part'", "'json'"))
    with pytest.raises(ImportError, match='rename'):
        read_run(own)
    sys.path.pop()
    del sys.modules['own_part'], sys.modules['own_help']


NUMBERS = st.integers() | st.floats(allow_nan=False)
TEXTS = st.text(' ,;()[]{}=\'"\\/.~-+0123eNonxé\n', max_size=20)


@given(value=NUMBERS | st.booleans() | st.lists(NUMBERS, min_size=1))
def test_values_come_back_as_they_were_written(value):
    """All values except texts come back, whatever the config held."""
    for held in (None, 0.5, True, [2], 'auto'):
        cfg = Config(dict(part=dict(value=held)))
        assert read_option(cfg, 'part.value', str(value)) == value
    if isinstance(value, list):
        cfg = Config(dict(part=dict(value=(1, 2))))
        assert read_option(cfg, 'part.value', str(value)) == tuple(value)


def test_numbers_of_numpy_become_numbers_of_python(tmp_path):
    rates = {'optim_wrapper.optimizer.betas': np.array([0.9, 0.95])}
    size = dict(batch_size=np.int64(8), jitter=np.float32(0.5))
    cfg = read_run(TINY, size | rates)
    cfg.dump(tmp_path / 'dumped.py')
    found = Config.fromfile(tmp_path / 'dumped.py')
    assert found.optim_wrapper.optimizer.betas == [0.9, 0.95]
    assert type(cfg.train_dataloader.batch_size) is int


@given(text=TEXTS, key=st.sampled_from(['file', 'data_root', 'work_dir']))
def test_any_text_is_a_path(text, key):
    cfg = Config(dict(part=dict(file='x', data_root='data', work_dir=None)))
    found = read_option(cfg, f'part.{key}', text)
    nothing = text == 'None' and key != 'data_root'
    assert found is None if nothing else found == text


def test_texts_stay_texts_where_the_config_has_them():
    held = dict(lr=0.1, auto='auto', size=3, mode='max', data_root='data')
    held |= dict(scale=(2, 1), sides=[2])
    pipeline = [dict(type='A'), dict(file='x')]
    cfg = Config(dict(part=dict(held, load_from=None, pipeline=pipeline)))

    def read(key, text):
        return read_option(cfg, f'part.{key}', text)

    for text in ('a,b', '2024', '1e3', '[x]', '(a', 'my data, too', ''):
        for key in ('data_root', 'load_from', 'new_root', 'pipeline.1.file'):
            assert read(key, text) == text
    assert read('data_root', 'None') == 'None'
    assert read('mode', 'a,(b') == 'a,(b'
    assert read('mode', 'None') is read('load_from', 'None') is None
    assert read('lr', '1e-3') == read('auto', '1e-3') == 1e-3
    assert read('size', '[(1,x),2]') == [(1, 'x'), 2]
    assert read('size', '1, 2') == [1, 2] and read('size', ' 3') == 3
    assert read('scale', '[4,2]') == read('scale', '4,2') == (4, 2)
    assert read('sides', '(4,2)') == [4, 2] and read('scale', '4') == 4
    assert read('new', '/my data/1 2') == '/my data/1 2'
    assert read('needs_checkpoint', 'False') is False
    for text in ('dict(a=1,b=2)', 'f(1,2)', '{a:1,b:2}', '[1,2'):
        with pytest.raises(ValueError, match='part.new='):
            read('new', text)


def test_the_launcher_is_what_started_the_processes(monkeypatch):
    for name, variables in dict(
        pytorch=dict(LOCAL_RANK='0', WORLD_SIZE='2'),
        slurm=dict(SLURM_STEP_ID='0', SLURM_STEP_NUM_TASKS='2'),
        mpi=dict(OMPI_COMM_WORLD_LOCAL_RANK='0', OMPI_COMM_WORLD_SIZE='2'),
    ).items():
        refused = pytest.raises(RuntimeError, match=name)
        with mock.patch.dict('os.environ', variables), refused:
            load()
    monkeypatch.setenv('WORLD_SIZE', '2')  # left by an outer job
    load()


def test_files_that_need_not_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'data' / 'imagenet').mkdir(parents=True)
    place, kind = (
        f'train_dataloader.dataset.{k}' for k in ('data_root', 'type')
    )
    moved = {'val_cfg.data_root': 'other'}
    for options in (
        moved,
        {kind: 'mmmoca.ImageShards', place: '{0..9}.tar'},
        {place: 's3://bucket', 'load_from': 's3://bucket/a.pth'},
        dict(load_from='mmmoca-teacher://https://there/a.pth'),
    ):
        check_paths(load(**options), 'train')


def test_bases_and_modules_of_others(tmp_path):
    """A config may inherit a fork of mmseg and import from a folder above."""
    pytest.importorskip('mmseg')
    (tmp_path / 'made').mkdir()
    (tmp_path / 'made/here.py').write_text('')
    config = tmp_path / 'configs/own.py'
    (tmp_path / 'configs/made').mkdir(parents=True)  # without the module
    config.write_text(
        "_base_ = 'mmseg::_base_/datasets/ade20k.py'\n"
        "custom_imports = dict(imports=['mmengine.hooks', 'made.here'])\n"
    )
    cfg = read_run(config)
    assert cfg.train_dataloader.dataset.type == 'ADE20KDataset'
    assert 'made.here' in sys.modules
    # The package is on the path, but not installed.
    lost = FileNotFoundError(2, '', '/there/a/.mim/model-index.yml')
    with (
        mock.patch.object(Config, 'fromfile', side_effect=lost),
        pytest.raises(FileNotFoundError, match='pip install'),
    ):
        read_run(config)


@pytest.mark.parametrize(
    ('registry', 'part', 'named'),
    [
        (
            TRANSFORMS,
            dict(type='mmmoca.LoadImage', colour='grey'),
            ['a.colour', 'color_t'],
        ),
        # An argument of a parent class, passed through **kwargs.
        (MODELS, dict(type='mmmoca.MOCAViT', drop_pth_rate=0), ['drop_path_']),
        (MODELS, dict(type='mmmoca.MOCCA'), ['a.type', 'mmmoca.MOCA']),
        (
            MODELS,
            dict(
                type='mmmoca.AssignmentHead', embed_dims=8, lambda_img='lots'
            ),
            ["lambda_img='lots'"],
        ),
    ],
)
def test_an_error_of_building_names_the_key(registry, part, named):
    error = raises((TypeError, ValueError), *named)
    with error, explained(dict(a=part)):
        registry.build(part)


def test_either_mmengine_says_whose_argument_it_is():
    def build(obj_cls, text):
        raise TypeError(text)

    fork = "LoadImage.__init__() got an unexpected keyword argument 'colour'"
    own = f'class `LoadImage` in mmmoca/datasets/loading.py: {fork}'
    for text in (fork, own):
        error = pytest.raises(TypeError, match='^colour: .*color_type')
        with error, explained({}):
            build(TRANSFORMS.get('mmmoca.LoadImage'), text)
    # The class builds a part, which has arguments of its own.
    with pytest.raises(TypeError, match='MaskingPlan'), explained({}):
        build(
            MODELS.get('mmmoca.MOCA'), fork.replace('LoadImage', 'MaskingPlan')
        )


def test_other_errors_stay_as_they_are():
    with pytest.raises(KeyError, match='^1$'), explained({}):
        {}[1]
