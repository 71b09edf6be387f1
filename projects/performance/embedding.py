# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images a second of ``encoder.embed``, against a plain loop over timm's ViT.

The loop is what people write: ``timm.create_model``, torchvision's transforms
on PIL images, PyTorch's loader with as many workers. Both read the same files,
have the same weights and take turns; their features are compared first. The
rows below are parts of both: the files read by the loaders alone, and the
encoders alone on a batch in memory.

Example:
    python projects/performance/embedding.py --workers 2 --threads 2
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from mmmoca.apis import Encoder


def cpu_seconds() -> float:
    """Seconds of this process and those that it has waited for."""
    return sum(os.times()[:4])


def plain_loader(paths: list[str], args: argparse.Namespace) -> 'DataLoader':
    """The loader that people write."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    side = args.img_size
    prepare = transforms.Compose(
        [
            transforms.Resize(round(side * 8 / 7), 3),
            transforms.CenterCrop(side),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    class Files(Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int):
            return prepare(Image.open(paths[index]).convert('RGB'))

    return DataLoader(Files(), args.batch_size, num_workers=args.workers)


def forms_of(
    encoder: 'Encoder', vit, paths: list[str], args: argparse.Namespace
) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    import torch

    from mmmoca.apis.images import image_batches, open_images

    device = torch.device(args.device)
    side = args.img_size
    batch = torch.randn(args.batch_size, 3, side, side, device=device)

    def sweep() -> torch.Tensor:
        with torch.no_grad():
            found = []
            for images in plain_loader(paths, args):
                tokens = vit.forward_features(images.to(device))
                both = tokens[:, 0], tokens[:, 1:].mean(dim=1)
                found.append(torch.cat(both, dim=1).cpu())
        return torch.cat(found)

    def embed() -> torch.Tensor:
        return encoder.embed(paths, args.batch_size, num_workers=args.workers)

    def read() -> None:
        images = open_images(paths, encoder.pipeline)
        for _ in image_batches(images, args.batch_size, args.workers):
            pass

    @torch.no_grad()
    def encode(model: Callable) -> None:
        model(batch)
        if device.type == 'cuda':
            torch.cuda.synchronize()

    close = dict(rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(embed().pick('cls-avg'), sweep(), **close)
    return {
        'a loop over timm': sweep,
        'encoder.embed': embed,
        'timm: files alone': lambda: [*plain_loader(paths, args)],
        'embed: files alone': read,
        'timm: a batch in memory': lambda: encode(vit.forward_features),
        'embed: a batch in memory': lambda: encode(encoder),
    }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--arch', default='vit_small_patch16_224', help='name of timm')
    add('--img-size', type=int, default=224)
    add('--number', type=int, default=256, help='of images')
    add(
        '--size',
        type=int,
        nargs=2,
        default=(375, 500),
        metavar=('HEIGHT', 'WIDTH'),
        help='of the photographs, JPEG files of quality 90',
    )
    add('--batch-size', type=int, default=64)
    add('--workers', type=int, default=2)
    add('--threads', type=int, default=2, help='of the encoder')
    add('--device', default='cpu')
    add('--repeats', type=int, default=5)
    add(
        '--cpu-time',
        action='store_true',
        help='count the seconds of all processes on a core: other work on '
        'the machine hardly matters then',
    )
    args = parser.parse_args()
    import mmmoca  # noqa: I001  checks the installation before all else

    import timm
    import torch
    from torch.utils.benchmark import timer

    from measure import median_seconds, name_of, print_table
    from pipelines import write_photos

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(folder, args.number, args.size)
        paths = sorted(str(path) for path in Path(folder).glob('*.jpg'))
        options = dict(img_size=args.img_size, num_classes=0)
        vit = timm.create_model(args.arch, **options).eval()
        torch.save(vit.state_dict(), f'{folder}/vit.pth')
        encoder = mmmoca.load(f'{folder}/vit.pth', device=args.device)
        forms = forms_of(encoder, vit.to(args.device), paths, args)
        clock = cpu_seconds if args.cpu_time else timer
        seconds = median_seconds(forms, args.repeats, clock)
    rates = {
        name: (args.batch_size if 'batch' in name else len(paths)) / value
        for name, value in seconds.items()
    }
    against = {
        ours: rates[ours] / rates[theirs]
        for theirs, ours in zip(*(iter(rates),) * 2)
    }
    print_table(
        f'{args.arch}, {args.workers} workers, on {name_of(args.device)}; '
        f'medians of {args.repeats} turns',
        ('', f'images/s{" and core" * args.cpu_time}', 'ratio'),
        (
            (name, f'{rate:.1f}', f'{against.get(name, 1):.2f}')
            for name, rate in rates.items()
        ),
    )


if __name__ == '__main__':
    main()
