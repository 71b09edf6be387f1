# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of the token objective, lean against straightforward.

The straightforward form takes the same steps as the authors' code: it assigns
the tokens of each view to the codebook and joins the codes of both views,
keeps the logits of all rounds, gathers the decoder's targets by indices
repeated for each word, and takes log-softmax and KL divergence of all tokens
at once. Ours goes through the tokens in chunks. Each measurement runs in a
process of its own, the two forms in turns; on a CPU under both settings of
the C library's allocator, since returning large tensors to the system costs
the straightforward form much of its time.

Memory is what a form adds to its inputs, the kernels' own (loaded by a run on
one image) left out.
"""

import argparse


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--num-words', type=int, default=4096)
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--form', help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure both forms in turns and print the table."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from rich.console import Console

    from _benchmark_objective import benchmark, measure

    if args.form:
        measure(args)
    else:
        Console().print(benchmark(args))


if __name__ == '__main__':
    main()
