"""Blocks of the documents that show what a command printed.

A comment before a block says which record it shows, and which of its lines::

    <!-- recorded plan: 3; "end to end"+4; "K1" -->

``3`` are the first three lines, ``"text"`` is the first line that contains the text, and ``"text"+4`` that line and the
next four. Without a selection the block shows the whole record. ``…`` marks what is left out.
"""

import re

from tests.support.paths import ROOT

OUTPUTS = ROOT / "tests" / "recorded" / "outputs"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(<!-- recorded (?P<name>[\w-]+)(?:: (?P<selection>.*?))? -->\n+```\n)(?P<shown>.*?)(```\n)", re.DOTALL
)
PIECE = re.compile(r'"(?P<text>[^"]+)"(?:\+(?P<more>\d+))?|(?P<first>\d+)')
OMITTED = "…"


def rendered(text):
    """The text of a document with the records in its blocks."""
    return BLOCK.sub(lambda block: block[1] + shown(block["name"], block["selection"] or "") + block[5], text)


def output(name):
    """What a command printed."""
    return (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")


def shown(name, selection):
    """The selected lines of a record."""
    lines = output(name).rstrip("\n").splitlines()
    kept = sorted({index for piece in PIECE.finditer(selection) for index in indices(lines, piece, name)})
    kept = kept or list(range(len(lines)))
    texts, last = [], -1
    for index in kept:
        texts += [OMITTED] if index > last + 1 else []
        texts.append(lines[index].rstrip())
        last = index
    texts += [OMITTED] if last < len(lines) - 1 else []
    return "\n".join(texts) + "\n"


def indices(lines, piece, name):
    """The lines that one piece of a selection names."""
    if piece["first"]:
        return range(min(int(piece["first"]), len(lines)))
    start = next((index for index, line in enumerate(lines) if piece["text"] in line), None)
    assert start is not None, f"{name}: no line contains {piece['text']!r}"
    return range(start, min(start + 1 + int(piece["more"] or 0), len(lines)))
