# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Stores a folder of images as shards and as a Hugging Face data set."""

from pathlib import Path

from mmmoca.datasets import ImageFolder

from .tools import load_tool


def write_shards(images, out, number=10, with_label=True):
    """Write shards of images; return how many were written and unreadable."""
    tool = load_tool('dataset_converters/make_shards')
    return tool.make_shards(images, out, with_label, number)


def write_arrow(images, out, **columns):
    """Write the images of class folders in order, plus further columns."""
    import datasets

    folder = ImageFolder(str(images), pipeline=[])
    infos = [folder.get_data_info(i) for i in range(len(folder))]
    classes = datasets.ClassLabel(names=list(folder.CLASSES))
    pictures = [
        dict(bytes=Path(info['img_path']).read_bytes(), path=None)
        for info in infos
    ]
    labels = [info['gt_label'] for info in infos]
    written = datasets.Dataset.from_dict(
        dict(image=pictures, label=labels),
        features=datasets.Features(image=datasets.Image(), label=classes),
    )
    for name, column in columns.items():
        written = written.add_column(name, column)
    written.save_to_disk(out)
