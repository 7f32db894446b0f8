"""JSON that another program wrote: parsed strictly, and every part checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.errors import PipelineError
from common.names import quoted
from common.npu.source_file import read_text

LARGEST = 10.0**18  # no count of cycles or bytes is larger


def read_json(path: Path, most_bytes: int, what: str) -> dict[str, Any]:
    """Return the object that a JSON file holds."""
    text = read_text(path, most_bytes, what)
    try:
        content = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PipelineError(path, f"is no JSON that can be read ({error})", f"give {what}") from error
    if not isinstance(content, dict):
        raise PipelineError(path, "holds no JSON object", f"give {what}")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def listed_mappings(path: Path, content: Mapping[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    """Return the list of objects under a key."""
    value = content.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise PipelineError(path, f"has no list of objects {key!r}", f"give {what}")
    return value


def optional_number(path: Path, content: Mapping[str, Any], key: str) -> float | None:
    """Return the number under a key, or None where it is missing.

    Raises:
        PipelineError: something else stands there, or a number that no profile holds.
    """
    value = content.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return value
    raise PipelineError(path, f"{key} is {quoted(value)}, not a number of 0 or more", "record it again")
