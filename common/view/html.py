"""HTML elements of the report: page, section, table, drawing, list. All text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
MOST_PRINTED, MOST_COLUMNS = 40, 24
RIGHT = (
    ", ".join(f".right-{column} :nth-child({column}):is(td, th)" for column in range(1, MOST_COLUMNS + 1))
    + " { text-align: right; font-variant-numeric: tabular-nums; }"
)
WIDE = 60  # characters: a longer cell may wrap
_NUMBER = re.compile(r"[–\-+]?$|[-+]?\d[\d.]*( ?[^\s]{0,12})?(x| %)?( \*| above)?$")
_COORDINATES = re.compile(r'(?<=\s)(d|x|y)="[^"]*"')
_DIGITS, _COMMENT = re.compile(r"(\d\.\d\d)\d+"), re.compile(r"\s*<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r'(\bid="|href="#|url\(#)')


def page(title: str, body: Iterable[str], style: str = "", script: str = "") -> str:
    """Return a self-contained HTML document; ``style`` and ``script`` are what it has beyond the common style."""
    content = "\n".join(body)
    code = f"<script>{script}</script>\n" if script else ""
    looks = f"{STYLE}{RIGHT}\n{style}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n'
        f"<style>{looks}</style>\n</head>\n<body>\n<main>\n{content}\n</main>\n{code}</body>\n</html>\n"
    )


def section(name: str, title: str, *content: str) -> str:
    """Return a section with an anchor; an empty string where it has no content."""
    inner = "\n".join(filter(None, content))
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{inner}\n</section>' if inner else ""


def html_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], aside: str = "", nodes: Sequence[Sequence[int]] = ()
) -> str:
    """Return a table with a text below; columns in which every cell is a number are aligned right.

    Its box has a tab stop, so that the keys scroll it; a script that puts buttons into it takes that away. ``nodes``
    are numbers of the executed nodes that each row is about.
    """
    body = [[str(cell) for cell in row] for row in rows]
    if not body:
        return ""
    right = (f"right-{place + 1}" for place in range(len(header)) if all(_NUMBER.match(row[place]) for row in body))
    about = [f' data-n="{" ".join(map(str, numbers))}"' if numbers else "" for numbers in nodes] or [""] * len(body)
    inner = "\n".join(f"<tr{of}>{''.join(map(_cell, row))}</tr>" for of, row in zip(about, body, strict=True))
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    cut = f'<p class="print">The first {MOST_PRINTED} of {len(body)} rows.</p>' if len(body) > MOST_PRINTED else ""
    note = cut + (f'<p class="aside">{escape(aside)}</p>' if aside else "")
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="table by {escape(header[0])}">'
        f'<table class="{" ".join(right)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{inner}\n</tbody>\n</table></div>{note}"
    )


def _cell(text: str) -> str:
    return f'<td class="wide">{escape(text)}</td>' if len(text) > WIDE else f"<td>{escape(text)}</td>"


def figure(name: str, caption: str, svg: bytes) -> str:
    """Embed an SVG; its ids get the name of the figure as a prefix, so that they are unique in the page.

    Coordinates keep as many digits as a screen shows, which makes the page a third smaller.
    """
    text = svg.decode("utf-8")
    drawing = _REFERENCE.sub(lambda match: f"{match[0]}{name}-", text[text.index("<svg") :])
    drawing = _COORDINATES.sub(lambda match: _DIGITS.sub(r"\1", " ".join(match[0].split())), _COMMENT.sub("", drawing))
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f'<figure id="{name}">\n{drawing}<figcaption class="aside">{escape(caption)}</figcaption>\n</figure>'


def bullet_list(texts: Iterable[str]) -> str:
    """Return an unordered list, or nothing for no texts."""
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>\n{items}\n</ul>" if items else ""
