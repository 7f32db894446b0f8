"""The newest figures and the alarms as the gauges that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from common.metrics.metric_text import Gauge, scrape_text
from common.monitor.figures.figure_names import FIGURES, metric


def exposition(figures: Mapping[str, float | None], active_alarms: Iterable[str], alarms: Iterable[str]) -> str:
    """Return a sample per known figure, and one per alarm, which is 1 while the alarm is active."""
    active, meaning = set(active_alarms), "whether a threshold is exceeded"
    states = (Gauge("onnx_alarm_active", meaning, {"alarm": name}, float(name in active)) for name in alarms)
    return scrape_text((*_gauges(figures), *states))


def _gauges(figures: Mapping[str, float | None]) -> Iterator[Gauge]:
    for key, value in figures.items():
        if value is not None:
            name, labels, factor = metric(key)
            # One meaning for all percentiles of a family.
            meaning = "latency by quantile" if "quantile" in labels else FIGURES[key.partition(":")[0]]
            yield Gauge(name, meaning, labels, value * factor)
