# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Show which attention kernel PyTorch chooses, and how fast each kernel is.

Shapes are those of a ViT-B/16 in a step of 256 images with two views each, for
the teacher and for both masking rounds of the student. The program also says
which cuDNN is loaded, and warns if pip has installed another version.

Example:
    python projects/performance/attention.py
"""

import argparse
from importlib import metadata
from pathlib import Path

TOKENS = dict(teacher=197, first=89, second=50)


def loaded_cudnn(maps: str) -> str | None:
    """Return the path of the cuDNN that a process has loaded.

    Args:
        maps (str): Text of ``/proc/self/maps``.
    """
    lines = [line for line in maps.splitlines() if 'libcudnn' in line]
    return lines[0].split()[-1] if lines else None


def packaged_cudnn() -> tuple[str, int] | None:
    """Return the name and version, such as 91002, of the cuDNN from pip."""
    for package in metadata.distributions():
        name = package.metadata['Name'] or ''
        if name.startswith('nvidia-cudnn'):
            major, minor, patch = map(int, package.version.split('.')[:3])
            return name, 10000 * major + 100 * minor + patch
    return None


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--views', type=int, default=512, help='views in a step (512)')
    add('--heads', type=int, default=12)
    add('--device', default='cuda')
    add('--repeats', type=int, default=10)
    add('--json', type=Path, metavar='FILE', help='write the figures there')
    args = parser.parse_args()
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from measure import median_seconds, name_of, report

    print(f'{name_of(args.device)}, PyTorch {torch.__version__}')
    if args.device == 'cuda':
        version, packaged = torch.backends.cudnn.version(), packaged_cudnn()
        path = loaded_cudnn(Path('/proc/self/maps').read_text())
        print(f'cuDNN {version} from {path}')
        if packaged and packaged[1] != version:
            print(
                f'It is loaded instead of {packaged[1]} from {packaged[0]}: '
                'check LD_LIBRARY_PATH'
            )
    backends = dict(
        flash=SDPBackend.FLASH_ATTENTION,
        cuDNN=SDPBackend.CUDNN_ATTENTION,
        efficient=SDPBackend.EFFICIENT_ATTENTION,
        math=SDPBackend.MATH,
    )
    figures = []
    for part, tokens in TOKENS.items():
        shape = 3, args.views, args.heads, tokens, 64
        qkv = torch.randn(
            shape, dtype=torch.bfloat16, device=args.device
        ).requires_grad_(part != 'teacher')
        chosen = SDPBackend(torch._fused_sdp_choice(*qkv.unbind()))
        forms = {}
        for name, backend in backends.items():

            def attend(backend=backend, qkv=qkv):
                with sdpa_kernel(backend):
                    out = scaled_dot_product_attention(*qkv.unbind())
                if out.requires_grad:
                    out.backward(out.detach())

            try:
                attend()
            except RuntimeError:  # not for this device or shape
                continue
            forms[name] = attend
        for name, seconds in median_seconds(forms, args.repeats).items():
            # Two products forward, five backward.
            products = 2 if part == 'teacher' else 7
            operations = products * 2 * qkv[0].numel() * tokens
            figures.append(
                {
                    'part': f'{part} ({tokens}) {name}'
                    + ' *' * (backends[name] == chosen),
                    'ms': 1e3 * seconds,
                    'TFLOP/s': operations / seconds / 1e12,
                }
            )
    print(
        '\nIn bfloat16. The times of the student include the backward pass. '
        'PyTorch chooses the kernels marked *\n'
    )
    report(figures, args.json)


if __name__ == '__main__':
    main()
