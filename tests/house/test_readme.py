"""Each output that the README and the docs show comes from a recorded command; `make readme` records them again."""

import re

import pytest

from tests.support.documents.recorded_blocks import BLOCK, DOCUMENTS, OUTPUTS, output, rendered
from tests.support.documents.recorded_commands import commands
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d[\d.,]*(?:x\b| (?:ms|µs|mJ|J|W|GFLOP/s|GB/s|%)(?!\w))")
LONGEST = 240
COLUMNS = 120
# Rows of tables, aligned formulas, and the README's lines of a question and its command.
UNWRAPPED = re.compile(r" *\||    .*\S  |\*\*\[")
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_blocks_show_what_was_recorded(document):
    text = document.read_text(encoding="utf-8")
    assert rendered(text) == text


def test_the_readme_shows_no_other_output():
    """A block is a recorded output, or commands."""
    recorded = [match["shown"] for match in BLOCK.finditer(README)]
    assert len(recorded) > 8
    others = [
        body for language, body in FENCE.findall(README) if body not in recorded and language not in ("sh", "text")
    ]
    assert others == []


def test_the_figures_of_the_readme_s_text_are_in_a_record():
    prose = FENCE.sub("", README)
    records = "\n".join(output(name) for name in commands())
    assert [figure for figure in FIGURE.findall(prose) if figure not in records] == []


@pytest.mark.parametrize("name", commands())
def test_a_recorded_command_is_shown_with_its_output(name):
    texts = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert (OUTPUTS / f"{name}.txt").is_file()
    assert f"<!-- recorded {name}" in texts
    assert commands()[name] in texts


def test_every_record_has_its_command():
    assert {path.stem for path in OUTPUTS.glob("*.txt")} == {*commands()}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= LONGEST


@pytest.mark.parametrize("document", [path for path in TEXTS if path.stem != "ARTIFACTS"], ids=lambda path: path.name)
def test_text_is_wrapped(document):
    """ARTIFACTS.md is left out: a description of a table is one line of its declaration."""
    lines = FENCE.sub("", document.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if len(line) > COLUMNS and not UNWRAPPED.match(line)] == []
