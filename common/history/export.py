"""Figures of a run for other programs: OpenMetrics text, and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from common.metric_names import metric_name


@dataclass(frozen=True, slots=True)
class ExportedFigure:
    """A figure: the document and the column that it is from, what it means, where it comes from, and its value."""

    document: str
    column: str
    meaning: str
    source: str
    value: float


def openmetrics(figures: list[ExportedFigure], labels: Mapping[str, str]) -> str:
    """Return the figures as OpenMetrics 1.0 text, in base units; each is a gauge, because no value only grows."""
    families: dict[str, list[str]] = {}
    for one in figures:
        name, factor = metric_name(one.column)
        head = [f"# TYPE {name} gauge", f"# HELP {name} {_escaped(one.meaning)}"]
        text = ",".join(f'{key}="{_escaped(value)}"' for key, value in _labels(one, labels).items())
        families.setdefault(name, head).append(f"{name}{{{text}}} {float(one.value * factor)!r}")
    return "".join(f"{line}\n" for family in families.values() for line in family) + "# EOF\n"


def json_lines(figures: list[ExportedFigure], labels: Mapping[str, str]) -> str:
    """Return the figures as one JSON object per line, by the same names and in the same units."""
    lines = []
    for one in figures:
        name, factor = metric_name(one.column)
        lines.append(json.dumps({"name": name, "labels": _labels(one, labels), "value": one.value * factor}))
    return "".join(f"{line}\n" for line in lines)


def _labels(one: ExportedFigure, labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, "table": one.document, "source": one.source}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
