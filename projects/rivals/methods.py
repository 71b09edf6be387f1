# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The methods that are compared, as configs of one encoder."""

from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from projects import trials
from projects.rivals.feature_curve import plain_encoder
from projects.rivals.levers import LEVERS

__all__ = [
    'METHODS',
    'OURS',
    'RATES',
    'check_encoders',
    'config_of',
    'write_configs',
]

HERE = Path(__file__).parent
QUICK_START = trials.ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
OURS = 'moca'
# Tried for each on the first set; MOCA's is its config's.
RATES = {
    OURS: (None,),
    'mocov3': (5e-4, 1e-3, 2e-3),
    'byol': (5e-4, 1e-3, 2e-3),
    'mae': (1e-3, 2e-3, 4e-3),
}
METHODS = RATES | dict.fromkeys(LEVERS, (None,))


def config_of(method: str) -> Config:
    """The config of a method, as a file has it.

    Args:
        method (str): Key of :data:`METHODS`.

    Returns:
        Config: Its own validation is left to :class:`FeatureCurveHook`.
    """
    own = HERE / 'configs' / f'{method}_vit-tiny_textures.py'
    ours = method == OURS or method in LEVERS
    cfg = Config.fromfile(QUICK_START if ours else own)
    cfg.merge_from_dict(LEVERS.get(method, {}))
    for key in ('val', 'test'):
        for part in ('cfg', 'dataloader', 'evaluator'):
            cfg[f'{key}_{part}'] = None
    return cfg


def check_encoders(configs: dict[str, Config]) -> None:
    """Raise an error for a method with another encoder than MOCA's.

    Args:
        configs (dict[str, Config]): By method.

    Raises:
        ValueError: If weights of one differ in name or shape.
    """
    ours = config_of(OURS)
    init_default_scope(ours.default_scope)
    wanted = _shapes(plain_encoder(ours.model.backbone))
    for method, cfg in configs.items():
        found = _shapes(MODELS.build(cfg.model.backbone))
        wrong = sorted(
            name
            for name in {*wanted, *found}
            if wanted.get(name) != found.get(name)
        )
        if wrong:
            raise ValueError(
                f'{method}: model.backbone is not the encoder of '
                f'{QUICK_START}: {wrong[0]} is {found.get(wrong[0])} and '
                f'not {wanted.get(wrong[0])}'
            )


def _shapes(encoder) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v.shape) for k, v in encoder.state_dict().items()}


def write_configs(
    configs: dict[str, Config], images: dict[str, Path], out: Path
) -> None:
    """Write the configs of all runs, for a set and a method each.

    Args:
        configs (dict[str, Config]): By method.
        images (dict[str, Path]): By set.
        out (Path): They go into its ``configs``.
    """
    (out / 'configs').mkdir(parents=True, exist_ok=True)
    encoder = config_of(OURS).model.backbone
    for method, cfg in configs.items():
        cfg.custom_imports = dict(
            imports=[
                'projects.rivals.feature_curve',
                'projects.rivals.levers',
            ]
        )
        for name, folder in images.items():
            cfg.train_dataloader.dataset.data_root = str(folder)
            # On its core, not beside it.
            cfg.train_dataloader.update(
                num_workers=0, persistent_workers=False
            )
            cfg.default_hooks.features = dict(
                type='FeatureCurveHook',
                encoder=encoder,
                data_root=str(folder),
                pipeline=cfg.test_pipeline,
                interval=1,
            )
            cfg.dump(out / 'configs' / f'{name}_{method}.py')
