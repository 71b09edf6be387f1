# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The methods that are compared, as configs of one encoder."""

from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from projects import trials
from projects.rivals.feature_curve import plain_encoder
from projects.rivals.levers import LEVERS

__all__ = [
    'OURS',
    'RATES',
    'check_encoders',
    'config_of',
    'parts_of',
    'rates_of',
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


def parts_of(method: str) -> tuple[str, list[str], int | None]:
    """What a method's name says.

    Args:
        method (str): Key of :data:`RATES`; MOCA's may have levers after it,
            keys of :data:`LEVERS`, and each a number of images at the end:
            ``moca_gentle_solarize_batch-64``.

    Returns:
        tuple[str, list[str], int or None]: The key, its levers, and the
        images of a step unless they are the config's.

    Raises:
        ValueError: If there is no such method.
    """
    name, *levers = method.split('_')
    batch = None
    if levers and levers[-1].startswith('batch-'):
        number = levers.pop().removeprefix('batch-')
        batch = int(number) if number.isdecimal() else 0
    known = LEVERS if name == OURS else ()
    if name not in RATES or batch == 0 or not set(levers) <= set(known):
        raise ValueError(
            f'{method}: there is no such method; there are '
            f'{", ".join(RATES)}, each with a _batch-N besides, and {OURS} '
            f'with any of _{", _".join(LEVERS)} before that'
        )
    return name, levers, batch


def rates_of(method: str) -> tuple[float | None, ...]:
    """What is tried of a method; None is the rate of its config."""
    return RATES[parts_of(method)[0]]


def config_of(method: str) -> Config:
    """The config of a method, as a file has it.

    Args:
        method (str): See :func:`parts_of`.

    Returns:
        Config: Its own validation is left to :class:`FeatureCurveHook`.
    """
    name, levers, batch = parts_of(method)
    own = HERE / 'configs' / f'{name}_vit-tiny_textures.py'
    cfg = Config.fromfile(QUICK_START if name == OURS else own)
    for lever in levers:
        cfg.merge_from_dict(LEVERS[lever])
    if batch:
        cfg.train_dataloader.batch_size = batch
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
