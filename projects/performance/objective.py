# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of the token objective, lean against straightforward.

The straightforward form (:mod:`objective_forms`) takes the same steps as the
authors' code. Ours goes through the tokens in chunks. The two take turns,
each in processes of its own. On a CPU the settings of the C library's
allocator count, too: returning large tensors to the system costs the
straightforward form much of its time.
"""

import argparse
from functools import partial


def main() -> None:
    """Measure both forms in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add('--batch-size', type=int, default=16)
    add('--num-words', type=int, default=4096)
    add('--repeats', type=int, default=5)
    add('--rounds', type=int, default=3, help='of processes')
    add('--device', default='cpu', choices=['cpu', 'cuda'])
    args = parser.parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from measure import compare_apart, name_of
    from objective_forms import FORMS, build

    options = args.batch_size, args.num_words, args.device
    compare_apart(
        f'Token objective, batch {args.batch_size}, K={args.num_words}, '
        f'{name_of(args.device)}',
        {form: partial(build, form, *options) for form in FORMS},
        *(args.device, args.repeats, args.rounds),
    )


if __name__ == '__main__':
    main()
