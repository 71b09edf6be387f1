# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of a downstream model at full size, without weights.

``detection``: one forward and one backward pass on drawn boxes and masks,
with the activation checkpointing of the config or without, in float32 on a
CPU and in 16 bits on a GPU. ``segmentation``: the prediction of one image of
noise by the windows of the config's ``test_cfg``. ::

    python projects/performance/downstream.py detection CONFIG --size 800 1216
    python projects/performance/downstream.py segmentation CONFIG
"""

import argparse
from pathlib import Path

SIZES = dict(detection=(800, 1216), segmentation=(1024, 2048))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('task', choices=SIZES)
    add('config', help='of the task')
    sizes = ', '.join(f'{h} {w} for {k}' for k, (h, w) in SIZES.items())
    add('--size', type=int, nargs=2, metavar=('HEIGHT', 'WIDTH'), help=sizes)
    add('--repeats', type=int, default=1)
    add('--threads', type=int, help='of the CPU')
    add('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE')
    add('--batch-size', type=int, default=1, help='for detection')
    add('--objects', type=int, default=8, help='on an image, for detection')
    keep = "leave out the config's activation checkpointing (detection)"
    add('--no-checkpointing', action='store_true', help=keep)
    args = parser.parse_args()
    if not Path(args.config).is_file():
        parser.error(f'there is no config {args.config}')
    for option in args.cfg_options:
        if '=' not in option:
            parser.error(f'--cfg-options takes KEY=VALUE, but got {option}')
    args.size = args.size or SIZES[args.task]
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from mmengine.config import DictAction
    from mmengine.registry import init_default_scope

    from downstream_passes import PASSES, build_model
    from measure import median_seconds, name_of, peak_bytes, print_table
    from mmmoca.engine.launch import load_config
    from mmmoca.stack import MissingOpsError

    DictAction([], 'options')(parser, args, args.cfg_options)
    try:
        cfg = load_config(args.config, cfg_options=args.options)
    except (MissingOpsError, ValueError) as error:
        parser.error(str(error))
    init_default_scope(cfg.default_scope)
    model, device = build_model(cfg, args.threads)
    before = peak_bytes(device)
    passes = PASSES[args.task](model, cfg, args)
    seconds = median_seconds(passes, args.repeats, warm_up=0)
    memory = peak_bytes(device), before
    number = sum(p.numel() for p in model.parameters()) / 1e6
    print_table(
        f'{type(model).__name__}, {number:.1f} M parameters, '
        f'{args.size[0]} x {args.size[1]}, {name_of(device)}',
        (*(f'{name}, s' for name in passes), 'peak GiB', 'of it before'),
        [
            (
                *(f'{value:.2f}' for value in seconds.values()),
                *(f'{value / 2**30:.2f}' for value in memory),
            )
        ],
    )


if __name__ == '__main__':
    main()
