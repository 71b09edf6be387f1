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
import statistics
from functools import partial

KEEP_MEMORY = {
    'MALLOC_MMAP_THRESHOLD_': '8589934592',
    'MALLOC_TRIM_THRESHOLD_': '17179869184',
    'MALLOC_TOP_PAD_': '268435456',
}


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--num-words', type=int, default=4096)
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    return parser.parse_args()


def main() -> None:
    """Measure both forms in turns and print the table."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from measure import name_of, print_table, take_turns
    from objective_forms import FORMS, Objective
    from processes import own_process

    def measure(form: str, environment: dict) -> tuple[float, float, float]:
        options = args.batch_size, args.num_words, args.device
        with own_process(
            Objective, form, *options, environment=environment
        ) as ask:
            return ask('measure', args.repeats)

    settings = {'default': {}}
    if args.device == 'cpu':
        settings['keeps memory'] = KEEP_MEMORY
    rows = []
    for setting, environment in settings.items():
        results = take_turns(
            {form: partial(measure, form, environment) for form in FORMS},
            args.rounds,
            warm_up=0,
        )
        medians = {
            form: [statistics.median(values) for values in zip(*turns)]
            for form, turns in results.items()
        }
        base_seconds, base_memory, base_loss = medians['straightforward']
        for form, (seconds, memory, loss) in medians.items():
            assert abs(loss / base_loss - 1) < 1e-4
            memory = max(memory, 1)  # small shapes take none
            rows.append(
                (
                    *(setting, form, f'{seconds:.3f}', f'{memory:.0f}'),
                    f'{base_seconds / seconds:.2f}x',
                    f'{base_memory / memory:.1f}x',
                )
            )
    print_table(
        f'Token objective, batch {args.batch_size}, K={args.num_words}, '
        f'{name_of(args.device)}',
        ('allocator', 'form', 's', 'MiB', 'faster', 'leaner'),
        rows,
    )


if __name__ == '__main__':
    main()
