"""Samples and counts under the names that the tables have for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from common.sensors.hardware_counters import HardwareCounts
from common.sensors.hardware_events import GENERIC, VECTOR, value_of
from common.sensors.quantities import POWER
from common.sensors.sampler import Sampler
from common.sensors.sensor import Sample


def power_rows(samplers: Iterable[Sampler], origin_s: float) -> Iterator[dict[str, Any]]:
    """Rows of power_samples; times count from ``origin_s`` on the clock of ``time.perf_counter``."""
    for sampler in samplers:
        for sample in sampler.samples:
            if sample.quantity == POWER:
                yield {**_common(sampler, sample, origin_s), "measured_power_w": sample.value}


def host_rows(samplers: Iterable[Sampler], origin_s: float) -> Iterator[dict[str, Any]]:
    """Rows of host_samples, on the same clock."""
    for sampler in samplers:
        for sample in sampler.samples:
            if sample.quantity != POWER:
                yield {**_common(sampler, sample, origin_s), "quantity": sample.quantity, "value": sample.value}


def counter_figures(found: HardwareCounts, run_count: int) -> dict[str, Any]:
    """The fields of hardware_counters, of a window with so many runs."""
    shares = [count.counted_share for count in found.counts.values() if count.counted_share is not None]
    return {
        "counter_source": "perf stat" if found.counts else None,
        "window_s": found.window_s,
        "run_count": run_count,
        **{f"{name}_count": value_of(found.counts, name) for name in (*GENERIC, VECTOR)},
        "instructions_per_cycle": found.instructions_per_cycle,
        "cache_miss_share": found.cache_miss_share,
        "vector_instruction_share": found.vector_instruction_share,
        "counted_share": min(shares, default=None),
    }


def _common(sampler: Sampler, sample: Sample, origin_s: float) -> dict[str, Any]:
    return {
        "sensor": sample.sensor,
        "sensor_domain": sample.sensor_domain,
        "time_us": 1e6 * (sample.time_s - origin_s),
        "phase": sampler.phase,
    }
