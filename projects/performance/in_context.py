# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of in-context segmentation for a bank of any size.

The features are drawn; ``embedding.py`` measures what the encoder takes. An
image has 32 x 32 patches, as one of 512 pixels has them.

Example:
    python projects/performance/in_context.py --patches 1000000
"""

import argparse
import resource
import time


def main() -> None:
    """Make a bank, segment images by it, and print what both took."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--patches', type=int, default=1_000_000, help='of the bank')
    add('--dims', type=int, default=768, help='width of the encoder')
    add('--classes', type=int, default=150)
    add('--images', type=int, default=3, help='to segment')
    add('--device', default='cpu')
    args = parser.parse_args()
    import torch

    from mmmoca.evaluation import PatchBank

    def part(index: int) -> tuple:
        maps = torch.randn(1, args.dims, 32, 32, device=args.device)
        masks = torch.randint(args.classes, (1, 32, 32))
        masks = masks.repeat_interleave(16, 1).repeat_interleave(16, 2)
        return [index], maps, masks

    count = -(-args.patches // 1024)
    start = time.perf_counter()
    bank = PatchBank(map(part, range(count)), args.classes, 1024, count)
    made = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(args.images):
        maps = torch.randn(1, args.dims, 32, 32, device=args.device)
        bank.predict(maps, k=30, temperature=0.02).cpu()
    seconds = (time.perf_counter() - start) / args.images
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f'{bank.size} patches of {args.dims}: {made:.0f} s to fill, '
        f'{seconds:.1f} s an image, {peak:.1f} GiB at most'
    )


if __name__ == '__main__':
    main()
