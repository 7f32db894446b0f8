"""The host's time and energy per group, divided from the cost of each executed node.

Executed nodes and groups do not coincide: an executed node may compute source nodes of several groups, and a group may
be spread over several executed nodes. Every microsecond goes to one group or stays with the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from common.errors import UpstreamError
from common.names import shown


@dataclass(frozen=True, slots=True)
class ExecutedCost:
    """Cost of one executed node in one run.

    Attributes:
        name: of the node.
        latency_us: its corrected time.
        energy_uj: None where neither a sensor nor the model knows it.
        is_critical: whether it is on the critical path.
        surplus_us: by how much the corrected time may be too long.
    """

    name: str
    latency_us: float
    energy_uj: float | None
    is_critical: bool
    surplus_us: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceWork:
    macs: int | None
    flops: int | None


@dataclass(slots=True)
class HostCost:
    latency_us: float = 0.0
    surplus_us: float = 0.0
    energy_uj: float | None = 0.0
    critical_latency_us: float = 0.0
    executed_nodes: list[str] = field(default_factory=list)


def divide_over_groups(
    executed: Iterable[ExecutedCost],
    sources: Mapping[str, Sequence[str]],
    group_of: Mapping[str, int],
    work: Mapping[str, SourceWork],
    group_count: int,
) -> list[HostCost]:
    """Divide the cost of every executed node over the groups of its source nodes.

    Args:
        executed: executed nodes in the order of execution, without the gap.
        sources: source nodes that each executed node computes; a node without any was inserted by the runtime.
        group_of: group of each source node, counted from 0.
        work: MACs and FLOPs of each source node.
        group_count: number of groups.

    Returns:
        One cost per group. The costs sum up to those of the executed nodes that have source nodes.

    Raises:
        UpstreamError: an executed node names a source node that is not in the graph.
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
