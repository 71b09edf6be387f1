# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The choice of images, and their nearest neighbours in a bank."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mmmoca.evaluation import knn_search


class Neighbours(NamedTuple):
    """The nearest images of each image: one block of the picture.

    Attributes:
        title (str): Title of the block.
        dataset (Dataset): The bank.
        rows (List[List[int]]): Indices into the bank for each image, nearest
            first.
        same_class (List[List[bool]], optional): Whether each neighbour has
            the class of its image.
    """

    title: str
    dataset: Dataset
    rows: list[list[int]]
    same_class: list[list[bool]] | None = None

    @classmethod
    def search(
        cls,
        title: str,
        dataset: Dataset,
        query: Tensor,
        bank: Tensor,
        labels: tuple[Tensor, Tensor] | None = None,
        own_rows: Sequence[int] | None = None,
        count: int = 5,
    ) -> 'Neighbours':
        """Find the nearest images of each query by cosine similarity.

        Args:
            title (str): Title of the block.
            dataset (Dataset): The bank.
            query (Tensor): L2-normalised features, (Q, D).
            bank (Tensor): L2-normalised features of the bank, (N, D).
            labels (Tuple[Tensor, Tensor], optional): Classes of queries and
                bank, (Q, ) and (N, ).
            own_rows (Sequence[int], optional): Rows of the queries in the
                bank, which are left out.
            count (int): Neighbours of each query. Defaults to 5.

        Returns:
            Neighbours: The block.
        """
        own_rows = [None] * len(query) if own_rows is None else own_rows
        rows = [
            [row for row in found if row != own][:count]
            for found, own in zip(
                knn_search(query, bank, count + 1)[1].tolist(), own_rows
            )
        ]
        same_class = None
        if labels is not None:
            same_class = [
                (labels[1][found] == label).tolist()
                for found, label in zip(rows, labels[0])
            ]
        return cls(title, dataset, rows, same_class)


def pick_images(labels: Tensor | None, total: int, count: int) -> list[int]:
    """Pick random images from as many different classes as possible.

    Args:
        labels (Tensor, optional): Class of each image, (total, ).
        total (int): Number of images to pick from.
        count (int): Number of images to pick, at most ``total``.

    Returns:
        List[int]: Indices, sorted by class and then by index.
    """
    labels = torch.zeros(total) if labels is None else labels
    classes = defaultdict(list)
    for index in torch.randperm(total).tolist():
        classes[int(labels[index])].append(index)
    turns = chain.from_iterable(zip_longest(*classes.values()))
    chosen = [index for index in turns if index is not None][:count]
    return sorted(chosen, key=lambda index: (int(labels[index]), index))
