# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The notebooks of docs/ run from the first cell to the last."""

import json

import pytest

from .helpers.tools import ROOT

NOTEBOOKS = ROOT / 'docs' / 'notebooks'


def test_outputs_are_committed_and_small():
    for path in NOTEBOOKS.glob('*.ipynb'):
        cells = json.loads(path.read_text())['cells']
        code = [cell for cell in cells if cell['cell_type'] == 'code']
        assert all(
            cell['outputs'] and cell['execution_count'] for cell in code
        )
        assert path.stat().st_size < 1e6


# fewer images and epochs
SMALLER = {"'640'": "'320'", "'240'": "'96'", 'epochs=6': 'epochs=2'}


@pytest.mark.release
def test_quickstart(tmp_path):
    import nbformat  # would cost the quick tests a second
    from nbclient import NotebookClient

    source = (NOTEBOOKS / 'quickstart.ipynb').read_text()
    for number, smaller in SMALLER.items():
        assert source.count(number) == 1
        source = source.replace(number, smaller)
    notebook = nbformat.reads(source, as_version=4)
    shown = len(notebook.cells)
    results = (
        'import json\n'
        "json.dump(dict(nearest=same, probe=accuracy, maps=maps.shape), open('"
        "results.json', 'w'))"
    )
    notebook.cells.append(nbformat.v4.new_code_cell(results))
    place = dict(metadata=dict(path=str(tmp_path)))
    NotebookClient(notebook, timeout=600, resources=place).execute()

    pictures = [
        output
        for cell in notebook.cells[:shown]
        for output in cell.get('outputs', ())
        if 'image/png' in output.get('data', ())
    ]
    assert len(pictures) == 3
    assert (tmp_path / 'run' / 'epoch_2.pth').is_file()
    found = json.loads((tmp_path / 'results.json').read_text())
    # There are 12 textures, so this is twice the chance level.
    assert found['nearest'] > 2 / 12 and found['probe'] > 2 / 12
    assert found['maps'] == [12, 12, 12, 128]
