# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare frozen backbones by protocols for images and for patches.

The features of each checkpoint are extracted once, for all protocols.
Protocols for images use the feature that the method was published with
(docs/guides/evaluate.md). Those for patches use patch features
(docs/guides/dense.md). Unlike in the configs of the protocols, probes are not
trained on augmented images. Images are prepared as each checkpoint records, or
as ``--config`` says for all of them. ``--images`` measures the agreement of
neighbours, which needs no labels.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    config_file,
    image_folder,
    import_stack,
    percentage,
    positive_integer,
    run_program,
    whole_number,
)

if TYPE_CHECKING:
    from mmmoca.apis import Encoder
    from mmmoca.evaluation.presets import Preset

DEFAULT = ('knn', 'linear', 'lowshot')
# Protocols of mmmoca.apis.dense_comparison, which need masks.
DENSE = ('incontext', 'linear-seg')
PROTOCOLS = (*DEFAULT, *DENSE)
# Protocol -> which number of its result the table shows, and the heading of
# that column.
COLUMNS = {
    'linear': ('top1', 'linear'),
    'incontext': ('mIoU', 'in context, mIoU'),
    'linear-seg': ('mIoU', 'linear, mIoU'),
}
# FEATURES and PRESETS repeat the names in mmmoca.evaluation.presets, which
# cannot be imported here since it loads PyTorch.
FEATURES = ('avg', 'cls', 'cls-avg')
UNTRAINED = 'untrained'
PRESETS = (
    'moca',
    'dino',
    'ibot',
    'dinov2',
    'dinov3',
    'msn',
    'mocov3',
    'mae',
)
# Arguments that only the protocols for images have, and those of all
# protocols.
OF_IMAGES = ('shots', 'percent', 'sets', 'epochs', 'batch_size')
COMMON = ('protocols', 'seed', 'num_workers')


class Entry(NamedTuple):
    """A checkpoint on the command line.

    Attributes:
        name (str, optional): Its name in the table.
        path (str): The file, or :data:`UNTRAINED`.
        feature (str, optional): One of :data:`FEATURES` or :data:`PRESETS`.
    """

    name: str | None
    path: str
    feature: str | None


def parse_entry(text: str) -> Entry:
    """Parse an argument: ``[NAME=]FILE[:FEATURE]``.

    If the whole text is the name of an existing file, it means that file, even
    if it contains '=' or ':'. FILE may be 'untrained'.

    Args:
        text (str): The argument.

    Returns:
        Entry: Its parts.

    Raises:
        argparse.ArgumentTypeError: If there is no such file or feature.
    """
    name, _, rest = text.partition('=')
    for label, file in ((None, text), (name, rest)):
        path, _, feature = file.rpartition(':')
        if file == UNTRAINED or Path(file).is_file():
            return Entry(label, file, None)
        known = path == UNTRAINED or Path(path).is_file()
        if known and feature in FEATURES + PRESETS:
            return Entry(label, path, feature)
    raise argparse.ArgumentTypeError(
        f'{text}: there is no such file or feature: write '
        '[NAME=]FILE[:FEATURE], where FEATURE is one of '
        f'{", ".join(FEATURES + PRESETS)}'
    )


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    entry = (
        'files of any known layout, or "untrained": the ViT of the first '
        'file, but with initial weights. FEATURE is the mean patch token, '
        '[CLS] or '
        f'both ({", ".join(FEATURES)}), or the method whose published '
        f'features and settings to use ({", ".join(PRESETS)}; by default the '
        'method of the file)'
    )
    form = '[NAME=]FILE[:FEATURE]'
    add('checkpoints', nargs='+', type=parse_entry, metavar=form, help=entry)
    root = 'folder with train/ and val/, each with a folder for every class'
    add('--data-root', type=image_folder, help=root)
    images = 'folder of unlabelled images, to measure agreement of neighbours'
    add('--images', type=image_folder, help=images)
    masks = 'folder with masks/train, masks/val and the images of these masks'
    add('--masks', type=image_folder, help=masks)
    default = f'by default {" ".join(DEFAULT)}; none if only --images is given'
    add('--protocols', nargs='+', choices=PROTOCOLS, help=default)
    bank = 'maximum number of patches in the bank of incontext'
    add('--bank-size', type=positive_integer, default=102_400, help=bank)
    config = (
        'a k-NN config that says how to prepare images (by default each file '
        'does)'
    )
    add('--config', type=config_file, help=config)
    add('--out-dir', default='work_dirs/compare', type=Path)
    which = 'the encoder (by default the teacher; for MoCo-v3 the student)'
    add('--which', choices=['teacher', 'student'], help=which)
    add('--shots', type=positive_integer, nargs='*', default=[1, 2, 5])
    add('--percent', type=percentage, nargs='*', default=[1.0])
    sets = 'number of low-shot sets to draw'
    add('--sets', type=positive_integer, default=3, help=sets)
    heads = 'number of attention heads, if no file or config records it'
    add('--num-heads', type=positive_integer, help=heads)
    probing = 'epochs of linear probing'
    add('--epochs', type=positive_integer, default=100, help=probing)
    add(
        '--batch-size',
        type=positive_integer,
        default=256,
        help='batch size of linear probing',
    )
    add('--num-workers', type=whole_number, help='processes that read images')
    add('--seed', type=whole_number, default=0)
    return parser


