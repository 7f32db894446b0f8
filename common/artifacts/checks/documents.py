"""Checks of flat JSON documents, field by field, without pandas, which checks tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from common.artifacts.catalogue import ARTIFACTS, Artifact
from common.artifacts.checks.cells import CELLS
from common.artifacts.columns import Column
from common.messages.errors import PipelineError
from common.messages.names import listed, quoted

MOST_NAMED = 5  # columns or fields in an error
LARGEST = 2**63  # of an integer, as tables hold it
_TYPES: dict[str, type] = {"string": str, "boolean": bool}


class OtherColumnsError(PipelineError):
    """A table or document whose columns are not those that this version writes."""


def require_document(name: str, content: Mapping[str, Any]) -> None:
    """Raise PipelineError, naming the file and the field, for what is not the declared flat document."""
    artifact = ARTIFACTS[name]
    if not isinstance(content, Mapping):
        raise PipelineError(artifact.file, "is no JSON object")
    require_names(artifact, content)
    for column in artifact.columns:
        if problem := _problem(column, content[column.name]):
            raise PipelineError(artifact.file, f"column {column.name}{problem}")


def require_names(artifact: Artifact, given: Iterable[str]) -> None:
    """Raise OtherColumnsError, naming what is missing and what is unknown, for other than the declared columns."""
    declared, names = {column.name for column in artifact.columns}, {*given}
    missing, unknown = declared - names, names - declared
    if missing or unknown:
        parts = [
            f"{verb} {listed(sorted(columns), MOST_NAMED)}"
            for verb, columns in (("lacks", missing), ("does not know", unknown))
            if columns
        ]
        raise OtherColumnsError(artifact.file, f"the table {' and '.join(parts)}")


def _problem(column: Column, value: Any) -> str:
    """Return what is wrong with a field, as the end of a sentence; empty if nothing is."""
    if value is None and (column.nullable or column.kind == "string"):
        return ""
    if value is None and column.kind not in CELLS:
        return ": a cell is empty"
    if not _is_of(column.kind, value):
        return f" is not of kind {column.kind} ({quoted(value)})"
    words = [*(column.allowed or ()), *([""] if column.nullable else [])]
    if column.allowed and value not in words:
        return f": {quoted(value)} is not one of {', '.join(words)}"
    if column.minimum is not None and value < column.minimum:
        return f": {quoted(value)} is not at least {column.minimum:g}"
    return ""


def _is_of(kind: str, value: Any) -> bool:
    if kind in CELLS:
        return CELLS[kind][0](value)
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return False
    return kind == "number" or (value == int(value) and -LARGEST <= value < LARGEST)
