"""The offload plan: chosen kernels with their time, transfers, launches and energy on one board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from common.errors import CommandLineError, PipelineError
from common.fpga.boards import Board
from common.fpga.candidates import Candidate, KernelClass, add, classify
from common.fpga.figures import Outlook, combine
from common.fpga.kernel_models import Bound, KernelEstimate, KernelModel
from common.fpga.selection import HostTotals, Selection, Verdict, weight_bytes
from common.fpga.speedup import BoardTimes, SpeedupRow, energy_rows, latency_rows
from common.fusion.border import board_phases, crossings
from common.fusion.source_graph import SourceGraph

LaunchPer = Literal["group", "phase"]
LAUNCH_PER: tuple[LaunchPer, ...] = ("group", "phase")


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be placed: the source graph, its candidates, and one run on the host."""

    graph: SourceGraph
    candidates: tuple[Candidate, ...]
    host: HostTotals


@dataclass(frozen=True, slots=True)
class Terms:
    """How it is to be placed. ``given_speedups`` are kernel speedups that the user knows, by kernel name."""

    board: Board
    precision: str
    model: KernelModel
    selection: Selection
    launch_per: LaunchPer
    given_speedups: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel of the plan, over all of its calls in one run."""

    name: str
    kernel_class: KernelClass
    time_us: Outlook
    bound: Bound | None
    transfer_bytes: int
    transfer_us: Outlook
    launch_count: int
    launch_us: Outlook
    onboard_weight_bytes: int
    energy_uj: Outlook
    is_given: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The verdict on every kernel class, by its label, the kernels that were chosen, and what they gain."""

    verdicts: Mapping[str, Verdict]
    kernels: tuple[PlannedKernel, ...]
    speedup: tuple[SpeedupRow, ...]

    def term(self, objective: str, name: str) -> SpeedupRow:
        """The row of one term."""
        return next(row for row in self.speedup if (row.objective, row.term) == (objective, name))


def make_plan(workload: Workload, terms: Terms) -> Plan:
    """Choose kernels and say what they gain end to end.

    One array serves all chosen kernels, one call after another, so each has the whole of it.

    Raises:
        CommandLineError: a kernel speedup is given for a kernel that is not in the plan.
        PipelineError: the size of a tensor that must travel is unknown.
    """
    classes = classify(workload.candidates)
    verdicts = terms.selection.judge(classes, workload.host)
    estimates = [[terms.model.estimate(candidate) for candidate in found.candidates] for found in classes]
    for index, (verdict, found) in enumerate(zip(verdicts, estimates, strict=True)):
        if verdict.is_chosen and None in found:
            reason = f"{classes[index].label}: the kernel model has no estimate for it"
            verdicts[index] = replace(verdict, is_chosen=False, reason=reason)
    chosen = {
        kernel_class: [estimate for estimate in found if estimate is not None]
        for kernel_class, verdict, found in zip(classes, verdicts, estimates, strict=True)
        if verdict.is_chosen
    }
    kernels = _plan_kernels(workload, terms, chosen)
    labels = [kernel_class.label for kernel_class in classes]
    return Plan(dict(zip(labels, verdicts, strict=True)), kernels, tuple(_speedup(workload.host, terms.board, kernels)))