def complete_arguments(args: argparse.Namespace) -> None:
    """Check that the arguments fit each other; name the checkpoints.

    Args:
        args (argparse.Namespace): The command line, changed in place.

    Raises:
        ValueError: If they do not fit.
    """
    args.names = [e.name or Path(e.path).stem for e in args.checkpoints]
    if len(set(args.names)) < len(args.names):
        raise ValueError(
            f'the names {args.names} repeat: write NAME=FILE with other names'
        )
    files = [e.path for e in args.checkpoints if e.path != UNTRAINED]
    if not files:
        raise ValueError(
            'untrained uses the ViT of the first file: give a file, too'
        )
    args.first = files[0]
    if args.protocols is None:
        alone = args.images and not args.data_root
        args.protocols = () if alone else DEFAULT
    dense = [p for p in args.protocols if p in DENSE]
    if args.data_root is None and len(dense) < len(args.protocols):
        raise ValueError(
            'knn, linear and lowshot need --data-root. Without it, give '
            '--images and leave out --protocols, or give --masks and '
            f'--protocols {" ".join(DENSE)}'
        )
    if bool(dense) != bool(args.masks):
        raise ValueError(
            f'--masks and --protocols {" ".join(DENSE)} go together'
        )
    for split in ('train', 'val') if args.masks else ():
        if not (folder := Path(args.masks, 'masks', split)).is_dir():
            raise ValueError(f'there is no folder {folder} of masks')
    if 'lowshot' in args.protocols and not args.shots + args.percent:
        raise ValueError('lowshot needs --shots or --percent')


def load_encoder(
    entry: Entry, args: argparse.Namespace
) -> tuple['Encoder', 'Preset']:
    """Load a checkpoint's encoder; choose the features and settings to use."""
    import mmmoca
    from mmmoca.apis.comparison import untrain
    from mmmoca.engine.config import read_run
    from mmmoca.evaluation.presets import choose_preset

    options = dict(num_heads=args.num_heads)
    if args.config is not None:
        cfg = read_run(args.config)
        options |= dict(config=cfg, img_size=cfg.model.backbone.img_size)
        if isinstance(arch := cfg.model.backbone.arch, dict):
            options['num_heads'] = arch['num_heads']
    path = args.first if entry.path == UNTRAINED else entry.path
    encoder = mmmoca.load(path, args.which or 'teacher', **options)
    preset = encoder.preset
    if entry.feature is not None:
        preset = choose_preset(encoder.metainfo['layout'], entry.feature)
    others = 'only', preset.which
    if args.which is None and encoder.metainfo['which'] not in others:
        encoder = mmmoca.load(path, preset.which, **options)
    if entry.path == UNTRAINED:
        untrain(encoder, args.seed)
    return encoder, preset


def scores(result: dict) -> dict[str, tuple[float, str]]:
    """Return one checkpoint's results as column -> number and text."""
    found = {f'k-NN, {k}': v for k, v in result.get('knn', {}).items()}
    for name, (measure, head) in COLUMNS.items():
        if name in result:
            found[head] = result[name][measure]
    if 'agreement' in result:
        found['agreement of neighbours'] = result['agreement']
    if 'rank_me' in result:
        found['RankMe'] = result['rank_me']
    columns = {head: (value, f'{value:.1f}') for head, value in found.items()}
    for subset in result.get('lowshot', ()):
        text = f'{subset["mean"]:.1f}'
        if len(subset['top1']) > 1:
            text += f' ± {subset["std"]:.1f}'
        columns[subset['subset']] = subset['mean'], text
    return columns


