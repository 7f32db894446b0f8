"""One run of the host in three cases: how long its median may be, and how the corrected times of its nodes may err.

The pessimistic case is the one that speaks against a card: a short run, in which little time is in nodes that can move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.errors import UpstreamError
from common.intervals import ThreePoint, combine


@dataclass(frozen=True, slots=True)
class HostTotals:
    """Time and energy of one run on the host, the gap between nodes included; None is unknown.

    Attributes:
        latency: the unprofiled median with the interval of the median; the short end is pessimistic.
        energy: of one run; the low end is pessimistic.
        static_power_w: power of the host while it waits.
        doubts: why these times decide nothing.
        energy_source: how the energy is known.
    """

    latency: ThreePoint
    energy: ThreePoint | None
    static_power_w: float | None
    doubts: tuple[str, ...] = ()
    energy_source: str = "unavailable"

    def __post_init__(self) -> None:
        """Refuse a run that took no time: its shares would have no meaning."""
        if not min(self.latency.cases) > 0:
            raise UpstreamError("ops_profile.csv", "no node has a latency", "rerun <op_latency>")

    @property
    def latency_us(self) -> float:
        return self.latency.likely

    @property
    def energy_uj(self) -> float | None:
        return None if self.energy is None else self.energy.likely


def run_latency(total_us: float, summary: Mapping[str, Any]) -> ThreePoint:
    """Return the time of one run with the interval of its median.

    A plan is judged by the typical run, so the interval is that of the median and not the spread of single runs.

    Args:
        total_us: the unprofiled median; the sum of the node times where nothing ran unprofiled.
        summary: fields of the latency summary.
    """
    median, low, high = (summary[f"p50{end}_us"] for end in ("", "_low", "_high"))
    if not median or low is None or high is None:
        return ThreePoint.exactly(total_us)
    return ThreePoint(total_us * low / median, total_us, total_us * high / median)


def run_energy(energy: Mapping[str, Any], latency: ThreePoint) -> ThreePoint | None:
    """Return the energy of one run: both its power and its time are uncertain.

    Args:
        energy: fields of the energy summary, whose interval is that of the power.
        latency: of one run.
    """
    likely = energy["energy_uj"]
    if likely is None:
        return None
    ends = (likely if energy[f"energy_{end}_uj"] is None else energy[f"energy_{end}_uj"] for end in ("low", "high"))
    low, high = ends
    return combine(lambda uj, us: uj * us / latency.likely, ThreePoint(low, likely, high), latency)


def surplus_us(node_us: float, correction: Mapping[str, Any] | None) -> float:
    """Return by how much the corrected time of a node may be too long: too little was subtracted.

    Args:
        node_us: its corrected time in one run.
        correction: its row with the correction and its interval, if there is one.
    """
    if correction is None or correction["correction_us"] is None or correction["correction_high_us"] is None:
        return 0.0
    return min(node_us, max(0.0, float(correction["correction_high_us"] - correction["correction_us"])))


def divided_run(
    own_us: Sequence[float], surplus: Sequence[float], run_us: float, *, is_gap_divided: bool = False
) -> tuple[list[float], float]:
    """Return the times of the steps of a run, and the gap between them, which is the rest of the run.

    Steps that sum up to more than the run (a negative gap) are all shortened by that share. The gap is time that no
    node accounts for. It stays with the host, except in the optimistic case, in which it goes where the nodes go.

    Args:
        own_us: time of each step.
        surplus: by how much each is too long.
        run_us: the whole run.
        is_gap_divided: whether the steps share the gap, each in proportion to its time.
    """
    sum_us = sum(own_us)
    times = [us - less for us, less in zip(own_us, surplus, strict=True)]
    if sum_us > run_us or (is_gap_divided and sum_us > 0):
        times = [us / sum_us * run_us for us in times]  # shares first: a tiny sum would make a factor infinite
    return times, max(0.0, run_us - sum(times))
