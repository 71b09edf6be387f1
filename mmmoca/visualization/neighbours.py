# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Which images are shown, and which of a bank are nearest to them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mmmoca.evaluation import knn_search

__all__ = ['Neighbours', 'pick_images']


class Neighbours(NamedTuple):
    """Nearest images of each row, one block of the picture.

    Attributes:
        title (str): What the block is headed by.
        dataset (Dataset): The bank.
        rows (List[List[int]]): Indices into it for each image, best first.
        same_class (List[List[bool]], optional): Whether each of them is of
            the same class as its image.
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
            title (str): What the block is headed by.
            dataset (Dataset): The bank.
            query (Tensor): L2-normalised features, (Q, D).
            bank (Tensor): L2-normalised features of the bank, (N, D).
            labels (Tuple[Tensor, Tensor], optional): Classes of queries and
                bank, (Q, ) and (N, ).
            own_rows (Sequence[int], optional): If the queries are in the
                bank, the row of each, which is left out.
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
    """Pick images by chance, of as many different classes as there are.

    Args:
        labels (Tensor, optional): Class of each image, (total, ).
        total (int): Number of images to pick from.
        count (int): Number of images to pick; all of them if fewer exist.

    Returns:
        List[int]: Indices, sorted by class and then by index.
    """
    order = torch.randperm(total).tolist()
    if labels is None:
        return sorted(order[:count])
    turns = {}  # class -> how many of it come earlier in the order
    turned = []
    for index in order:
        label = int(labels[index])
        turns[label] = turns.get(label, -1) + 1
        turned.append((turns[label], len(turned), index))
    chosen = [index for *_, index in sorted(turned)[:count]]
    return sorted(chosen, key=lambda index: (int(labels[index]), index))
