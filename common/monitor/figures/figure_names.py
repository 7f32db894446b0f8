"""The figures of a tick: their names, units and meanings, and their text for Prometheus.

A name ends with its unit. A figure that is measured at several places has one after a colon: ``power_w:package-0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from common.metrics.metric_names import metric_name
from common.metrics.metric_text import Gauge, scrape_text
from common.sensors.quantities import QUANTITIES

_LATENCY = {
    "p50_us": "median latency",
    "p90_us": "latency that 90 % of the runs do not exceed",
    "p95_us": "latency that 95 % of the runs do not exceed",
    "p99_us": "latency that 99 % of the runs do not exceed",
    "p99_9_us": "latency that 99.9 % of the runs do not exceed",
    "mean_us": "mean latency",
    "jitter_us": "standard deviation of the latency",
    "max_us": "longest latency",
    "run_count": "runs",
}
_PARTS = {"window": "of the last 10 s", "whole": "since the start"}
_SERVICE = {
    "throughput_runs_per_s": "runs that ended per second of the window",
    "failed_run_count": "runs that failed since the start",
    "offered_runs_per_s": "requests that came per second, from the newest hundred",
    "in_flight_count": "requests that came and are neither answered nor given up",
    "queue_depth_count": "requests that wait for a worker",
    "output_tokens_per_s": "tokens of all answers per second of the window",
    "time_to_first_token_us": "time from a request to its first token, mean of the window",
    "inter_token_us": "time between two tokens of an answer, mean of the window",
    "batch_size_count": "requests that one call serves, mean of the newest",
}
_EFFICIENCY = {
    "total_power_w": "power of all domains that do not overlap, mean of the window; or the power that was given",
    "energy_per_run_j": "power over throughput",
    "flop_per_s": "operations of the model times throughput",
    "flop_per_s_per_w": "operations per joule",
    "peak_share": "operations per second over the measured peak of the host",
    "peak_flop_per_s": "measured peak of the host",
    "memory_bytes_per_s": "measured bandwidth of the host's memory",
    "attainable_flop_per_s": "the roof of this host at the arithmetic intensity of the model",
    "intensity_flop_per_byte": "operations of the model over its compulsory bytes",
    "million_runs_gco2e": "emissions of the energy of a million runs",
    "runs_per_usd": "runs for a dollar, at the price of the host",
}
_OWN = {
    "client_count": "clients that get ticks",
    "tick_late_s": "how late this tick was",
}
FIGURES: dict[str, str] = {
    **{f"{part}_{name}": f"{text} {when}" for part, when in _PARTS.items() for name, text in _LATENCY.items()},
    **_SERVICE,
    **_EFFICIENCY,
    **QUANTITIES,
    **_OWN,
}
"""Every figure that a message may hold, by name."""

# The name of a figure, and a place that looks like the domain of a sensor: package-0/dram.
KNOWN_PATTERN = rf"^(?:{'|'.join(FIGURES)})(?::[A-Za-z0-9][A-Za-z0-9._/-]{{0,63}})?$"
_KNOWN = re.compile(KNOWN_PATTERN)
_QUANTILE = re.compile(r"(window|whole)_p(\d+)(?:_(\d))?_us")


def is_known(key: str) -> bool:
    """Whether a message may hold this figure: its name is declared, and its place looks like that of a sensor."""
    return bool(_KNOWN.fullmatch(key))


def metric(key: str) -> tuple[str, dict[str, str], float]:
    """Return the name, the labels and the factor of a figure as a metric of Prometheus, in base units."""
    name, _, place = key.partition(":")
    labels = {"domain": place} if place else {}
    if match := _QUANTILE.fullmatch(name):
        share = int(match[2]) / 100 + int(match[3] or 0) / 1000
        return f"onnx_{match[1]}_latency_seconds", {**labels, "quantile": f"{share:g}"}, 1e-6
    called, factor = metric_name(name)
    return called, labels, factor


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
