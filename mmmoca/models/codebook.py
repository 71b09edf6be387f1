# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import Literal, NamedTuple

import torch
from mmengine.model import BaseModule
from torch import Tensor
from torch.nn import functional as F

from mmmoca.registry import MODELS, TASK_UTILS

from .precision import normalize_fp32
from .targets import Targets


class CodebookUpdate(NamedTuple):
    """What hooks need from a forward pass.

    All but ``embeddings`` are for :class:`~mmmoca.engine.CodebookHook`.

    Attributes:
        candidates (Tensor): See :meth:`RandomTokenSampler.draw`.
        msd (Tensor): Mean similarity difference (MSD) of the images' first
            views and of their second views, (2, ).
        batch_size (int): B, number of images in the (micro-)batch of this
            process.
        token_mean (Tensor, optional): Mean teacher token of each position,
            (L, D), float32, if the codebook has ``centre``.
        embeddings (Tensor, optional): The teacher's [AVG] of both views,
            (2B, D), for :class:`~mmmoca.engine.RankMeHook`.
    """

    candidates: Tensor
    msd: Tensor
    batch_size: int
    token_mean: Tensor | None = None
    embeddings: Tensor | None = None


@MODELS.register_module()
class OnlineCodebook(BaseModule):
    """FIFO queue of teacher tokens that serves as the codebook C.

    Paper, section 3.1. The forward pass only reads the state.
    :class:`~mmmoca.engine.CodebookHook` calls :meth:`update` once per
    optimiser step.

    The softmax temperature of the targets is mu / 10 as in the authors' code,
    where mu is the running mean similarity difference. (The paper prints
    1 / (10 mu), with mu in the denominator by mistake.)

    ``centre`` is not in the paper. It keeps a running mean of the teacher's
    tokens at each position. This mean is subtracted before tokens are assigned
    and before words are drawn. What all images have in common at a position
    then affects neither assignments nor words.

    Args:
        embed_dims (int): D, width of the teacher's tokens.
        patch_resolution (tuple[int, int]): Patch rows and columns (H, W).
        num_words (int | str): K. Defaults to 4096. 'auto' means 4096, unless
            :func:`mmmoca.engine.complete_recipe` replaces it. A model built
            with 'auto' adopts the K of a checkpoint that it loads.
        num_new_words (int | str): K_new, number of new words per optimiser
            step, each from a different image of the global batch. Defaults to
            4. 'auto' means 4, unless :func:`mmmoca.engine.complete_recipe`
            replaces it.
        border (int): Number of patch rows and columns on each side that bags
            and new words ignore. Defaults to 2.
        inv_delta (float): The temperature of the targets is mu divided by
            this number. Defaults to 10.
        msd_momentum (float): Momentum of mu. Defaults to 0.99.
        initial_msd (float): mu at step 0. Defaults to 0.5.
        centre (float, optional): Momentum of the running mean token of each
            position. The mean starts at zero. Defaults to None: no centring,
            as in the paper.
        word_sampler (dict, optional): Config of the class that chooses new
            words. Defaults to :class:`RandomTokenSampler`.

    Raises:
        ValueError: If K is below 2 or not a multiple of K_new, no patch is
            left inside the border, or another number is out of its range.
    """

    def __init__(
        self,
        embed_dims: int,
        patch_resolution: tuple[int, int],
        num_words: int | Literal['auto'] = 4096,
        num_new_words: int | Literal['auto'] = 4,
        border: int = 2,
        inv_delta: float = 10.0,
        msd_momentum: float = 0.99,
        initial_msd: float = 0.5,
        centre: float | None = None,
        word_sampler: dict | None = None,
    ) -> None:
        super().__init__()
        self.takes_any_number = num_words == 'auto'
        num_words = 4096 if num_words == 'auto' else num_words
        num_new_words = 4 if num_new_words == 'auto' else num_new_words
        if not (inv_delta > 0 and initial_msd > 0 and 0 <= msd_momentum <= 1):
            raise ValueError(
                'inv_delta and initial_msd must be above 0, and msd_momentum '
                f'in [0, 1], got {inv_delta}, {initial_msd}, {msd_momentum}'
            )
        if centre is not None and not 0 <= centre < 1:
            raise ValueError(f'centre must be None or in [0, 1), got {centre}')
        # BatchNorm of the prototypes needs two words.
        if num_words < 2 or num_new_words < 1 or num_words % num_new_words:
            raise ValueError(
                f'num_words={num_words} must be 2 or more, and a multiple of '
                f'num_new_words={num_new_words}, so that the queue wraps '
                'around evenly'
            )
        height, width = patch_resolution
        if border < 0 or 2 * border >= min(height, width):
            raise ValueError(
                f'codebook.border={border} leaves no patch of a '
                f'{height} x {width} grid; choose a border below half of its '
                'shorter side'
            )
        self.word_sampler = TASK_UTILS.build(
            word_sampler or dict(type='mmmoca.RandomTokenSampler')
        )
        self.num_new_words = num_new_words
        self.inv_delta = inv_delta
        self.msd_momentum = msd_momentum
        self.initial_msd = initial_msd
        self.centre = centre
        patches = torch.arange(height * width).view(height, width)
        inner = patches[border : height - border, border : width - border]
        self.register_buffer('inner', inner.flatten(), persistent=False)
        self.register_buffer('words', torch.empty(num_words, embed_dims))
        self.register_buffer('pointer', torch.zeros((), dtype=torch.long))
        self.register_buffer('msd', torch.tensor(initial_msd))
        mean = None
        if centre is not None:
            mean = torch.zeros(height * width, embed_dims)
        self.register_buffer('token_mean', mean)
        self.init_weights()

    def init_weights(self) -> None:
        """Fill the queue with random non-negative unit vectors; reset mu."""
        self.words.normal_().relu_()
        self.words.copy_(F.normalize(self.words, dim=1))
        self.pointer.zero_()
        self.msd.fill_(self.initial_msd)
        if self.token_mean is not None:
            self.token_mean.zero_()

    def _load_from_state_dict(
        self, state_dict: dict, prefix: str, *args
    ) -> None:
        words = state_dict.get(f'{prefix}words')
        if self.takes_any_number and words is not None:
            self.words = torch.empty_like(words, device=self.msd.device)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def sharpness(self) -> Tensor:
        """Tensor: Inverse temperature of the assignments, inv_delta / mu."""
        return self.inv_delta / self.msd

    def centred(self, tokens: Tensor) -> Tensor:
        """Subtract the mean token of each position if ``centre`` is set.

        Args:
            tokens (Tensor): (..., L, D).

        Returns:
            Tensor: (..., L, D), float32 if centred.
        """
        if self.token_mean is None:
            return tokens
        return tokens.float() - self.token_mean

    def assign(self, tokens: Tensor, images: Tensor | None = None) -> Targets:
        """Prepare the soft assignment of the teacher's tokens to the words.

        The assignments are computed later, by the losses, in chunks.

        Args:
            tokens (Tensor): (2B, L, D).
            images (Tensor, optional): The teacher's input, (2B, C, H, W), for
                heads that predict pixels.

        Returns:
            Targets: The tensors from which the assignments to the current
            words are computed.
        """
        return Targets(
            self.centred(tokens),
            self.words,
            self.sharpness,
            self.inner,
            images,
        )

    @torch.no_grad()
    def draw_candidates(self, tokens: Tensor) -> Tensor:
        """Draw this process's candidates for the new words.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2B, L, D).

        Returns:
            Tensor: Unit vectors, (2, n, D), float32. See
            :meth:`RandomTokenSampler.draw`.

        Raises:
            ValueError: If the sampler returns a wrong shape.
        """
        candidates = self.word_sampler.draw(
            self.centred(tokens).unflatten(0, (2, -1)),
            self.inner,
            self.num_new_words,
        )
        self._check_words(candidates, 'draw', (2, len(candidates[0])))
        return normalize_fp32(candidates)

    def _check_words(self, words: Tensor, source: str, rows: tuple) -> None:
        shape = *rows, self.words.shape[1]
        if words.shape != shape:
            raise ValueError(
                f'{type(self.word_sampler).__name__}.{source} must return '
                f'vectors of shape {shape}, got {tuple(words.shape)}'
            )

    @torch.no_grad()
    def mean_token(self, tokens: Tensor) -> Tensor | None:
        """Average the tokens of each position, for :meth:`update`.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2B, L, D).

        Returns:
            Tensor, optional: (L, D), float32; None without ``centre``.
        """
        return None if self.centre is None else tokens.float().mean(dim=0)

    @torch.no_grad()
    def update(
        self,
        words: Tensor,
        msd: Tensor,
        token_mean: Tensor | None = None,
        accepted: Tensor | bool = True,
    ) -> None:
        """Overwrite the oldest words; update mu and the mean tokens.

        Args:
            words (Tensor): New words, (K_new, D). They are normalised here.
            msd (Tensor): MSD of view 1 and view 2, (2, ). Each updates mu
                once, view 1 first.
            token_mean (Tensor, optional): Mean token of each position in the
                global batch, (L, D), if the codebook has ``centre``.
            accepted (Tensor | bool): Whether to update. If it is a tensor on
                the device, the host does not wait for its value. Defaults to
                True.

        Raises:
            ValueError: If ``words`` has a wrong shape.
        """
        self._check_words(words, 'pick', (len(words),))
        accepted = torch.as_tensor(accepted, device=self.words.device)
        # The pointer is not always a multiple of K_new: the checkpoint may
        # come from a run with another K_new.
        rows = self.pointer + torch.arange(len(words), device=words.device)
        rows %= len(self.words)
        words = normalize_fp32(words).to(self.words)
        self.words[rows] = torch.where(accepted, words, self.words[rows])
        self.pointer.add_(accepted * len(words)).remainder_(len(self.words))
        for value in msd.to(self.msd):
            value = torch.where(accepted, value, self.msd)
            self.msd.lerp_(value, 1 - self.msd_momentum)
        if token_mean is not None:
            mean = torch.where(accepted, token_mean, self.token_mean)
            self.token_mean.lerp_(mean, 1 - self.centre)
