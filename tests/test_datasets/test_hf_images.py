# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Hugging Face data sets on a disk, and the errors of broken ones."""

import json

import pytest
from mmengine import fileio

from mmmoca.datasets import HFImages, LoadImage

from ..helpers.stores import write_arrow

datasets = pytest.importorskip('datasets')
LOAD = [LoadImage()]


@pytest.fixture(scope='module')
def root(root):
    """Save a data set, and one with splits."""
    write_arrow(root / 'val', root / 'one')
    one = datasets.load_from_disk(root / 'one')
    splits = datasets.DatasetDict(few=one.select([3]), train=one)
    # Some versions divide by the rows of a split to count them.
    splits.save_to_disk(root / 'splits', num_shards=dict.fromkeys(splits, 1))
    return root


def test_splits_and_columns(root):
    train = HFImages(str(root / 'splits'), 'train', pipeline=LOAD)
    one = HFImages(str(root / 'one'), label_column='label', pipeline=LOAD)
    assert train.CLASSES == one.CLASSES == ('class_0', 'class_1', 'class_2')
    assert train.get_gt_labels().tolist() == sorted([0, 1, 2] * 5)
    assert (train[2]['img'] == one[2]['img']).all()
    options = dict(indices=3, with_label=False, pipeline=LOAD)
    few = HFImages(str(root / 'one'), **options)
    assert len(few) == 3 and 'gt_label' not in few[0]


def test_rows_name_files_of_their_folder_only(tmp_path, root):
    image, folder = root / 'val/class_0/0.jpg', tmp_path / 'a'
    (tmp_path / 'beside.png').write_bytes(image.read_bytes())
    rows = ['files/0.png', '../beside.png', str(image), image.as_uri()]
    # The library itself would put the bytes into the data set.
    kind = dict(bytes=datasets.Value('binary'), path=datasets.Value('string'))
    datasets.Dataset.from_dict(
        dict(image=[dict(bytes=None, path=row) for row in rows]),
        datasets.Features(image=kind),
    ).save_to_disk(folder)
    info = json.loads((folder / 'dataset_info.json').read_text())
    info['features'] = dict(image=dict(_type='Image'))
    (folder / 'dataset_info.json').write_text(json.dumps(info))
    (folder / 'files').mkdir()
    (folder / 'files/0.png').write_bytes(image.read_bytes())
    assert HFImages(str(folder), with_label=False, pipeline=LOAD)
    assert fileio.get(f'arrow://{folder}#0/image')
    for row in (1, 2, 3):
        with pytest.raises(OSError, match='folder'):
            fileio.get(f'arrow://{folder}#{row}/image')
