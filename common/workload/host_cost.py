"""The host's time and energy per group, and the run of the host in three cases.

Executed nodes and groups do not coincide: an executed node may compute source nodes of several groups, and a group may
be spread over several executed nodes. Every microsecond goes to one group or stays with the host. The
pessimistic case speaks against a card: the run is short, and little of its time is in nodes that can move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.intervals import ThreePoint, combine
from common.messages.errors import UpstreamError
from common.messages.names import shown
from common.table_rows import EnergySummaryDocument, LatencySummaryDocument, OpLatencyRow


@dataclass(frozen=True, slots=True)
class ExecutedCost:
    """Cost of one executed node in one run."""

    name: str
    latency_us: float
    energy_uj: float | None  # None where neither a sensor nor the model knows it
    is_critical: bool
    surplus_us: float = 0.0  # by how much the corrected time may be too long

    def scaled(self, factor: float) -> ExecutedCost:
        """Return the cost on a host that needs so many times the time."""
        return ExecutedCost(self.name, factor * self.latency_us, None, self.is_critical, factor * self.surplus_us)


@dataclass(frozen=True, slots=True)
class SourceWork:
    macs: int | None
    flops: int | None


@dataclass(slots=True)
class HostCost:
    """Cost of one group in one run; ``unexplained_us`` is the part of its surplus that its work does not explain."""

    latency_us: float = 0.0
    surplus_us: float = 0.0
    unexplained_us: float = 0.0
    energy_uj: float | None = 0.0
    critical_latency_us: float = 0.0
    executed_nodes: list[str] = field(default_factory=list)

    def scaled(self, factor: float) -> HostCost:
        """Return the cost on a host that needs so many times the time."""
        return replace(
            self,
            latency_us=factor * self.latency_us,
            surplus_us=factor * self.surplus_us,
            unexplained_us=factor * self.unexplained_us,
            energy_uj=None,
            critical_latency_us=factor * self.critical_latency_us,
        )


def divide_over_groups(
    executed: Iterable[ExecutedCost],
    sources: Mapping[str, Sequence[str]],
    group_of: Mapping[str, int],
    work: Mapping[str, SourceWork],
    group_count: int,
) -> list[HostCost]:
    """Return one cost per group. They sum up to those of the executed nodes, without the gap, that have source nodes.

    The runtime inserted the nodes that have none in ``sources``. A source node that is not in the graph is an
    UpstreamError.
    """
    costs = [HostCost() for _ in range(group_count)]
    for node in executed:
        members: dict[int, list[SourceWork]] = {}
        for name in sources.get(node.name, ()):
            if name not in group_of:
                problem = f"executed node {shown(node.name)} is mapped to {shown(name)}, which is no node of the model"
                raise UpstreamError("node_map.csv", problem, "rerun <op_roofline>")
            members.setdefault(group_of[name], []).append(work[name])
        for group, share in _shares(members).items():
            cost = costs[group]
            cost.latency_us += share * node.latency_us
            cost.surplus_us += share * node.surplus_us
            cost.critical_latency_us += share * node.latency_us if node.is_critical else 0.0
            known = cost.energy_uj is not None and node.energy_uj is not None
            cost.energy_uj = (cost.energy_uj or 0.0) + share * (node.energy_uj or 0.0) if known else None
            cost.executed_nodes.append(node.name)
    return costs


def _shares(members: Mapping[int, Sequence[SourceWork]]) -> dict[int, float]:
    """Give all to the only group with contractions, else divide by FLOPs, else equally; the shares add up to 1."""
    with_macs = [group for group, works in members.items() if any(work.macs for work in works)]
    if len(with_macs) == 1:
        return {group: float(group == with_macs[0]) for group in members}
    counts = [work.flops for works in members.values() for work in works]
    total = sum(count or 0 for count in counts)
    if None in counts or not total:
        return dict.fromkeys(members, 1.0 / max(len(members), 1))
    return {group: sum(work.flops or 0 for work in works) / total for group, works in members.items()}


@dataclass(frozen=True, slots=True)
class HostTotals:
    """Time and energy of one run on the host, the gap between nodes included; None is unknown."""

    latency: ThreePoint  # the unprofiled median with the interval of the median; the short end is pessimistic
    energy: ThreePoint | None  # of one run; the low end is pessimistic
    static_power_w: float | None  # power of the host while it waits
    doubts: tuple[str, ...] = ()  # why these times decide nothing
    energy_source: str = "unavailable"
    energy_boundary: str = ""  # which part of the host a modelled energy covers

    def scaled(self, factor: ThreePoint) -> HostTotals:
        """Return a run on a host that needs so many times the time; its energy does not follow from that."""
        latency = combine(lambda us, times: us * times, self.latency, factor)
        return HostTotals(latency, None, None, self.doubts)

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


def run_latency(total_us: float, summary: LatencySummaryDocument) -> ThreePoint:
    """Return the time of one run with the interval of its median.

    A plan is judged by the typical run, so the interval is that of the median and not the spread of single runs.
    ``total_us`` is the unprofiled median, or the sum of the node times where nothing ran unprofiled.
    """
    median, low, high = summary["p50_us"], summary["p50_low_us"], summary["p50_high_us"]
    if not median or low is None or high is None:
        return ThreePoint.exactly(total_us)
    return ThreePoint(total_us * low / median, total_us, total_us * high / median)


def run_energy(energy: EnergySummaryDocument, latency: ThreePoint) -> ThreePoint | None:
    """Return the energy of one run: both its power, whose interval is in the summary, and its time are uncertain."""
    likely = energy["energy_uj"]
    if likely is None:
        return None
    low, high = (likely if end is None else end for end in (energy["energy_low_uj"], energy["energy_high_uj"]))
    return combine(lambda uj, us: uj * us / latency.likely, ThreePoint(low, likely, high), latency)


def surplus_us(node_us: float, correction: OpLatencyRow | None) -> float:
    """Return by how much the corrected time of a node in one run may be too long: too little was subtracted."""
    if correction is None or correction["correction_us"] is None or correction["correction_high_us"] is None:
        return 0.0
    return min(node_us, max(0.0, float(correction["correction_high_us"] - correction["correction_us"])))


def divided_run(
    own_us: Sequence[float], surplus: Sequence[float], run_us: float, *, is_gap_divided: bool = False
) -> tuple[list[float], float]:
    """Return the times of the steps of a run, and the gap between them, which is the rest of the run.

    Steps that sum up to more than the run (a negative gap) are all shortened by that share. The gap is time that no
    node accounts for. It stays with the host, except in the optimistic case, in which it goes where the nodes go: with
    ``is_gap_divided``, the steps share it in proportion to their times. ``surplus`` is by how much each is too long.
    """
    sum_us = sum(own_us)
    times = [us - less for us, less in zip(own_us, surplus, strict=True)]
    if sum_us > run_us or (is_gap_divided and sum_us > 0):
        times = [us / sum_us * run_us for us in times]  # shares first: a tiny sum would make a factor infinite
    return times, max(0.0, run_us - sum(times))
