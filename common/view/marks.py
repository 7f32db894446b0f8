"""Marks in a drawing: which executed nodes each point and bar shows.

A drawing function names, for each part of an artist, the nodes or the items of a plan that it shows. In the SVG each
such part then has their numbers (``data-n``), which the report joins pictures and tables by, and a title, which viewers
show beside the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote, unquote

PREFIX = "nodes:"
MOST_NAMED = 3
_GROUP = re.compile(rf'^( *)<g id="{PREFIX}([^"]*)">\n(.*?)^\1</g>', re.DOTALL | re.MULTILINE)
_PART = re.compile(r"<(use|path) ((?:xlink|d=)[^>]*)/>|<defs>.*?</defs>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marks:
    """Numbers of executed nodes by name, also by items of a plan, which may compute several; what is said of each."""

    numbers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    titles: Mapping[int, str] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> list[int]:
        """Return the numbers of all that have these names, each once."""
        return list(dict.fromkeys(number for name in names for number in self.numbers.get(name, ())))

    def title(self, numbers: Sequence[int]) -> str:
        """Return what is said of some nodes together."""
        titles = [self.titles[number] for number in numbers]
        more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
        return titles[0] if len(titles) == 1 else f"{len(titles)} nodes: {', '.join(titles[:MOST_NAMED])}{more}"


def mark_id(names: Iterable[Sequence[str]]) -> str:
    """Return the id of a group in an SVG whose parts show these nodes or items of the plan, in the order drawn."""
    return PREFIX + quote(json.dumps([*map(list, names)]))


def marked(svg: str, marks: Marks) -> str:
    """Return a drawing in which every marked part has the numbers of its nodes and a title."""

    def group(match: re.Match[str]) -> str:
        indent, names, inner = match.groups()
        parts = iter(json.loads(unquote(names)))
        drawn = _PART.sub(lambda part: _with_title(part, marks, parts) if part[1] else part[0], inner)
        if next(parts, None) is not None:
            raise ValueError("a marked artist has fewer parts in the SVG than it was drawn with")
        return f"{indent}<g>\n{drawn}{indent}</g>"

    return _GROUP.sub(group, svg)


def _with_title(part: re.Match[str], marks: Marks, parts: Iterable[Sequence[str]]) -> str:
    numbers = marks.of(next(iter(parts)))
    if not numbers:
        return part[0]
    kind, attributes = part[1], part[2]
    shown = " ".join(map(str, numbers))
    return f'<{kind} data-n="{shown}" {attributes}><title>{escape(marks.title(numbers))}</title></{kind}>'
