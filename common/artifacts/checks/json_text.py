"""JSON as the artifacts hold it: finite numbers, text that UTF-8 can hold, and no nesting without end."""

from __future__ import annotations

import json
import math
from typing import Any


def parse(text: str, *, holds_paths: bool = False) -> Any:
    """Parse JSON; ValueError where it is none, or a number or a text in it has no place in an artifact.

    If it ``holds_paths``, bytes of a path that are no text may be in it, each as half of a surrogate pair.
    """
    try:
        content = json.loads(text, parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    if "\\u" in text and not holds_paths:  # half of a surrogate pair is valid JSON, but no text
        json.dumps(content, ensure_ascii=False).encode()
    return content


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _refuse_constant(text: str) -> float:
    """Refuse NaN and Infinity: they are not JSON, and an unknown is null."""
    raise ValueError(f"{text} is not JSON")
