# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What few images can teach: k-NN by their number and the recipe, as a table.

A small ViT is pretrained on some hundreds of drawn textures. k-NN is measured
with 5000 others and their labels, the same for every row. Runs that are there
are not repeated.
"""

from math import log2, sqrt

from projects.trials import (
    accuracies,
    parser,
    pretrain,
    print_table,
    spread,
    textures,
)

WORDS = 'model.codebook.num_words'
NEW_WORDS = 'model.codebook.num_new_words'
STUDENT = 'model.masking.mask_ratios'
DECODER = 'model.masking.decoder_mask_ratios'
# Share of the run, name, and what it changes.
RECIPES = (
    (0.5, 'K = {words}', {}),
    (1, 'K = {words}', {}),
    (2, 'K = {words}', {}),
    (1, 'K = 256', {WORDS: 256}),
    (1, 'K = 1024', {WORDS: 1024}),
    (1, 'K = 1024, K_new = 16', {WORDS: 1024, NEW_WORDS: 16}),
    (
        1,
        'K = {words}, one round of masks',
        {STUDENT: '[0.55]', DECODER: '[0.35]'},
    ),
    (
        1,
        'K = {words}, less masked',
        {STUDENT: '[0.5,0.65]', DECODER: '[0.35,0.5]'},
    ),
    (
        1,
        'K = {words}, more masked',
        {STUDENT: '[0.65,0.85]', DECODER: '[0.4,0.6]'},
    ),
)


def main() -> None:
    """Draw, train and print the table."""
    options = parser(__doc__)
    options.add_argument(
        '--images', type=int, nargs='+', default=[250, 1000, 5000]
    )
    options.add_argument('--steps', type=int, default=400)
    args = options.parse_args()
    out = args.out.resolve()
    labelled = textures(out / 'labelled', 5000, 1000, seed=1)
    rows = []
    for number in args.images:
        images = textures(out / f'images_{number}', number, 12, seed=2)
        # The root of their number, through the quick start's 256.
        words = 2 ** round(log2(256 * sqrt(number / 5000)))
        for index, (share, name, changes) in enumerate(RECIPES):
            steps = int(share * args.steps)
            ends = []
            for seed in range(args.seeds):
                work = out / f'images_{number}_recipe_{index}_seed_{seed}'
                changed = {WORDS: words, 'randomness.seed': seed} | changes
                pretrain(work, images, labelled, steps, changed)
                ends.append(accuracies(work)[-1])
            epochs = f'{64 * steps / number:.0f}'
            name = name.format(words=words)
            rows.append((str(number), str(steps), epochs, name, spread(ends)))
    head = 'images', 'steps', 'epochs', 'recipe', 'k-NN'
    print_table(head, rows)


if __name__ == '__main__':
    main()
