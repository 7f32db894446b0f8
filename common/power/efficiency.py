"""Efficiency of a whole inference on the host, and the cost of a million inferences.

Joules per inference is the reciprocal of inferences per joule; "watts per inference" has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.files.configuration import Constant
from common.graphs.sums import ratio
from common.power.bounded_value import BoundedValue, value_at
from common.power.energy_model import CostFactors
from common.table_rows import EfficiencyDocument, PhaseWorkRow

UJ_PER_J = 1e6
US_PER_S = 1e6
J_PER_KWH = 3.6e6
S_PER_HOUR = 3600
INFERENCES = 1e6


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One inference as a whole; unknown amounts are None."""

    run_us: float
    threads: int  # hardware threads to be paid for
    flops: float | None
    traffic_bytes: float | None
    energy_uj: BoundedValue | None
    compute_roof_us: float | None = None  # time of the FLOPs, each node's at the peak of its own number format


@dataclass(frozen=True, slots=True)
class Host:
    """Ceilings of the host as far as they are known: peak of each roof by name, bandwidth, last-level cache."""

    peaks_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float | None = None
    last_level_cache_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MillionInferences:
    """Emissions and cost of a million inferences; each end is the product of the ends of energy and factor."""

    gco2e: BoundedValue | None
    energy_usd: BoundedValue | None
    host_usd: BoundedValue


def efficiency(whole: WholeRun, host: Host, million: MillionInferences) -> EfficiencyDocument:
    """Return rates, shares of the roof and costs of a run. FLOP/s per watt equals FLOPs per joule: time cancels."""
    flop_per_s = ratio(whole.flops, whole.run_us / US_PER_S)
    bytes_per_s = ratio(whole.traffic_bytes, whole.run_us / US_PER_S)
    joules = whole.energy_uj.times(1 / UJ_PER_J) if whole.energy_uj else None
    return {
        "energy_source": joules.source if joules else "unavailable",
        "p50_us": whole.run_us,
        "model_flops": whole.flops,
        "whole_model_flop_per_s": flop_per_s,
        "peak_share": ratio(whole.compute_roof_us, whole.run_us),
        "whole_model_bytes_per_s": bytes_per_s,
        "bandwidth_share": ratio(bytes_per_s, host.memory_bytes_per_s),
        "joules_per_inference_j": value_at(joules, "likely"),
        "joules_per_inference_low_j": value_at(joules, "low"),
        "joules_per_inference_high_j": value_at(joules, "high"),
        "joules_per_token_j": None,
        "inferences_per_joule": ratio(1.0, value_at(joules, "likely")),
        "efficiency_flop_per_s_per_w": ratio(whole.flops, value_at(joules, "likely")),
        "million_inferences_gco2e": value_at(million.gco2e, "likely"),
        "million_inferences_energy_usd": value_at(million.energy_usd, "likely"),
        "million_inferences_host_usd": million.host_usd.likely,
    }


def joules_per_token(efficiency: EfficiencyDocument, phase: Sequence[PhaseWorkRow]) -> float | None:
    """Return the energy of a run over the tokens that it takes; None for a model without phases."""
    tokens = phase[0]["new_token_count"] if phase else None
    return ratio(efficiency["joules_per_inference_j"], tokens)


def million_inferences(whole: WholeRun, factors: CostFactors) -> MillionInferences:
    """Return the emissions and the price of the energy, and the price of the host's threads for runs in sequence."""
    thread_hours = whole.threads * whole.run_us / US_PER_S * INFERENCES / S_PER_HOUR
    host_usd = _product(BoundedValue.exactly(thread_hours, "measured"), factors.host_price_usd_per_thread_hour)
    if whole.energy_uj is None:
        return MillionInferences(None, None, host_usd)
    kwh = whole.energy_uj.times(INFERENCES / UJ_PER_J / J_PER_KWH)
    return MillionInferences(
        gco2e=_product(kwh, factors.emissions_gco2e_per_kwh),
        energy_usd=_product(kwh, factors.energy_price_usd_per_kwh),
        host_usd=host_usd,
    )


def _product(amount: BoundedValue, factor: Constant) -> BoundedValue:
    """Multiply end by end; neither factor is negative."""
    return BoundedValue(
        likely=amount.likely * factor.likely,
        low=amount.low * factor.low,
        high=amount.high * factor.high,
        source=f"{amount.source}, configured",
    )