def comparison_table(results: list[dict], odd: Sequence[str] = ()) -> str:
    """Render a table in Markdown: a row for each checkpoint.

    Args:
        results (list[dict]): For each checkpoint its ``name``, ``settings``,
            and the results of :func:`mmmoca.apis.comparison.evaluate` and
            :func:`mmmoca.apis.dense_comparison.evaluate_masks`.
        odd (Sequence[str]): Sentences about images that stand out.

    Returns:
        str: The table, with accuracies and mIoU in percent. A list below it
        says which features were used, and what stands out in the images.
    """
    from mmmoca.evaluation.metrics import meaningful_difference
    from mmmoca.evaluation.report import render_table
    from mmmoca.messages import printable

    rows, notes = [], ''
    for result in results:
        row = {'checkpoint': result['name']}
        rows.append(row | {k: text for k, (_, text) in scores(result).items()})
        used = result['settings']
        notes += f'- {printable(result["name"])}: {used["which"]} encoder'
        if 'knn' in result:
            notes += f'; k-NN {used["knn"]} (T = {used["temperature"]:g})'
        if 'linear' in result:
            notes += f'; linear {used["linear"]}'
        if 'lowshot' in result:
            notes += (
                f'; low-shot {used["lowshot"]} before the final norm '
                f'(lambda = {used["regularization"]:g})'
            )
        method = used['method'] or 'moca, since the method is not known'
        notes += f'; preset {method}\n'
        if found := result.get('incontext'):
            notes += f'- in context: bank of {found["bank_patches"]} patches\n'
        if missing := result.get('missing_classes'):
            notes += f'- no training mask has the classes {missing}\n'
    # Encoders with the same image loader leave out the same images.
    for place, number in dict.fromkeys(
        item for result in results for item in result['unreadable'].items()
    ):
        notes += f'- {place}: {number} unreadable, left out\n'
    if number := results[0].get('images'):
        margin = meaningful_difference(number)
        notes += (
            f'- with {number} validation images, differences in accuracy '
            f'below {margin:g} points may be chance\n'
        )
    if any('agreement' in result for result in results):
        views = "on the paper's views, not the run's"
        notes += f'- agreement of neighbours: measured {views}\n'
    notes += ''.join(f'- {line}\n' for line in odd)
    table = render_table(list(rows[0]), [list(row.values()) for row in rows])
    return f'{table}\n{notes}'


def keep_earlier(folder: Path) -> None:
    """Rename the files of an earlier table, so that they are kept."""
    number = 1
    while any(folder.glob(f'compare-{number}.*')):
        number += 1
    for suffix in ('json', 'md', 'png'):
        if (file := folder / f'compare.{suffix}').exists():
            file.rename(folder / f'compare-{number}.{suffix}')


def compare(args: argparse.Namespace) -> None:
    """Compare checkpoints, print and write the table, and draw it.

    Args:
        args (argparse.Namespace): The command line.
    """
    complete_arguments(args)
    import_stack()
    from mmmoca.apis.comparison import (
        evaluate,
        evaluate_unlabelled,
        labelled_sets,
    )
    from mmmoca.apis.dense_comparison import evaluate_masks
    from mmmoca.datasets.look import look_at
    from mmmoca.files import write_figure, write_json, write_text
    from mmmoca.visualization.bars import draw_bars

    results, odd = [], []
    for name, entry in zip(args.names, args.checkpoints):
        encoder, preset = load_encoder(entry, args)
        used = {k: encoder.metainfo[k] for k in ('layout', 'which')}
        result = dict(
            name=name,
            checkpoint=entry.path,
            settings=preset._asdict() | used,
        )
        cache = args.out_dir / 'features'
        unreadable: Counter[str] = Counter()  # by folder
        common = {name: getattr(args, name) for name in COMMON}
        if args.data_root is not None:
            options = {name: getattr(args, name) for name in OF_IMAGES}
            options |= common | dict(preset=preset)
            result |= evaluate(encoder, args.data_root, cache, **options)
            unreadable[args.data_root] += result.pop('unreadable')
            if not results:  # once for all encoders
                sets = labelled_sets(encoder, args.data_root)
                odd = look_at(sets, pixels=0).odd
        if args.images is not None:
            options = dict(preset=preset, num_workers=args.num_workers)
            result |= evaluate_unlabelled(
                encoder, args.images, seed=args.seed, **options
            )
            unreadable[args.images] += result.pop('unreadable')
        if args.masks is not None:
            options = common | dict(bank_size=args.bank_size)
            result |= evaluate_masks(encoder, args.masks, cache, **options)
        results.append(result | dict(unreadable=+unreadable))
    table = comparison_table(results, odd)
    names = 'data_root', 'images', 'masks', 'which', 'seed'
    settings = {name: getattr(args, name) for name in names}
    keep_earlier(args.out_dir)
    write_json(args.out_dir / 'compare.json', dict(settings, results=results))
    write_text(args.out_dir / 'compare.md', table)
    columns = [scores(result) for result in results]
    panels = {head: [found[head] for found in columns] for head in columns[0]}
    places = filter(None, (args.data_root, args.images, args.masks))
    unit = 'in % except RankMe' if 'RankMe' in panels else 'in %'
    title = f'{unit}, images of {", ".join(places)}'
    figure = draw_bars(args.names, panels, title)
    write_figure(args.out_dir / 'compare.png', figure)
    print(f'\n{table}\n{args.out_dir}')


def main(argv: Sequence[str] | None = None) -> None:
    """Compare checkpoints by the frozen protocols."""
    run_program(build_parser(), compare, argv)


if __name__ == '__main__':
    main()
