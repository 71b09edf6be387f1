# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure time and memory of in-context segmentation and k-NN.

Their banks can have any size. The features are random; ``embedding.py``
measures the encoder. An image to segment has 32 x 32 patches, as if it had
512 x 512 pixels and patches of 16 x 16.

Example:
    python projects/performance/banks.py --patches 1000000 --bank 0
    python projects/performance/banks.py --patches 0 --bank 1281167
"""

import argparse
import resource
from pathlib import Path


def main() -> None:
    """Fill the banks, search them, and print time and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    patches = 'patches in the bank of segmentation; 0: no segmentation'
    add('--patches', type=int, default=1_000_000, help=patches)
    add('--dims', type=int, default=768, help='width of the encoder')
    add('--classes', type=int, default=150)
    add('--images', type=int, default=3, help='images to segment')
    add(
        '--bank',
        type=int,
        default=100_000,
        help='images in the bank of k-NN; 0: no k-NN',
    )
    add('--queries', type=int, default=2000)
    add('--device', default='cpu')
    add('--json', type=Path, metavar='FILE', help='write the figures there')
    args = parser.parse_args()
    import torch
    from torch.nn.functional import normalize

    from measure import report, timer
    from mmmoca.evaluation import PatchBank, knn_search

    figures = []

    def add_row(part: str, made: float, seconds: float, number: int) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if args.device == 'cuda':
            peak = torch.cuda.max_memory_allocated() / 2**30
        row = {'part': part, 's to fill': made, 'images/s': number / seconds}
        figures.append(row | {'GiB': peak})

    def images(index: int) -> tuple:
        maps = torch.randn(1, args.dims, 32, 32, device=args.device)
        masks = torch.randint(args.classes, (1, 32, 32))
        masks = masks.repeat_interleave(16, 1).repeat_interleave(16, 2)
        return [index], maps, masks

    if args.patches:
        count = -(-args.patches // 1024)
        start = timer()
        bank = PatchBank(map(images, range(count)), args.classes, 1024, count)
        filled = timer()
        for _ in range(args.images):
            maps = torch.randn(1, args.dims, 32, 32, device=args.device)
            bank.predict(maps, k=30, temperature=0.02).cpu()
        part = f'{bank.size} patches of {args.dims}'
        add_row(part, filled - start, timer() - filled, args.images)
        del bank
    if args.bank:
        start = timer()
        shape = args.bank, args.dims
        bank = normalize(torch.randn(shape, device=args.device))
        queries = normalize(bank[: args.queries] + 1)
        filled = timer()
        knn_search(queries, bank, k=20)
        part = f'k-NN in {args.bank} images of {args.dims}'
        add_row(part, filled - start, timer() - filled, len(queries))
    report(figures, args.json)


if __name__ == '__main__':
    main()
