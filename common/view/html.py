"""HTML elements of the report: page, section, table, drawing, list. All text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1180px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
pre { background: #f6f6f4; padding: 1rem; overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }
nav a { margin-right: 1rem; } a { color: #0072b2; }
figure { margin: 1rem 0 2rem; } figure svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e5e5e5; text-align: left; white-space: nowrap; }
td.wide { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
th { border-bottom: 2px solid #999; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.aside { color: #666; font-size: 13px; }
"""
WIDE = 60  # characters: a longer cell may wrap
_NUMBER = re.compile(r"[–\-+]?$|[-+]?\d[\d.]*( ?[^\s]{0,12})?(x| %)?$")
_REFERENCE = re.compile(r'(\bid="|href="#|url\(#)')


def page(title: str, body: Iterable[str]) -> str:
    """Return a self-contained HTML document."""
    content = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n{content}\n</body>\n</html>\n"
    )


def section(name: str, title: str, *content: str) -> str:
    """Return a section with an anchor; an empty string where it has no content."""
    inner = "\n".join(filter(None, content))
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{inner}\n</section>' if inner else ""


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], aside: str = "") -> str:
    """Return a table; columns in which every cell is a number are aligned right."""
    body = [[str(cell) for cell in row] for row in rows]
    if not body:
        return ""
    right = [all(_NUMBER.match(row[index]) for row in body) for index in range(len(header))]
    lines = ["".join(map(_cell, row, right)) for row in body]
    head = "".join(map(_cell, header, right)).replace("<td", "<th").replace("</td>", "</th>")
    inner = "\n".join(f"<tr>{line}</tr>" for line in lines)
    note = f'<p class="aside">{escape(aside)}</p>' if aside else ""
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{inner}\n</tbody>\n</table></div>{note}'
    )


def _cell(text: str, is_right: bool) -> str:
    kind = ' class="number"' if is_right else ' class="wide"' if len(text) > WIDE else ""
    return f"<td{kind}>{escape(text)}</td>"


def figure(name: str, caption: str, svg: bytes) -> str:
    """Embed an SVG; its ids get the name of the figure as a prefix, so that they are unique in the page."""
    text = svg.decode("utf-8")
    drawing = _REFERENCE.sub(lambda match: f"{match[0]}{name}-", text[text.index("<svg") :])
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f'<figure id="{name}">\n{drawing}<figcaption class="aside">{escape(caption)}</figcaption>\n</figure>'


def bullet_list(texts: Iterable[str]) -> str:
    """Return an unordered list, or nothing for no texts."""
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>\n{items}\n</ul>" if items else ""
