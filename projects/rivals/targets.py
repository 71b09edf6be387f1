# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What MOCA's targets say about images, and the state of its codebook."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmmoca.models import MOCA

__all__ = ['TARGETS', 'codes_of', 'features_of', 'information', 'likeness']

# What is measured, as columns of a table.
TARGETS = {
    'image': 'nats of image',
    'class': 'of class',
    'position': 'of position',
    'perplexity': 'words in use',
    'similarity': 'words alike',
    'knn_bag': 'k-NN by bag',
    'knn_places': 'by place',
}


@torch.no_grad()
def codes_of(model: MOCA, images: Tensor) -> Tensor:
    """The words that the teacher assigns.

    Args:
        model (MOCA): Its teacher and codebook are looked at.
        images (Tensor): Whole and normalised, (N, C, H, W).

    Returns:
        Tensor: Assignments q_T of all tokens, (N, L, K), on the CPU.
    """
    assign, encode = model.codebook.assign, model.encode_teacher
    return torch.cat(
        [assign(encode(part)).codes().cpu() for part in images.split(250)]
    )


def likeness(words: Tensor) -> float:
    """Mean cosine between two words, which is 1 where all are the same.

    Args:
        words (Tensor): Unit vectors, (K, D).

    Returns:
        float: Of all pairs of different words.
    """
    count = len(words)
    pairs = words.sum(dim=0).square().sum() - count
    return (pairs / (count * (count - 1))).item()


def features_of(codes: Tensor, inner: Tensor) -> dict[str, Tensor]:
    """What the student is to predict of images, for k-NN.

    Args:
        codes (Tensor): Of :func:`codes_of`.
        inner (Tensor): Indices of the tokens that bags are made of.

    Returns:
        dict[str, Tensor]: ``bag``, (N, K), the target of L_IMG, which has lost
        what was where; ``places``, (N, L K), the targets of L_LOC side by
        side. Roots of frequencies, so that rows are unit vectors.
    """
    return dict(
        bag=codes[:, inner].mean(dim=1).sqrt(),
        places=F.normalize(codes.sqrt().flatten(1)),
    )


def information(codes: Tensor, labels: Tensor) -> dict[str, float]:
    """Mutual information between a token's word and where it is from.

    Args:
        codes (Tensor): Of :func:`codes_of`.
        labels (Tensor): Their classes, (N, ).

    Returns:
        dict[str, float]: In nats, what the ``image``, its ``class`` and the
        ``position`` of the token tell about the word; and ``perplexity``,
        the exponential of the entropy of all words.
    """
    of_image = codes.mean(dim=1)
    classes, sizes = labels.unique(return_counts=True)
    of_class = torch.stack(
        [of_image[labels == c].mean(dim=0) for c in classes]
    )
    total = _entropy(of_image.mean(dim=0))
    shares = sizes / sizes.sum()
    return {
        'image': (total - _entropy(of_image).mean()).item(),
        'class': (total - shares @ _entropy(of_class)).item(),
        'position': (total - _entropy(codes.mean(dim=0)).mean()).item(),
        'perplexity': total.exp().item(),
    }


def _entropy(distributions: Tensor) -> Tensor:
    return torch.special.entr(distributions).sum(dim=-1)
