# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All tools: ``--help`` works without the stack, other work does not."""

import argparse
import contextlib
import re
import sys
import warnings

import pytest

import mmmoca
import mmmoca.__main__ as command
from mmmoca.messages import warn
from mmmoca.shipped import find_config, shipped

from ..helpers.command_lines import check_help, ends_alone
from ..helpers.tools import TOOLS, forget_tools, load_tool, python


def test_help_needs_no_stack(tmp_path):
    check_help(TOOLS.rglob('[!_]*.py'), tmp_path)


def test_work_starts_with_a_check_of_the_installation(tmp_path):
    (tmp_path / 'FILE').touch()
    train = [f'{TOOLS}/train.py', 'demo/moca_vit-tiny_textures.py']
    embed = [f'{TOOLS}/embed.py', 'FILE', 'images', 'out.npy']
    for end in ends_alone([train, embed], tmp_path):
        assert end.endswith('SystemExit: 2'), end
        assert 'needs torch>=2.6 (not installed), mmengine' in end


@pytest.mark.slow
def test_one_command_has_all_tools(monkeypatch, capsys):
    def printed(*line):
        monkeypatch.setattr(sys, 'argv', ['mmmoca', *line])
        with monkeypatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr(sys, 'path', ['', *sys.path])
            patch.delitem(sys.modules, 'test', raising=False)
            forget_tools()
            command.main()
        return capsys.readouterr().out

    assert printed('--version') == f'{mmmoca.__version__}\n'
    alone = printed()
    assert str(shipped('configs')) in alone
    for name in command.COMMANDS:
        assert f'\n  {name} ' in alone
        assert printed(name, '--help').startswith(f'usage: mmmoca {name} ')
    lines = printed('configs').split('\n\n')[0].splitlines()
    assert len(lines) > 40
    for line in lines:
        name, comment = line.split(maxsplit=1)
        assert find_config(name).match(f'{name}.py') and comment
    assert find_config(f'mmmoca::{name}.py') == find_config(name)
    whole = printed(
        *('configs', 'moca_vit-b16_own-images'),
        *('--cfg-options', 'epochs=7'),
    )
    assert 'max_epochs=7' in whole and 'embed_dims' in whole
    names = re.findall(r'^(\w+) ?=', whole, re.M)
    assert 'model' in names and 'bank_dataloader' not in names


def test_other_files_are_no_configs(tmp_path):
    for name in ('epoch_2.pth', 'image.png', 'notes'):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=name):
            find_config(tmp_path / name)
    (tmp_path / 'run.py').touch()
    with pytest.raises(FileNotFoundError, match=r'run\.py'):
        find_config(tmp_path)


@pytest.mark.slow
def test_a_config_is_refused_before_pytorch_is_loaded(tmp_path):
    train = '-X', 'importtime', TOOLS / 'train.py', 'moca_vit-b16_own-images'
    for option in ('data_root=none', 'model.backbon.arch=b'):
        run = python(*train, '--cfg-options', option, cwd=tmp_path)
        assert run.returncode == 2 and option[:9] in run.stderr
        assert not re.search(r'\| +torch$', run.stderr, re.M)


def test_an_error_of_a_worker_is_one_line(capsys):
    """PyTorch puts the whole traceback into the error's text."""

    def work(_):
        raise OSError(
            'Caught OSError in DataLoader worker process 0.\n'
            'Original Traceback (most recent call last):\n  File "a.py"\n'
            'OSError: a.png is damaged:\nreplace it'
        )

    with pytest.raises(SystemExit):
        arguments = load_tool('_arguments')
        arguments.run_program(argparse.ArgumentParser('p'), work, [])
    assert (
        capsys.readouterr().err == 'p: error: a.png is damaged: replace it\n'
    )


def test_a_warning_of_data_is_printed_once(capsys):
    """Python forgets shown warnings when a library changes a filter."""

    def work(_):
        for text in ('2 images are odd', '1 is odd', '2 images are odd'):
            warn(text)
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')

    arguments = load_tool('_arguments')
    arguments.run_program(argparse.ArgumentParser('p'), work, [])
    printed = capsys.readouterr().err.splitlines()
    assert printed == ['warning: 2 images are odd', 'warning: 1 is odd']
