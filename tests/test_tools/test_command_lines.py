# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All tools: ``--help`` without the stack, and work not without it."""

import json
from pathlib import Path

from ..tools import TOOLS, python

CONFIG = 'demo/moca_vit-tiny_textures.py'
# What each tool is started with; FILE and FOLDER exist.
WORK = {
    'analysis_tools/band_statistics.py': ['FOLDER'],
    'analysis_tools/compare.py': ['FILE', '--data-root', 'FOLDER'],
    'analysis_tools/lr_sweep.py': [CONFIG, '--lrs', '1'],
    'analysis_tools/plot_curves.py': ['FOLDER'],
    'dataset_converters/make_shards.py': ['FOLDER', 'shards'],
    'dataset_converters/make_subset.py': ['FOLDER', 'lists'],
    'demo.py': [],
    'embed.py': ['FILE', 'FOLDER', 'out.npy'],
    'export.py': ['FILE', 'out', '--to', 'onnx'],
    'model_converters/extract_backbone.py': ['FILE', 'out.pth'],
    'model_converters/moca_release.py': ['FILE', 'out.pth'],
    'model_converters/timm_vit.py': ['FILE', 'out.pth'],
    'test.py': [CONFIG, 'FILE'],
    'train.py': [CONFIG],
    'visualization/overview.py': [CONFIG.removesuffix('.py'), 'FILE'],
}
# They write files by NumPy and OpenCV, or install mmcv.
WITHOUT_MMMOCA = {
    'build_mmcv_ops.py',
    'dataset_converters/cityscapes_splits.py',
    'dataset_converters/make_digits.py',
    'dataset_converters/make_shapes_coco.py',
    'dataset_converters/make_textures.py',
}
# As if nothing heavy were installed: how each command line ends.
RUN = """
import contextlib, io, json, runpy, sys
from pathlib import Path

sys.modules.update(dict.fromkeys(
    'matplotlib mmcv mmdet mmengine mmpretrain mmseg sklearn torch'.split()
))
ends = []
for tool, *arguments in json.loads(sys.argv[1]):
    sys.argv = [tool, *arguments]
    sys.path.insert(0, str(Path(tool).parent))
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(tool, run_name='__main__')
    except (Exception, SystemExit) as error:
        ends.append(f'{output.getvalue()}{type(error).__name__}: {error}')
    del sys.path[0]
print(json.dumps(ends))
"""


def test_help_and_work_without_the_stack(tmp_path):
    files = TOOLS.rglob('[!_]*.py')
    tools = sorted(path.relative_to(TOOLS).as_posix() for path in files)
    assert {*tools} == WITHOUT_MMMOCA | WORK.keys()
    (tmp_path / 'FILE').touch()
    (tmp_path / 'FOLDER').mkdir()
    lines = [(tool, '--help') for tool in tools]
    lines += [(tool, *arguments) for tool, arguments in WORK.items()]
    commands = [[str(TOOLS / tool), *arguments] for tool, *arguments in lines]
    run = python('-c', RUN, json.dumps(commands), cwd=tmp_path)
    missing = 'ImportError: mmmoca '
    for (tool, *arguments), end in zip(
        lines, json.loads(run.stdout), strict=True
    ):
        if arguments == ['--help']:
            assert end.startswith(f'usage: {Path(tool).name}'), end
            assert end.endswith('SystemExit: 0'), end
        else:
            assert end.startswith(missing), f'{tool}: {end}'
            assert 'needs torch>=2.6 (not installed), mmengine' in end, end
