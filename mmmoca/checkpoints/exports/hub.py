# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pushing an export to the Hugging Face Hub."""

import os
from importlib.util import find_spec

from ..reading import CheckpointError

__all__ = ['check_hub', 'push_to_hub']


def check_hub(name: str) -> None:
    """Check what can be checked without a network.

    Args:
        name (str): Of the repository, 'USER/MODEL' say.

    Raises:
        ImportError: If huggingface_hub is not installed.
        CheckpointError: If the name is none of a repository, or there is no
            token.
    """
    if not find_spec('huggingface_hub'):
        raise ImportError(
            'pushing to the Hub needs huggingface_hub: '
            "pip install 'mmmoca[export]'"
        )
    from huggingface_hub import get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise CheckpointError(
            f'{name} is no name of a repository on the Hub, such as '
            f'USER/MODEL: {error}'
        ) from error
    if get_token() is None:
        raise CheckpointError(
            'there is no token for the Hugging Face Hub: run `hf auth login`, '
            'or set HF_TOKEN'
        )


def push_to_hub(
    folder: str | os.PathLike, name: str, private: bool = False
) -> str:
    """Upload an export as a repository, which is made if need be.

    Args:
        folder (str | os.PathLike): What :func:`export_encoder` wrote.
        name (str): Of the repository.
        private (bool): Whether a new repository is private.

    Returns:
        str: Its address.

    Raises:
        CheckpointError: If the Hub refuses it or cannot be reached. The
            folder stays.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message='Export of mmmoca',
        )
    # Its versions raise the errors of different HTTP libraries.
    except Exception as error:
        raise CheckpointError(
            f'{folder} is written, but could not be pushed to {name}: '
            f'{error}. Try again by `hf upload {name} {folder}`'
        ) from error
    return str(address)
