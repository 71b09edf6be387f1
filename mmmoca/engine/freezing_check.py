# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Counts the layers of a config's ViT, and checks how many are frozen."""

from mmpretrain.models.backbones import VisionTransformer

from mmmoca.config_parts import parts_of, short_name


def count_layers(vit: dict) -> int:
    """Return the number of layers of a ViT, or 0 if it is not known.

    Args:
        vit (dict): Config of the ViT, whose ``arch`` is a name or a dict.
    """
    arch = vit.get('arch')
    if not isinstance(arch, dict):
        arch = VisionTransformer.arch_zoo.get(str(arch).lower(), {})
    return arch.get('num_layers', 0)


def check_frozen(model: dict) -> None:
    """Check that a config does not freeze more layers than the ViT has.

    Under a linear segmentation head, all layers must be frozen or none.

    Args:
        model (dict): Config of the model.

    Raises:
        ValueError: If the number of frozen layers is wrong. The message says
            what to write.
    """
    vit = model.get('backbone') or {}
    if not short_name(vit).endswith(('ViT', 'VisionTransformer')):
        return
    layers, frozen = count_layers(vit), vit.get('frozen_stages', -1)
    linear = any(
        'Linear' in short_name(head) or head.get('num_convs') == 0
        for head in parts_of(model.get('decode_head'))
    )
    if 0 < layers < frozen or (linear and 0 < frozen < layers):
        why = 'more than' if frozen > layers else 'not all of'
        raise ValueError(
            f'model.backbone.frozen_stages={frozen} is {why} the {layers} '
            f'layers of the ViT: write {layers}, or 0 to train all'
        )
