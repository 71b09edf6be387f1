# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure the rate of a large matrix product, which no training step exceeds.

Example:
    python projects/performance/matrix.py
"""

import argparse
from pathlib import Path


def main() -> None:
    """Measure and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--size', type=int, default=8192, help='side of both matrices')
    add('--device', default='cuda')
    add('--repeats', type=int, default=20)
    add('--json', type=Path, metavar='FILE', help='write the figure there')
    args = parser.parse_args()
    import torch

    from measure import median_seconds, name_of, report

    shape = args.size, args.size
    # Random numbers, since a GPU multiplies zeros faster.
    left, right = torch.randn(
        2, *shape, dtype=torch.bfloat16, device=args.device
    )
    seconds = median_seconds(dict(product=lambda: left @ right), args.repeats)
    print(f'Sides of {args.size}, bf16, {name_of(args.device)}')
    rate = 2 * args.size**3 / seconds['product'] / 1e12
    report([{'TFLOP/s': rate}], args.json)


if __name__ == '__main__':
    main()
