# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the formats have in common."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ..writing import write_checkpoint
from .encoder import Encoder

__all__ = ['INTERPOLATIONS', 'Format', 'side_or_sides', 'write_weights']

# Those of PIL, and the numbers by which transformers stores them.
INTERPOLATIONS = {
    'nearest': 0,
    'lanczos': 1,
    'bilinear': 2,
    'bicubic': 3,
    'box': 4,
    'hamming': 5,
}


class Format(NamedTuple):
    """A way to write an encoder.

    Attributes:
        write (Callable): Writes an encoder into a folder. Raises a
            CheckpointError if the format cannot hold it.
        usage (Callable): Python code that loads the folder, for the encoder
            and the folder's name.
        library (str): What the Hugging Face Hub calls the library.
        needs (Tuple[str, ...]): Modules that writing takes.
        in_rgb (bool): Whether encoders of BGR images are turned into ones of
            RGB. Defaults to True.
    """

    write: Callable[[Encoder, Path], None]
    usage: Callable[[Encoder, str], str]
    library: str
    needs: tuple[str, ...]
    in_rgb: bool = True

    def check_packages(self) -> None:
        """Raise an ImportError if a package is not installed."""
        missing = [name for name in self.needs if not find_spec(name)]
        if missing:
            raise ImportError(
                f'this export needs {", ".join(missing)}: '
                "pip install 'mmmoca[export]'"
            )


def side_or_sides(size: tuple[int, int]) -> int | list[int]:
    """(224, 224) as 224, which all readers know, and others as a list."""
    return size[0] if size[0] == size[1] else list(size)


def write_weights(
    encoder: Encoder, state_dict: Mapping[str, Tensor], folder: Path
) -> None:
    """Write ``model.safetensors``, which this package reads again.

    Args:
        encoder (Encoder): What is exported.
        state_dict (Mapping[str, Tensor]): Its tensors under the names of the
            format.
        folder (Path): Where to.
    """
    checkpoint = dict(state_dict=state_dict, meta=dict(mmmoca=encoder.record))
    write_checkpoint(checkpoint, folder / 'model.safetensors')
