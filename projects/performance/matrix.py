# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rate of one large matrix product, which bounds that of a step.

Example:
    python projects/performance/matrix.py
"""

import argparse


def main() -> None:
    """Measure and print it."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--size', type=int, default=8192, help='of both matrices')
    add('--device', default='cuda')
    add('--repeats', type=int, default=20)
    args = parser.parse_args()
    import torch

    from measure import median_seconds, name_of

    shape = args.size, args.size
    # Zeros would be faster.
    left, right = torch.randn(
        2, *shape, dtype=torch.bfloat16, device=args.device
    )
    seconds = median_seconds(dict(product=lambda: left @ right), args.repeats)
    rate = 2 * args.size**3 / seconds['product'] / 1e12
    print(
        f'{args.size} x {args.size} x {args.size}, bf16, '
        f'{name_of(args.device)}: {rate:.1f} TFLOP/s'
    )


if __name__ == '__main__':
    main()
