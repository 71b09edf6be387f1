# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of the token objective, lean against straightforward.

The straightforward form assigns all tokens to the codebook at once, gathers
the decoder's targets by index, and takes log-softmax and KL divergence of all
of them. Ours goes through the tokens in chunks. Each measurement runs in a
process of its own, the two forms in turns; on a CPU under both settings of
the C library's allocator, since returning large tensors to the system costs
the straightforward form much of its time.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from mmmoca.models import MaskingPlan
from mmmoca.models.objectives import token_assignment_loss

KEEP_MEMORY = {
    'MALLOC_MMAP_THRESHOLD_': '8589934592',
    'MALLOC_TRIM_THRESHOLD_': '17179869184',
    'MALLOC_TOP_PAD_': '268435456',
}
KAPPA = 3.0


def straightforward(inputs: dict) -> Tensor:
    """Bags and the L_LOC of all rounds from one tensor of all codes."""
    with torch.no_grad():
        tokens = F.normalize(inputs['tokens'], dim=2)
        similarity = tokens @ inputs['words'].T  # (N, L, K)
        spread = (similarity.amax(2) - similarity.mean(2)).mean(1)
        codes = (similarity * inputs['sharpness']).softmax(dim=2)
        bags = codes[:, inputs['inner']].mean(dim=1)
    loss = 0
    for mask, features in zip(inputs['masks'], inputs['features']):
        index = mask.decoded[..., None].expand(-1, -1, codes.shape[2])
        target = codes.gather(1, index.contiguous()).flatten(0, 1)
        logits = KAPPA * features.flatten(0, 1) @ inputs['prototypes'].T
        loss = loss + F.kl_div(
            logits.log_softmax(dim=1), target, reduction='batchmean'
        )
    del bags, spread  # computed for the other loss and the codebook
    return loss / len(inputs['masks'])


def lean(inputs: dict) -> Tensor:
    """The same through this package's chunked function."""
    loss, _, _ = token_assignment_loss(
        inputs['features'],
        [mask.decoded for mask in inputs['masks']],
        inputs['prototypes'],
        KAPPA,
        inputs['tokens'],
        inputs['words'],
        inputs['sharpness'],
        inputs['inner'],
    )
    return loss


def make_inputs(args: argparse.Namespace) -> dict:
    """Random tensors of ViT-B/16's shapes for two views."""
    torch.manual_seed(0)
    device = torch.device(args.device)
    samples = 2 * args.batch_size
    masks = MaskingPlan(196).draw(samples, device)

    def unit_rows(width: int) -> Tensor:
        rows = torch.randn(args.num_words, width, device=device)
        return F.normalize(rows, dim=1)

    return dict(
        tokens=torch.randn(samples, 196, 768, device=device),
        words=unit_rows(768),
        sharpness=torch.tensor(20.0, device=device),
        inner=torch.arange(100, device=device),
        masks=masks,
        prototypes=unit_rows(512).requires_grad_(),
        features=[
            torch.randn(*mask.decoded.shape, 512, device=device)
            .div_(512**0.5)
            .requires_grad_()
            for mask in masks
        ],
    )


def measure(args: argparse.Namespace) -> None:
    """Print seconds and extra MiB of one form, forward and backward."""
    function = dict(straightforward=straightforward, lean=lean)[args.form]
    inputs = make_inputs(args)
    on_gpu = args.device == 'cuda'

    def run() -> float:
        start = time.perf_counter()
        loss = function(inputs)
        loss.backward()
        if on_gpu:
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        grads = [inputs['prototypes'], *inputs['features']]
        for leaf in grads:
            leaf.grad = None
        return elapsed, float(loss.detach())

    def peak() -> float:
        if on_gpu:
            return torch.cuda.max_memory_allocated() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    floor = peak()
    results = [run() for _ in range(args.repeats)]
    print(
        json.dumps(
            dict(
                seconds=statistics.median(r[0] for r in results),
                mebibytes=peak() - floor,
                loss=results[-1][1],
            )
        )
    )


def measure_in_process(form: str, extra: dict) -> dict:
    """Run :func:`measure` in a process with more environment variables."""
    command = [sys.executable, *sys.argv, '--form', form]
    output = subprocess.run(
        command,
        env=os.environ | extra,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


def main() -> None:
    """Measure both forms in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--num-words', type=int, default=4096)
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--form', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.form:
        measure(args)
        return
    table = Table(
        title=f'Token objective, batch {args.batch_size}, K={args.num_words},'
        f' {args.device}, {torch.get_num_threads()} threads'
    )
    for column in ('allocator', 'form', 's', 'MiB', 'faster', 'leaner'):
        table.add_column(column, justify='right')
    settings = {'default': {}}
    if args.device == 'cpu':
        settings['keeps memory'] = KEEP_MEMORY
    for name, extra in settings.items():
        forms = {'straightforward': [], 'lean': []}
        for _ in range(args.rounds):
            for form, results in forms.items():
                results.append(measure_in_process(form, extra))
        medians = {
            form: {
                key: statistics.median(r[key] for r in results)
                for key in results[0]
            }
            for form, results in forms.items()
        }
        base = medians['straightforward']
        for form, values in medians.items():
            assert abs(values['loss'] / base['loss'] - 1) < 1e-4
            table.add_row(
                name,
                form,
                f'{values["seconds"]:.3f}',
                f'{values["mebibytes"]:.0f}',
                f'{base["seconds"] / values["seconds"]:.2f}x',
                f'{base["mebibytes"] / values["mebibytes"]:.1f}x',
            )
    Console().print(table)


if __name__ == '__main__':
    main()
