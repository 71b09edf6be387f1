# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks how many layers of a ViT a config freezes."""

from mmpretrain.models.backbones import VisionTransformer

from mmmoca.config_parts import parts_of, short_name


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
    arch, frozen = vit.get('arch'), vit.get('frozen_stages', -1)
    if not isinstance(arch, dict):
        arch = VisionTransformer.arch_zoo.get(str(arch).lower(), {})
    layers = arch.get('num_layers', 0)
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
