# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare the speed of ``encoder.embed`` with a plain loop over timm's ViT.

The loop is what people write: ``timm.create_model``, torchvision's transforms
on PIL images, and PyTorch's loader with as many workers as ``embed`` has. The
loop and ``embed`` take turns with the same files and the same weights; their
features are compared first.

Example:
    python projects/performance/embedding.py --workers 2 --threads 2
"""

import argparse
import os
import tempfile
from pathlib import Path


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    return sum(os.times()[:4])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    arch = 'name of the architecture in timm'
    add('--arch', default='vit_small_patch16_224', help=arch)
    add('--number', type=int, default=256, help='number of images')
    add('--batch-size', type=int, default=64)
    add('--workers', type=int, default=2)
    add('--threads', type=int, default=2, help='threads of the encoder')
    add('--device', default='cpu')
    add('--repeats', type=int, default=5)
    cpu = (
        "measure the CPU time of this program's processes: unlike elapsed "
        'time, it hardly depends on other programs'
    )
    add('--cpu-time', action='store_true', help=cpu)
    add('--json', type=Path, metavar='FILE', help='write the figures there')
    args = parser.parse_args()
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: I001

    import timm
    import timm.data
    import torch
    from torch.utils.data import DataLoader

    from measure import median_seconds, name_of, report, timer
    from pipelines import write_photos

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    write_photos(folder.name, args.number)
    vit = timm.create_model(args.arch, num_classes=0).eval()
    torch.save(vit.state_dict(), f'{folder.name}/vit.pth')
    encoder = mmmoca.load(f'{folder.name}/vit.pth', device=args.device)
    vit.to(args.device)
    # Resizes the shorter side to 256 pixels and crops the middle 224.
    prepare = timm.data.create_transform(224, interpolation='bicubic')
    images = timm.data.ImageDataset(folder.name, transform=prepare)
    paths = images.filenames(absolute=True)

    @torch.no_grad()
    def sweep() -> torch.Tensor:
        found = []
        loader = DataLoader(images, args.batch_size, num_workers=args.workers)
        for batch, _ in loader:
            tokens = vit.forward_features(batch.to(args.device))
            both = tokens[:, 0], tokens[:, 1:].mean(dim=1)
            found.append(torch.cat(both, dim=1).cpu())
        return torch.cat(found)

    def embed() -> torch.Tensor:
        found = encoder.embed(paths, args.batch_size, num_workers=args.workers)
        return found.pick('cls-avg')

    torch.testing.assert_close(embed(), sweep(), rtol=1e-3, atol=1e-3)
    forms = {'a loop over timm': sweep, 'encoder.embed': embed}
    clock = cpu_seconds if args.cpu_time else timer
    seconds = median_seconds(forms, args.repeats, clock)
    theirs = seconds['a loop over timm']
    print(
        f'\n{args.arch}, {args.workers} workers, on {name_of(args.device)}; '
        f'medians of {args.repeats} turns\n'
    )
    rate = 'images/s and core' if args.cpu_time else 'images/s'
    figures = [
        {'part': name, rate: args.number / value, 'ratio': theirs / value}
        for name, value in seconds.items()
    ]
    report(figures, args.json)


if __name__ == '__main__':
    main()
