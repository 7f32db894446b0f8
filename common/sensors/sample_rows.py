"""Rows of the tables: samples and hardware counts under the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from common.graphs.sums import ratio
from common.sensors.hardware_counters import HardwareCounts
from common.sensors.hardware_events import VECTOR
from common.sensors.quantities import POWER
from common.sensors.sensor import Sample
from common.table_rows import HardwareCountersDocument, HostSamplesRow, PowerSamplesRow

US_PER_S = 1e6


def power_rows(samples: Mapping[str, Iterable[Sample]], origin_s: float) -> Iterator[PowerSamplesRow]:
    """Yield the rows of power_samples from the samples of each phase; ``origin_s`` is their time zero."""
    for phase, sample in _with_phase(samples):
        if sample.quantity == POWER:
            yield {
                "sensor": sample.sensor,
                "sensor_domain": sample.sensor_domain,
                "time_us": US_PER_S * (sample.time_s - origin_s),
                "phase": phase,
                "measured_power_w": sample.value,
            }


def host_rows(samples: Mapping[str, Iterable[Sample]], origin_s: float) -> Iterator[HostSamplesRow]:
    """Yield the rows of host_samples: every quantity but power."""
    for phase, sample in _with_phase(samples):
        if sample.quantity != POWER:
            yield {
                "sensor": sample.sensor,
                "sensor_domain": sample.sensor_domain,
                "quantity": sample.quantity,
                "time_us": US_PER_S * (sample.time_s - origin_s),
                "phase": phase,
                "value": sample.value,
            }


def counter_figures(counted: HardwareCounts, run_count: int) -> HardwareCountersDocument:
    """Return the fields of hardware_counters for a window that held ``run_count`` runs.

    Cache misses and references are what the processor defines as perf's generic events. AMD from Zen 4 on counts up to
    two vector operations per instruction.
    """
    shares = [count.counted_share for count in counted.counts.values() if count.counted_share is not None]
    known = {name: count.value for name, count in counted.counts.items()}
    instructions, vectors, misses = known.get("instructions"), known.get(VECTOR), known.get("cache_misses")
    cycles, references = known.get("cycles"), known.get("cache_references")
    return {
        "counter_source": "perf stat" if counted.counts else None,
        "window_s": counted.window_s,
        "run_count": run_count,
        "instructions_count": instructions,
        "cycles_count": cycles,
        "cache_references_count": references,
        "cache_misses_count": misses,
        "vector_instructions_count": vectors,
        "instructions_per_cycle": ratio(instructions, cycles),
        "cache_miss_share": ratio(misses, references),
        "vector_instruction_share": ratio(vectors, instructions),
        "counted_share": min(shares, default=None),
    }


def _with_phase(samples: Mapping[str, Iterable[Sample]]) -> Iterator[tuple[str, Sample]]:
    return ((phase, sample) for phase, phase_samples in samples.items() for sample in phase_samples)
