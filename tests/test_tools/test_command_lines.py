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


def ends_alone(lines, folder):
    """How command lines end without the stack: output and exception."""
    run = python('-c', RUN, json.dumps(lines), cwd=folder)
    return zip(lines, json.loads(run.stdout), strict=True)


def check_help(tools, folder):
    for (tool, _), end in ends_alone([[t, '--help'] for t in tools], folder):
        assert end.startswith(f'usage: {Path(tool).name}'), end
        assert end.endswith('SystemExit: 0'), end


def test_help_needs_no_stack(tmp_path):
    files = {path.as_posix() for path in TOOLS.rglob('[!_]*.py')}
    names = WITHOUT_MMMOCA | WORK.keys()
    assert files == {(TOOLS / name).as_posix() for name in names}
    check_help(files, tmp_path)


def test_work_starts_with_a_check_of_the_installation(tmp_path):
    (tmp_path / 'FILE').touch()
    (tmp_path / 'FOLDER').mkdir()
    lines = [[f'{TOOLS / tool}', *line] for tool, line in WORK.items()]
    for (tool, *_), end in ends_alone(lines, tmp_path):
        assert end.startswith('ImportError: mmmoca '), f'{tool}: {end}'
        assert 'needs torch>=2.6 (not installed), mmengine' in end, tool
