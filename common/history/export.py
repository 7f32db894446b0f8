"""Figures of a measurement for other programs: OpenMetrics text, and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.metrics.metric_names import metric_name
from common.metrics.metric_text import Gauge, file_text


@dataclass(frozen=True, slots=True)
class ExportedFigure:
    """A figure: the document and the column that it is from, what it means, where it comes from, and its value."""

    document: str
    column: str
    meaning: str
    source: str
    value: float


def openmetrics(figures: Iterable[ExportedFigure], labels: Mapping[str, str]) -> str:
    """Return the figures as OpenMetrics 1.0 text, in base units."""
    return file_text(_gauge(figure, labels) for figure in figures)


def json_lines(figures: Iterable[ExportedFigure], labels: Mapping[str, str]) -> str:
    """Return the figures as one JSON object per line, by the same names and in the same units."""
    gauges = (_gauge(figure, labels) for figure in figures)
    lines = (json.dumps({"name": one.name, "labels": one.labels, "value": one.value}) for one in gauges)
    return "".join(f"{line}\n" for line in lines)


def _gauge(figure: ExportedFigure, labels: Mapping[str, str]) -> Gauge:
    name, factor = metric_name(figure.column)
    own = {**labels, "table": figure.document, "source": figure.source}
    return Gauge(name, figure.meaning, own, float(figure.value * factor))
