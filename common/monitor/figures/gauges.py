"""Figures beside the latency: the newest samples of the sensors, and what follows from throughput and power."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from common.graphs.sums import ratio
from common.sensors.quantities import POWER
from common.sensors.sensor import Sample

KEPT = 2000  # samples of power: 10 s of 20 domains
J_PER_KWH = 3.6e6
S_PER_HOUR = 3600.0
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Conditions:
    """The known facts behind derived figures; the work of a run becomes known when the model is loaded."""

    flop_count: float | None = None
    byte_count: float | None = None  # compulsory bytes of a run
    peak_flop_per_s: float | None = None
    memory_bytes_per_s: float | None = None
    gco2e_per_kwh: float | None = None
    usd_per_hour: float | None = None


def derived_figures(runs_per_s: float, power_w: float | None, known: Conditions) -> dict[str, float | None]:
    """Return the figures that follow; one that needs an unknown one is None, and so is what is per run without runs."""
    rate = runs_per_s or None
    energy_j = ratio(power_w, rate)
    flop_per_s = _times(known.flop_count, runs_per_s)
    intensity = ratio(known.flop_count, known.byte_count)
    memory_roof = _times(intensity, known.memory_bytes_per_s)
    roofs = [roof for roof in (known.peak_flop_per_s, memory_roof) if roof is not None]
    return {
        "total_power_w": power_w,
        "energy_per_run_j": energy_j,
        "flop_per_s": flop_per_s,
        "flop_per_s_per_w": ratio(known.flop_count, energy_j),
        "peak_flop_per_s": known.peak_flop_per_s,
        "memory_bytes_per_s": known.memory_bytes_per_s,
        "peak_share": ratio(flop_per_s, known.peak_flop_per_s),
        "intensity_flop_per_byte": intensity,
        "attainable_flop_per_s": min(roofs) if len(roofs) == 2 else None,
        "million_runs_gco2e": _times(energy_j, _times(known.gco2e_per_kwh, MILLION / J_PER_KWH)),
        "runs_per_usd": ratio(_times(rate, S_PER_HOUR), known.usd_per_hour),
    }


def _times(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left * right


class Sensed:
    """A sink of a sampler; one thread writes and another one reads."""

    def __init__(self) -> None:
        self._newest: dict[str, float] = {}
        self._power: deque[Sample] = deque(maxlen=KEPT)

    def extend(self, samples: Iterable[Sample], /) -> None:
        """Keep each sample as the newest of its quantity and its domain."""
        for sample in samples:
            self._newest[f"{sample.quantity}:{sample.sensor_domain}"] = sample.value
            if sample.quantity == POWER:
                self._power.append(sample)

    def figures(self) -> dict[str, float]:
        """Return the newest samples by the keys of figures: ``power_w:package-0``."""
        return self._newest.copy()

    def power(self) -> list[Sample]:
        """Return the samples of power of the last seconds, oldest first."""
        return list(self._power.copy())
