"""Names in messages: a list that is cut off, and the known names that are similar to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_SUGGESTED = 3  # names that an error suggests


def listed(names: Iterable[str], most: int) -> str:
    """Return the first ``most`` names, and how many more there are: ``a, b and 2 more``."""
    every = [*names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to ``MOST_SUGGESTED`` names that contain this one or are spelt like it, regardless of case."""
    by_lower = {text.lower(): text for text in known if text}
    similar = [text for text in by_lower if name.lower() in text]
    if len(similar) < MOST_SUGGESTED:
        similar += get_close_matches(name.lower(), by_lower, n=MOST_SUGGESTED)
    return [by_lower[text] for text in dict.fromkeys(similar)][:MOST_SUGGESTED]
