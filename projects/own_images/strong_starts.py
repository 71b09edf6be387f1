# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What of a start survives training: k-NN by recipe, as a table.

A small ViT is pretrained on drawn textures of six classes. From its encoder,
or from all of it, pretraining goes on with few images of six other classes.
Runs that are there are not repeated.
"""

from pathlib import Path
from statistics import mean

from projects.trials import (
    MEASURES,
    accuracies,
    parser,
    pretrain,
    print_table,
    spread,
    tested,
    textures,
    tool,
)

LR = 'optim_wrapper.optimizer.lr'
WARMUP = 'param_scheduler.warmup'
MOMENTUM = 'default_hooks.teacher_ema.momentum'
# Name, what it starts from, and what it changes.
RECIPES = (
    ('from scratch', None, {}),
    ('encoder, recipe unchanged', 'encoder.pth', {}),
    ('encoder, lr / 4', 'encoder.pth', {LR: 5e-4}),
    ('encoder, lr / 10', 'encoder.pth', {LR: 2e-4}),
    ('encoder, lr / 40', 'encoder.pth', {LR: 5e-5}),
    (
        'encoder, lr / 4, warm-up 30 %',
        'encoder.pth',
        {LR: 5e-4, WARMUP: 0.3},
    ),
    (
        'encoder, lr / 4, warm-up 30 %, m_0 0.99',
        'encoder.pth',
        {LR: 5e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
    (
        'encoder, lr / 10, warm-up 30 %, m_0 0.99',
        'encoder.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
    (
        'encoder, lr / 10, warm-up 30 %, m_0 0.999',
        'encoder.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.999},
    ),
    ('all of MOCA, recipe unchanged', 'whole.pth', {}),
    ('all of MOCA, lr / 4', 'whole.pth', {LR: 5e-4}),
    (
        'all of MOCA, lr / 10, warm-up 30 %, m_0 0.99',
        'whole.pth',
        {LR: 2e-4, WARMUP: 0.3, MOMENTUM: 0.99},
    ),
)


def half_of_classes(
    out: Path, images: int, val: int, seed: int, odd: bool
) -> Path:
    """Draw textures, and take every other class of them.

    Args:
        out (Path): Folder of both.
        images (int): Training images to be left.
        val (int): Validation images to be left.
        seed (int): Of the drawing.
        odd (bool): The second, fourth, ... class, or the first, third, ...

    Returns:
        Path: A folder of links to the classes.
    """
    whole = textures(out / f'textures_{seed}', 2 * images, 2 * val, seed)
    half = out / f'half_{seed}'
    for split in ('train', 'val'):
        (half / split).mkdir(parents=True, exist_ok=True)
        for folder in sorted((whole / split).iterdir())[odd::2]:
            link = half / split / folder.name
            if not link.exists():
                link.symlink_to(folder)
    return half


def main() -> None:
    """Draw, train and print the table."""
    options = parser(__doc__)
    options.add_argument('--start-images', type=int, default=3000)
    options.add_argument('--start-steps', type=int, default=600)
    options.add_argument('--images', type=int, default=500)
    options.add_argument('--steps', type=int, default=320)
    args = options.parse_args()
    out = args.out.resolve()
    others = half_of_classes(out, args.start_images, 600, seed=1, odd=False)
    own = half_of_classes(out, args.images, 600, seed=2, odd=True)
    start = pretrain(out / 'start', others, others, args.start_steps, {})
    (out / 'whole.pth').unlink(missing_ok=True)
    (out / 'whole.pth').symlink_to(start)
    tool('model_converters/extract_backbone.py', start, out / 'encoder.pth')
    before = tested(out, start, own)
    rows = []
    for number, (name, init, changes) in enumerate(RECIPES):
        curves = []
        for seed in range(args.seeds):
            work = out / f'recipe_{number}_seed_{seed}'
            more = ('--init', out / init) if init else ()
            changed = changes | {'randomness.seed': seed}
            pretrain(work, own, own, args.steps, changed, *more)
            curves.append(accuracies(work))
        curve = [mean(values) for values in zip(*curves)]
        rows.append(
            (
                name,
                f'{before:.1f}' if init else '',
                f'{curve[0]:.1f}',
                f'{max(curve):.1f}',
                spread([values[-1] for values in curves]),
            )
        )
    first = f'step {args.steps // MEASURES}'
    print_table(('', 'before', first, 'best', f'step {args.steps}'), rows)


if __name__ == '__main__':
    main()
