# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Find the nearest images: ``search.py FEATURES QUERY ...``.

FEATURES is what embed.py wrote. Prints names and cosine similarities, and
draws a contact sheet by ``--sheet``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _arguments import (
    import_stack,
    local_file,
    one_line_errors,
    positive_integer,
)

if TYPE_CHECKING:
    from torch import Tensor

    from mmmoca.apis.feature_files import FeatureFile


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description='Find the images whose features are nearest, by cosine '
        'similarity'
    )
    add = parser.add_argument
    add(
        'features',
        type=local_file,
        metavar='FEATURES',
        help='what embed.py wrote',
    )
    add(
        'queries',
        nargs='+',
        metavar='QUERY',
        help='an image file, or the number of a row or the name of an image '
        'in FEATURES',
    )
    add(
        '--count',
        type=positive_integer,
        default=10,
        help='images of each query (10)',
    )
    add(
        '--faiss',
        action='store_true',
        help='search by an index of FAISS, which is kept beside FEATURES: '
        'for above a million rows; some neighbours may be missed',
    )
    add(
        '--probes',
        type=positive_integer,
        default=32,
        help='cells that FAISS looks into',
    )
    add('--sheet', type=Path, help='a picture to draw: .png, .jpg, .pdf')
    add('--json', type=Path, help='write what was found to this file')
    add(
        '--images',
        metavar='DIR',
        help='where the images are, if FEATURES was made elsewhere',
    )
    add(
        '--checkpoint',
        type=local_file,
        help='the encoder of FEATURES, if it has been moved',
    )
    add('--device', help="such as cpu or cuda:1 (a GPU, where there's one)")
    return parser


def describe_queries(
    features: 'FeatureFile', args: argparse.Namespace
) -> tuple['Tensor', list[int | None]]:
    """Features of the queries, and the row of those that are in the file.

    Raises:
        ValueError: If a query is neither a file nor in the features.
    """
    import torch

    from mmmoca.apis.embedding import encoder_of

    rows = [_row_of(features, query) for query in args.queries]
    files = [q for q, row in zip(args.queries, rows) if row is None]
    found = iter(())
    if files:
        about = features.about
        encoder = encoder_of(about, args.checkpoint, args.device)
        kinds = about['feature'].split('-')
        embeddings = encoder.embed(files, features=kinds, amp=about['amp'])
        found = iter(embeddings.pick(about['feature']))
    parts = [
        next(found)
        if row is None
        else torch.tensor(features.rows[row : row + 1][0])
        for row in rows
    ]
    return torch.stack(parts), rows


def _row_of(features: 'FeatureFile', query: str) -> int | None:
    if Path(query).expanduser().is_file():
        return None
    number = len(features.names)
    if query.isdecimal() and int(query) < number:
        return int(query)
    if query in features.names:
        return features.names.index(query)
    raise ValueError(
        f'{query} is no file, no row from 0 to {number - 1}, and no name of '
        'an image in the features'
    )


def run(args: argparse.Namespace) -> list[dict]:
    """Search.

    Returns:
        list[dict]: Of each query, ``query`` and its ``nearest``: rows, names
        and similarities, best first.
    """
    from mmengine.device import get_device

    from mmmoca.apis.feature_files import read_features
    from mmmoca.apis.search import faiss_search, nearest

    features = read_features(args.features)
    query, own = describe_queries(features, args)
    if not query.isfinite().all():
        raise ValueError('a query is an image that could not be read')
    # One more: an image is the nearest to itself.
    count = args.count + 1
    if args.faiss:
        found = faiss_search(
            features, args.features, query, count, args.probes
        )
    else:
        device = args.device or get_device()
        found = nearest(features, query, count, device)
    results = []
    for name, row, *pairs in zip(args.queries, own, *found):
        near = [
            dict(row=r, name=features.names[r], similarity=s)
            for s, r in zip(*(part.tolist() for part in pairs))
            if r not in (row, -1)
        ]
        query_name = name if row is None else features.names[row]
        results.append(dict(query=query_name, nearest=near[: args.count]))
    if args.sheet:
        draw(features, own, results, args)
    return results


def draw(
    features: 'FeatureFile',
    own: Sequence[int | None],
    results: Sequence[dict],
    args: argparse.Namespace,
) -> None:
    """Draw the contact sheet."""
    from mmmoca.apis.embedding import stored_pictures
    from mmmoca.files import write_figure
    from mmmoca.visualization.contact_sheet import draw_contact_sheet

    def pictures(names: Sequence[str]) -> list:
        return stored_pictures(features.about, names, args.images)

    queries = [
        pictures(
            [str(Path(r['query']).resolve()) if row is None else r['query']]
        )
        for row, r in zip(own, results)
    ]
    sheet = draw_contact_sheet(
        [picture for (picture,) in queries],
        [pictures([n['name'] for n in r['nearest']]) for r in results],
    )
    write_figure(args.sheet, sheet)


def main(argv: Sequence[str] | None = None) -> None:
    """Search, print and draw."""
    parser = make_parser()
    args = parser.parse_args(argv)
    import_stack()
    from mmmoca.files import write_json
    from mmmoca.messages import shown

    with one_line_errors(parser, ImportError, OSError, ValueError):
        results = run(args)
        if args.json:
            write_json(args.json, dict(results=results))
    for result in results:
        print(shown(result['query']))
        for found in result['nearest']:
            print(f'  {found["similarity"]:.4f}  {shown(found["name"])}')


if __name__ == '__main__':
    main()