def _plan_kernels(
    workload: Workload, terms: Terms, chosen: Mapping[KernelClass, Sequence[KernelEstimate]]
) -> tuple[PlannedKernel, ...]:
    names = {kernel_class: f"K{rank}" for rank, kernel_class in enumerate(chosen, start=1)}
    _refuse_unknown(terms.given_speedups, names)
    transfers, launches = _transfer_bytes(workload, chosen), _launch_counts(workload, chosen, terms.launch_per)
    board = terms.board
    watts = combine(_sum, board.static_w, board.dynamic_w)
    kernels = []
    for kernel_class, estimates in chosen.items():
        given = terms.given_speedups.get(names[kernel_class])
        time_us = combine(_sum, *(estimate.time_us for estimate in estimates))
        if given is not None:
            time_us = Outlook.known(kernel_class.host_latency_us / given)
        carried, calls = transfers[kernel_class], launches[kernel_class]
        kernels.append(
            PlannedKernel(
                name=names[kernel_class],
                kernel_class=kernel_class,
                time_us=time_us,
                bound=_bound(estimates) if given is None else None,
                transfer_bytes=carried,
                transfer_us=Outlook(*(1e6 * carried / rate for rate in board.link_bytes_per_s.cases)),
                launch_count=calls,
                launch_us=Outlook(*(calls * cost for cost in board.launch_us.cases)),
                onboard_weight_bytes=weight_bytes(kernel_class, terms.precision) or 0,
                energy_uj=combine(lambda time, power: time * power, time_us, watts),
                is_given=given is not None,
            )
        )
    return tuple(kernels)


def _refuse_unknown(given: Mapping[str, float], names: Mapping[KernelClass, str]) -> None:
    if unknown := sorted(set(given) - set(names.values())):
        known = ", ".join(f"{name} ({found.label})" for found, name in names.items()) or "none"
        raise CommandLineError("--kernel-speedup", f"{unknown[0]} is no kernel of this plan", f"it has {known}")


def _sum(*values: float) -> float:
    return sum(values)


def _bound(estimates: Sequence[KernelEstimate]) -> Bound:
    """The ceiling behind the larger part of the likely time."""
    compute_us = sum(estimate.time_us.likely for estimate in estimates if estimate.bound == "compute")
    return "compute" if 2 * compute_us >= sum(estimate.time_us.likely for estimate in estimates) else "memory"


def _transfer_bytes(workload: Workload, chosen: Mapping[KernelClass, object]) -> dict[KernelClass, int]:
    """Bytes over the host link in one run, at the model's number format: the card converts as it reads and writes."""
    class_of = {node: found for found in chosen for member in found.candidates for node in member.group.nodes}
    carried = dict.fromkeys(chosen, 0)
    for crossing in crossings(workload.graph, class_of.keys()):
        if crossing.size_bytes is None:
            raise PipelineError(
                f"tensor {crossing.tensor}", "unknown size", "bind its dimensions with --dim NAME=NUMBER in 01 and 02"
            )
        carried[class_of[crossing.node]] += crossing.size_bytes
    return carried


def _launch_counts(
    workload: Workload, chosen: Mapping[KernelClass, object], launch_per: LaunchPer
) -> dict[KernelClass, int]:
    """Calls in one run: one per group, or one per phase, counted where the phase begins."""
    if launch_per == "group":
        return {found: len(found.candidates) for found in chosen}
    class_of = {node: found for found in chosen for member in found.candidates for node in member.group.nodes}
    position = workload.graph.position
    groups = sorted((member.group for member in workload.candidates), key=lambda group: position[group.nodes[-1]])
    counts, begun = dict.fromkeys(chosen, 0), set()
    for node, phase in board_phases(workload.graph, groups, class_of.keys()).items():
        if phase not in begun:
            begun.add(phase)
            counts[class_of[node]] += 1
    return counts


def _speedup(host: HostTotals, board: Board, kernels: Sequence[PlannedKernel]) -> list[SpeedupRow]:
    nothing = Outlook.known(0.0)
    times = BoardTimes(
        offloaded_us=sum(kernel.kernel_class.host_latency_us for kernel in kernels),
        kernel_us=combine(_sum, nothing, *(kernel.time_us for kernel in kernels)),
        transfer_us=combine(_sum, nothing, *(kernel.transfer_us for kernel in kernels)),
        launch_us=combine(_sum, nothing, *(kernel.launch_us for kernel in kernels)),
    )
    offloaded_uj = add(kernel.kernel_class.host_energy_uj for kernel in kernels)
    return [*latency_rows(host, times), *energy_rows(host, offloaded_uj, times, board)]
