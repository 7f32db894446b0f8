"""The help of every script: a page by default, and everything on request."""

import argparse
import importlib
import os
import shutil

import pytest

from common.artifacts.stages import STAGES
from common.cli.flags import flag_types
from common.cli.texts.help_text import MOST_COLUMNS, MOST_LINES, wrapped
from tests.support.paths import ROOT

SCRIPTS = sorted(script for script in STAGES if script.endswith(".py"))


def parser_of(script):
    return importlib.import_module(script.removesuffix(".py")).arguments()


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_is_a_page_that_ends_with_the_way_to_the_rest(script, monkeypatch):
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((200, 24)))
    lines = parser_of(script).format_help().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= MOST_COLUMNS
    assert lines[-1].startswith("--help-all")
    assert any(line.startswith("--") and line != lines[-1] for line in lines)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_whole_help_has_every_flag_and_the_whole_text(script):
    parser = parser_of(script)
    text = parser.format_help_all()
    assert all(flag in text for flag in parser.flags.values())
    assert " ".join(parser.doc.split()) in " ".join(text.split())


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_flag_of_a_file_refuses_an_empty_name(script):
    """The path of no name is the current folder, which no message names."""
    parser = parser_of(script)
    files = [action for action in parser._actions if action.metavar in ("FILE", "FOLDER", "DIR") and action.type]
    assert files
    for action in files:
        with pytest.raises(argparse.ArgumentTypeError, match="the path is empty"):
            action.type("")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_paragraphs_follow_the_terminal_and_examples_stay(columns):
    doc = (
        f"{'A word. ' * 40}\n\nReads   {'table ' * 30}\nWrites  {'page ' * 30}\n\n    an example that is {'long ' * 40}"
    )
    blocks = wrapped(doc, columns).split("\n\n")
    assert max(len(line) for block in blocks[:2] for line in block.splitlines()) <= columns
    assert [line[:8] for line in blocks[1].splitlines() if line[0] != " "] == ["Reads   ", "Writes  "]
    assert blocks[2] == doc.rstrip().split("\n\n")[2]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_default_can_be_given_on_the_command_line(script):
    """No path of this machine, no float for a duration, and no empty one."""
    text = parser_of(script).format_help_all()
    assert str(ROOT) not in text
    assert "(default: )" not in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "seconds"), [("50ms", 0.05), ("2s", 2.0), ("1m", 60.0), ("90s", 90.0), ("1h", 3600.0), ("1.5s", 1.5)]
)
def test_a_duration_is_written_as_it_is_read(text, seconds):
    assert flag_types.duration_text(seconds) == text
    assert flag_types.duration(text) == seconds


def test_a_default_of_zero_is_shown():
    assert "seed of the random inputs (default: 0)" in " ".join(parser_of("01_profile_onnx.py").format_help().split())
