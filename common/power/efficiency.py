"""What the whole model attains of the host, and what an inference of it costs.

The reciprocal of inferences per joule is joules per inference; "watts per inference" has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.power.energy_model import CostFactors, Figure, end_of

UJ_PER_J = 1e6
US_PER_S = 1e6
J_PER_KWH = 3.6e6
S_PER_HOUR = 3600
INFERENCES = 1e6


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One inference as a whole; what is unknown is None.

    ``threads`` are the hardware threads that are paid for; ``compute_roof_us`` is how long the FLOPs would take, each
    node's at the peak of its own number format.
    """

    run_us: float
    threads: int
    flops: float | None
    traffic_bytes: float | None
    energy_uj: Figure | None
    compute_roof_us: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The host's peaks by the name of the roof, its bandwidth and last-level cache, as far as they are known."""

    peaks_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float | None = None
    last_level_cache_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MillionInferences:
    """What a million inferences emit and cost; the ends of an interval are those of energy and factor, multiplied."""

    gco2e: Figure | None
    energy_usd: Figure | None
    host_usd: Figure


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The figures of efficiency.json, under the names of its columns."""

    energy_source: str
    p50_us: float | None
    model_flops: float | None
    whole_model_flop_per_s: float | None
    peak_share: float | None
    whole_model_bytes_per_s: float | None
    bandwidth_share: float | None
    joules_per_inference_j: float | None
    joules_per_inference_low_j: float | None
    joules_per_inference_high_j: float | None
    inferences_per_joule: float | None
    efficiency_flop_per_s_per_w: float | None
    million_inferences_gco2e: float | None
    million_inferences_energy_usd: float | None
    million_inferences_host_usd: float


def efficiency(whole: WholeRun, host: Host, million: MillionInferences) -> Efficiency:
    """Rates of a run, their shares of the roof, and its cost. FLOP/s per watt are FLOPs per joule: the time cancels."""
    flop_per_s = ratio(whole.flops, whole.run_us / US_PER_S)
    bytes_per_s = ratio(whole.traffic_bytes, whole.run_us / US_PER_S)
    joules = whole.energy_uj.times(1 / UJ_PER_J) if whole.energy_uj else None
    return Efficiency(
        energy_source=joules.source if joules else "unavailable",
        p50_us=whole.run_us,
        model_flops=whole.flops,
        whole_model_flop_per_s=flop_per_s,
        peak_share=ratio(whole.compute_roof_us, whole.run_us),
        whole_model_bytes_per_s=bytes_per_s,
        bandwidth_share=ratio(bytes_per_s, host.memory_bytes_per_s),
        joules_per_inference_j=end_of(joules, "value"),
        joules_per_inference_low_j=end_of(joules, "low"),
        joules_per_inference_high_j=end_of(joules, "high"),
        inferences_per_joule=ratio(1.0, end_of(joules, "value")),
        efficiency_flop_per_s_per_w=ratio(whole.flops, end_of(joules, "value")),
        million_inferences_gco2e=end_of(million.gco2e, "value"),
        million_inferences_energy_usd=end_of(million.energy_usd, "value"),
        million_inferences_host_usd=million.host_usd.value,
    )


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """A quotient, unknown where either is unknown or the denominator is zero."""
    return None if numerator is None or not denominator else numerator / denominator


def million_inferences(whole: WholeRun, factors: CostFactors) -> MillionInferences:
    """Emissions and price of the energy, and price of the host's threads for the time, one run after the other."""
    thread_hours = whole.threads * whole.run_us / US_PER_S * INFERENCES / S_PER_HOUR
    host_usd = factors.host_price_usd_per_thread_hour.times(thread_hours)
    if whole.energy_uj is None:
        return MillionInferences(None, None, host_usd)
    kwh = whole.energy_uj.times(INFERENCES / UJ_PER_J / J_PER_KWH)
    return MillionInferences(
        gco2e=_product(kwh, factors.emissions_gco2e_per_kwh),
        energy_usd=_product(kwh, factors.energy_price_usd_per_kwh),
        host_usd=host_usd,
    )


def _product(amount: Figure, factor: Figure) -> Figure:
    """Neither is negative, so the ends multiply."""
    return Figure(
        amount.value * factor.value, amount.low * factor.low, amount.high * factor.high, f"{amount.source}, configured"
    )
