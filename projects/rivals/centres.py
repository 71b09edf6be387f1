# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Other ways to centre the teacher's tokens, for the ablation of it."""

from mmengine.registry import MODELS
from torch import Tensor

from mmmoca.models import OnlineCodebook
from mmmoca.models.targets import Targets


@MODELS.register_module()
class CentreVariant(OnlineCodebook):
    """A codebook that centres by another mean, or for one purpose alone.

    Args:
        mean (str): 'position' (default), the running mean of each position;
            'all', one running mean for all positions; 'batch', the mean of
            each position over this process's batch, without a memory.
        use (str): 'both' (default), 'words' or 'assignments': what is made
            of centred tokens.
        **kwargs: See :class:`OnlineCodebook`.
    """

    def __init__(
        self, *, mean: str = 'position', use: str = 'both', **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self.mean = mean
        self.use = use

    def centred(self, tokens: Tensor) -> Tensor:
        """Subtract the mean that was chosen, (..., L, D)."""
        tokens = tokens.float()
        if self.mean == 'batch':
            return tokens - tokens.mean(dim=0)
        if self.mean == 'all':
            return tokens - self.token_mean.mean(dim=0)
        return tokens - self.token_mean

    def assign(self, tokens: Tensor, images: Tensor | None = None) -> Targets:
        """See the base class."""
        targets = super().assign(tokens, images)
        if self.use == 'words':
            targets = targets._replace(tokens=tokens)
        return targets

    def draw_candidates(self, tokens: Tensor) -> Tensor:
        """See the base class."""
        if self.use == 'assignments':
            return self.word_sampler.draw(
                tokens.unflatten(0, (2, -1)), self.inner, self.num_new_words
            )
        return super().draw_candidates(tokens)
