"""The workload: the groups of a model, and what each of them costs the host in one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from common.fusion.border import BorderTensor, border, total_bytes, unfused_bytes
from common.fusion.groups import Group
from common.graphs.graph import GAP
from common.graphs.source_graph import SourceGraph
from common.graphs.sums import total
from common.intervals import ThreePoint
from common.workload.flows import executed_order, tensor_flows
from common.workload.host_cost import ExecutedCost, HostCost, HostTotals, SourceWork, divide_over_groups, divided_run
from common.workload.layers import Layer
from common.workload.plausible_time import GroupTime, unexplained_us

Case = Literal["pessimistic", "likely", "optimistic"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the host's sequential run: a group, a node that the runtime inserted, or the gap between nodes."""

    name: str
    host_us: float
    group: int | None


@dataclass(frozen=True)
class Workload:
    """The source graph in groups, with the host's cost of each."""

    graph: SourceGraph
    groups: tuple[Group, ...]  # the groups of the graph, in an order in which they can run
    layers: Mapping[str, tuple[Layer, ...] | None]  # what each source node computes
    work: Mapping[str, SourceWork]  # MACs and FLOPs of each source node
    in_bodies: frozenset[str]  # source nodes inside of a loop or a branch
    costs: tuple[HostCost, ...]
    executed: tuple[ExecutedCost, ...]  # nodes of one run on the host, in order
    inserted: frozenset[str]  # names of those that the runtime inserted
    host: HostTotals  # the whole run

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each group: G1, G2, … by falling host latency."""
        ranked = sorted(range(len(self.groups)), key=lambda index: -self.costs[index].latency_us)
        rank = {index: place for place, index in enumerate(ranked, start=1)}
        return tuple(f"G{rank[index]}" for index in range(len(self.groups)))

    @cached_property
    def borders(self) -> tuple[tuple[BorderTensor, ...], ...]:
        """Tensors that each group must read and write, at the model's own number format."""
        return tuple(border(self.graph, group.nodes) for group in self.groups)

    def macs(self, group: int) -> int | None:
        """Return the multiply-accumulates of a group; None where one of its nodes is not counted."""
        return total(self.work[name].macs for name in self.groups[group].nodes)

    def flops(self, group: int) -> int | None:
        """Return the FLOPs of a group; None where one of its nodes is not counted."""
        return total(self.work[name].flops for name in self.groups[group].nodes)

    def group_time(self, group: int) -> GroupTime | None:
        """Return work and time of a group with contractions; None without them, or where its work is unknown."""
        flops, moved = self.flops(group), self.bytes([group])
        if not self.macs(group) or flops is None or moved is None:
            return None
        return GroupTime(self.groups[group].kind, flops, moved, self.costs[group].latency_us)

    def bytes(self, groups: Sequence[int]) -> int | None:
        """Return the compulsory traffic across the border of a group or a chain, at the model's number format."""
        if len(groups) == 1:
            return total_bytes(self.borders[groups[0]])
        return total_bytes(border(self.graph, [name for group in groups for name in self.groups[group].nodes]))

    def unfused_bytes(self, group: int) -> int | None:
        """Return the traffic of a group if each of its nodes were a kernel of its own."""
        return unfused_bytes(self.graph, self.groups[group])

    @cached_property
    def excess_share(self) -> float:
        """Share by which the node times together exceed the unprofiled median (a negative gap); 0 where they do not."""
        total_us = sum(node.latency_us for node in self.executed)
        return max(0.0, total_us / self.host.latency_us - 1)

    def host_us(self, groups: Iterable[int]) -> float:
        """Return the part of the unprofiled median that groups take; :attr:`steps` treats a negative gap alike."""
        return sum(self.costs[group].latency_us for group in groups) / (1 + self.excess_share)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the host's run in the likely case, which sum up to the unprofiled median.

        Inserted nodes and the gap come last: no plan changes or hides them.
        """
        flows = tensor_flows(self.graph, self.groups, ["fp32"] * len(self.groups))
        order = executed_order(flows, self.costs, [node.name for node in self.executed])
        steps: list[tuple[str, int | None]] = [(self.names[group], group) for group in order]
        steps += [(node.name, None) for node in self.executed if node.name in self.inserted]
        times = self._step_times([group for _, group in steps if group is not None], "likely")
        return tuple(Step(name, us, group) for (name, group), us in zip([*steps, (GAP, None)], times, strict=True))

    def step_times(self, case: Case) -> tuple[float, ...]:
        """Return the time of each step in one case; they sum up to the run of that case."""
        return self._step_times([step.group for step in self.steps if step.group is not None], case)

    def _step_times(self, order: Sequence[int], case: Case) -> tuple[float, ...]:
        """Return the time of each group in the order given, of each inserted node, and of the gap.

        Where the nodes alone sum up to more than the median (a negative gap), each step is shortened by that share: a
        plan must not be compared with a run that is longer than the measured one.
        """
        run_us = getattr(self.host.latency, case)
        parts: list[HostCost | ExecutedCost] = [self.costs[group] for group in order]
        parts += [node for node in self.executed if node.name in self.inserted]
        scale = run_us / self.host.latency_us
        surplus = [scale * part.surplus_us if case == "pessimistic" else 0.0 for part in parts]
        own_us = [scale * part.latency_us for part in parts]
        times, gap_us = divided_run(own_us, surplus, run_us, is_gap_divided=case == "optimistic")
        return (*times, gap_us)


def scaled(workload: Workload, factor: ThreePoint) -> Workload:
    """Return the workload on a host that needs so many times the time of the profiled one, in each case."""
    return replace(
        workload,
        costs=tuple(cost.scaled(factor.likely) for cost in workload.costs),
        executed=tuple(node.scaled(factor.likely) for node in workload.executed),
        host=workload.host.scaled(factor),
    )


def make_workload(
    graph: SourceGraph,
    groups: tuple[Group, ...],
    layers: Mapping[str, tuple[Layer, ...] | None],
    work: Mapping[str, SourceWork],
    in_bodies: frozenset[str],
    executed: Sequence[ExecutedCost],
    sources: Mapping[str, Sequence[str]],
    host: HostTotals,
) -> Workload:
    """Divide the host's time and energy over the groups.

    ``sources`` has the source nodes that each executed node computes; the runtime inserted a node that is missing.
    """
    group_of = {name: index for index, group in enumerate(groups) for name in group.nodes}
    costs = divide_over_groups(executed, sources, group_of, work, len(groups))
    inserted = frozenset(node.name for node in executed if not sources.get(node.name))
    workload = Workload(graph, groups, layers, work, in_bodies, tuple(costs), tuple(executed), inserted, host)
    # Time that the work of a group does not explain is surplus, which no pessimistic case counts as a gain.
    parts_us = unexplained_us([workload.group_time(group) for group in range(len(groups))])
    explained = (
        replace(cost, surplus_us=min(cost.latency_us, cost.surplus_us + part_us), unexplained_us=part_us)
        for cost, part_us in zip(costs, parts_us, strict=True)
    )
    return replace(workload, costs=tuple(explained))
