# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What MOCA's targets say about images, and the state of its codebook."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmmoca.models import MOCA

__all__ = ['TARGETS', 'describe_targets', 'information', 'targets_as_features']

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
def describe_targets(
    model: MOCA, images: Tensor, labels: Tensor
) -> dict[str, float]:
    """What the words that the teacher assigns tell, and how words differ.

    Args:
        model (MOCA): Its teacher and codebook are looked at.
        images (Tensor): Whole and normalised, (N, C, H, W).
        labels (Tensor): Their classes, (N, ).

    Returns:
        dict[str, float]: See :func:`information`; and ``similarity``, the
        mean cosine between two words, which is 1 where all are the same.
    """
    tokens = torch.cat([model.encode_teacher(x) for x in images.split(250)])
    codebook = model.codebook
    words = codebook.words
    # Of all pairs, without those of a word and itself.
    similarity = (words.sum(dim=0).square().sum() - len(words)) / (
        len(words) * (len(words) - 1)
    )
    return dict(
        **information(codebook.assign(tokens).codes().cpu(), labels),
        similarity=similarity.item(),
    )


@torch.no_grad()
def targets_as_features(model: MOCA, images: Tensor) -> dict[str, Tensor]:
    """What the student is to predict of images, for k-NN.

    Args:
        model (MOCA): Its teacher and codebook are looked at.
        images (Tensor): Whole and normalised, (N, C, H, W).

    Returns:
        dict[str, Tensor]: ``bag``, (N, K), the target of L_IMG, which has lost
        what was where; ``places``, (N, L K), the targets of L_LOC side by
        side. Roots of frequencies, so that rows are unit vectors.
    """
    found = []
    for part in images.split(250):
        codes = model.codebook.assign(model.encode_teacher(part)).codes()
        bags = codes[:, model.codebook.inner].mean(dim=1)
        found.append((bags.sqrt(), F.normalize(codes.sqrt().flatten(1))))
    return dict(zip(('bag', 'places'), map(torch.cat, zip(*found))))


def information(codes: Tensor, labels: Tensor) -> dict[str, float]:
    """Mutual information between a token's word and where it is from.

    Args:
        codes (Tensor): Assignments q_T of N images, (N, L, K).
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
