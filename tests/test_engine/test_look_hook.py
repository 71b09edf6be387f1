# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run says about its data, and when."""

import contextlib
import io

import pytest
from PIL import Image

from mmmoca.engine import training
from mmmoca.engine.config import read_run

from ..helpers.distributed import run_processes
from ..helpers.images import write_images
from ..helpers.runs import own_config
from ..helpers.tools import run_tool

ODD = ' with transparency'


@pytest.fixture
def place(tmp_path):
    """Write sixteen images, one of them odd; return a config for them."""
    write_images(tmp_path / 'images', train=4, val=4, classes=2)
    first = tmp_path / 'images/train/class_0/0.jpg'
    with Image.open(first) as image:
        image.convert('RGBA').save(first.with_suffix('.png'))
    first.unlink()
    options = dict(epochs=1, log_level='INFO')
    cfg = own_config(tmp_path / 'images', tmp_path / 'run', **options)
    cfg.dump(tmp_path / 'own.py')
    return tmp_path


def train(place, *options):
    line = place / 'own.py', '--work-dir', place / 'run', *options
    printed = run_tool('tools/train.py', *line)
    (log,) = place.glob('run/*/*.log')
    return printed, log.read_text()


@pytest.mark.slow
def test_the_log_has_all_and_the_console_what_is_odd(place):
    """Workers repeat no warning, and channel numbers are in RGB order."""
    broken = place / 'images/train/class_0/broken.jpg'
    broken.write_bytes(b'\xff\xd8\xff broken')
    numbers = (
        f'model.data_preprocessor.{option}'
        for option in ('to_rgb=False', 'mean=[1,2,3]')
    )
    workers = 'train_dataloader.num_workers=2'
    printed, log = train(place, '--cfg-options', workers, *numbers)
    assert printed.count('broken.jpg') == 1
    assert printed.count(ODD) == 1 and 'smallest 60 x 80' not in printed
    for text in ('smallest 60 x 80', 'JPEG RGB of 8 bits', ODD, ' 3, 2, 1'):
        assert text in log


@pytest.mark.slow
def test_runs_that_do_not_look(place):
    for text in train(place, '--cfg-options', 'look=None'):
        assert 'transparency' not in text and '60 x 80' not in text


def printed_by(place):
    """Return what a process of a run prints."""
    cfg = read_run(place / 'own.py', launcher='pytorch', stages=['train'])
    with contextlib.redirect_stdout(io.StringIO()) as output:
        training.run(cfg)
    return output.getvalue()


@pytest.mark.processes
@pytest.mark.filterwarnings('ignore')
def test_processes_say_it_once(place):
    first, second = run_processes(printed_by, 2, place)
    assert first.count(ODD) == 1 and not second.count(ODD)


def test_wrong_data_leave_nothing(place):
    """An evaluation skips no image."""
    broken = place / 'images/val/class_1/2.jpg'
    broken.write_text('no image')
    loaders = 'val_dataloader', 'val_cfg.bank_dataloader'
    options = {f'{loader}.num_workers': 0 for loader in loaders}
    options['knn_root'] = str(place / 'images')
    cfg = own_config(place / 'images', place / 'run', **options)
    # The look raises a ValueError; reading the image would raise an OSError.
    with pytest.raises(ValueError, match='class_1/2.jpg'):
        training.run(cfg)
    assert not [*place.glob('run/**/*.*')]
