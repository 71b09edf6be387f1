# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of benchmark_objective.py: both forms and their comparison."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from mmmoca.models import MaskingPlan, Targets
from mmmoca.models.objectives import token_assignment_loss

KEEP_MEMORY = {
    'MALLOC_MMAP_THRESHOLD_': '8589934592',
    'MALLOC_TRIM_THRESHOLD_': '17179869184',
    'MALLOC_TOP_PAD_': '268435456',
}
KAPPA = 3.0
SMALL = dict(batch_size=1, num_words=64)


def straightforward(inputs: dict) -> tuple[Tensor, tuple, tuple]:
    """L_LOC of all rounds from one tensor of all codes; bags; MSDs."""
    with torch.no_grad():
        views = inputs['tokens'].chunk(2)
        codes, bags, msds = zip(*(_assign(view, inputs) for view in views))
        codes = torch.cat(codes)  # (N, L, K)
    logits = [
        (KAPPA * features).flatten(0, 1) @ inputs['prototypes'].T
        for features in inputs['features']
    ]
    losses = [
        _divergence(codes, mask.decoded, prediction)
        for mask, prediction in zip(inputs['masks'], logits)
    ]
    return torch.stack(losses).mean(), bags, msds


def _assign(tokens: Tensor, inputs: dict) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of one view, its bags and its mean similarity difference."""
    distance = -F.linear(F.normalize(tokens, dim=2), inputs['words'])
    distance = distance.float()  # half precision, if autocast is on
    nearest, _ = distance.min(dim=2)
    msd = (distance.mean(dim=2) - nearest).mean()
    codes = (-inputs['sharpness'] * distance).softmax(dim=2)
    bags = F.normalize(codes[:, inputs['inner']].mean(dim=1), p=1, dim=1)
    return codes, bags, msd


def _divergence(codes: Tensor, position: Tensor, logits: Tensor) -> Tensor:
    """L_LOC of one round."""
    target = codes.gather(1, position[..., None].repeat(1, 1, codes.shape[2]))
    log_prediction = logits.log_softmax(dim=1)
    return F.kl_div(
        log_prediction, target.flatten(0, 1), reduction='batchmean'
    )


def lean(inputs: dict) -> tuple[Tensor, Tensor, Tensor]:
    """The same through this package's chunked function."""
    return token_assignment_loss(
        inputs['features'],
        [mask.decoded for mask in inputs['masks']],
        inputs['prototypes'],
        KAPPA,
        Targets(*(inputs[name] for name in Targets._fields)),
    )


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

    def run(inputs: dict) -> tuple[float, float]:
        start = time.perf_counter()
        loss, _, _ = function(inputs)
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

    # Loads the kernels.
    run(make_inputs(argparse.Namespace(**vars(args) | SMALL)))
    floor = peak()
    results = [run(inputs) for _ in range(args.repeats)]
    print(
        json.dumps(
            dict(
                seconds=statistics.median(r[0] for r in results),
                mebibytes=peak() - floor,
                loss=results[-1][1],
            )
        )
    )


def in_process(option: str, value: str, **environment: str) -> object:
    """What this command prints with one more option, in its own process."""
    command = [sys.executable, *sys.argv, option, value]
    output = subprocess.run(
        command,
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


def benchmark(args: argparse.Namespace) -> Table:
    """Measure both forms in turns.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        Table: A row for each form, under each setting of the allocator.
    """
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
                results.append(in_process('--form', form, **extra))
        medians = {
            form: {
                key: statistics.median(r[key] for r in results)
                for key in results[0]
            }
            for form, results in forms.items()
        }
        base = medians['straightforward']
        for form, values in medians.items():
            mebibytes = max(values['mebibytes'], 1)  # small shapes take none
            assert abs(values['loss'] / base['loss'] - 1) < 1e-4
            table.add_row(
                name,
                form,
                f'{values["seconds"]:.3f}',
                f'{mebibytes:.0f}',
                f'{base["seconds"] / values["seconds"]:.2f}x',
                f'{base["mebibytes"] / mebibytes:.1f}x',
            )
    return table
