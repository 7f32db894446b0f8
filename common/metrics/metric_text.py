"""Gauges as text that Prometheus reads: OpenMetrics 1.0 for a file, and the exposition format 0.0.4 for a scrape.

Every metric is a gauge, because no value only grows: counts start again with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry  # 20 ms, which the start of a script does not need

SCRAPE_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value in base units with its labels; gauges of one name are a family with one meaning."""

    name: str
    meaning: str
    labels: Mapping[str, str]
    value: float


def file_text(gauges: Iterable[Gauge]) -> str:
    from prometheus_client.openmetrics import exposition

    text: bytes = exposition.generate_latest(_registry(gauges))  # type: ignore[no-untyped-call]
    return text.decode()


def scrape_text(gauges: Iterable[Gauge]) -> str:
    """Return gauges as the answer to a scrape, whose type is ``SCRAPE_TYPE``."""
    from prometheus_client import exposition

    return exposition.generate_latest(_registry(gauges)).decode()


def _registry(gauges: Iterable[Gauge]) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector

    families: dict[str, Metric] = {}
    for gauge in gauges:
        family = families.setdefault(gauge.name, Metric(gauge.name, gauge.meaning, "gauge"))
        family.add_sample(gauge.name, dict(gauge.labels), gauge.value)

    class Collected(Collector):
        def collect(self) -> Iterable[Metric]:
            return families.values()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    return registry
