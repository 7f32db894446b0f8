"""Configurations with one value changed."""

from __future__ import annotations

import copy
from typing import Any


def with_value(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the content with one value put in at ``section/key/…``, a number being an index; None takes it out."""
    found = copy.deepcopy(content)
    *sections, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    below: Any = found
    for section in sections:
        below = below[section]
    if value is None:
        del below[last]
    else:
        below[last] = value
    return found
