"""Names in messages: as they can be shown, lists that are cut off, and known names that are similar to an unknown one.

Names come from models, files and command lines, and may hold any character. Tables keep them as they are. Here they
are escaped for messages, so that no name moves a cursor, breaks a line, or reads as one of our quantities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from reprlib import Repr

MOST_SUGGESTED = 3  # names that an error suggests
MOST_SHOWN = 200  # characters of a value that a message shows
_QUANTITY = re.compile(r"<(?=[a-z][a-z0-9_]*>)")  # what common.cli.texts.wording would replace by a flag
_SHORT = Repr()  # stops early: a value of a few hundred aliases may unfold to gigabytes
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 10 * MOST_SHOWN
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20
_SHORT.maxlevel = 3


def printable(text: str) -> str:
    """Return a text with escapes for all that is not seen or moves its neighbours: line ends, marks of direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shorten(text: str, width: int, size: Callable[[str], int] = len) -> str:
    """Shorten a name to a width by cutting its middle, because the ends distinguish nodes."""
    if size(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{_start(text, width - 1 - tail, size)}…{_start(text[::-1], tail, size)[::-1]}"


def _start(text: str, width: int, size: Callable[[str], int]) -> str:
    """Return as many of the first characters as fit."""
    start = text[:width]
    while size(start) > width:
        start = start[:-1]
    return start


def shown(name: object) -> str:
    """Return a name as a message shows it: escaped, and not longer than ``MOST_SHOWN``."""
    return _QUANTITY.sub(r"\\x3c", printable(shorten(str(name), MOST_SHOWN)))


def quoted(value: object) -> str:
    """Return a value that was given as a message quotes it: as Python writes it, otherwise like :func:`shown`."""
    return shown(_SHORT.repr(value))


def listed(names: Iterable[str], most: int) -> str:
    """Return the first ``most`` names, and how many more there are: ``a, b and 2 more``."""
    every = [*names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(map(shown, every[:most]))}{more}"


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to ``MOST_SUGGESTED`` names that contain this one, the shortest first, or are spelt like it."""
    by_lower = {text.lower(): text for text in known if text}
    similar = sorted((text for text in by_lower if name.lower() in text), key=lambda text: (len(text), text))
    if len(similar) < MOST_SUGGESTED:
        similar += get_close_matches(name.lower(), by_lower, n=MOST_SUGGESTED)
    return [by_lower[text] for text in dict.fromkeys(similar)][:MOST_SUGGESTED]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the beginning of a remedy: the known names that are spelt like this one; empty if none is."""
    similar = similar_names(name, known)
    return f"did you mean {' or '.join(similar)}? " if similar else ""
