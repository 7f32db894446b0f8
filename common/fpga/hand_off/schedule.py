"""The calls of a plan's kernels, and the host's schedule as JSON: its steps in order, and the tensors between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.offload.problem import Wiring
from common.fpga.planning.plan import Plan
from common.fpga.planning.planned_kernels import PlannedKernel
from common.fpga.planning.problem_builder import END
from common.intervals import ThreePoint
from common.workload.tasks import Task


def schedule(plan: Plan, calls: list[Call]) -> dict[str, Any]:
    """Return the content of ``schedule.json`` in the likely case."""
    request = plan.request
    return {
        "board": request.board.name,
        "precision": request.precision,
        "launch_per": request.launch_per,
        "finish_likely_us": plan.likely.finish_us,
        "steps": _steps(plan, calls),
        "tensors": _tensors(plan, calls),
    }


def _steps(plan: Plan, calls: list[Call]) -> list[dict[str, Any]]:
    computed = {"call": {call.candidate: _call(plan, call) for call in calls}, "host": _host(plan)}
    return [
        {
            "step": number,
            "activity": bar.kind,
            **(computed[bar.kind][bar.label] if bar.kind in computed else {"tensor": bar.label}),
            "launch_us": bar.launch_us,
            "start_us": bar.start_us,
            "finish_us": bar.finish_us,
        }
        for number, bar in enumerate(plan.likely.bars, start=1)
    ]


def _call(plan: Plan, call: Call) -> dict[str, Any]:
    return {
        "kernel": call.kernel,
        "candidate": call.candidate,
        "source_nodes": [node for group in call.groups for node in plan.workload.groups[group].nodes],
        "reads": list(call.reads),
        "writes": list(call.writes),
    }


def _host(plan: Plan) -> dict[str, dict[str, Any]]:
    wiring, flows = Wiring(plan.problem), plan.problem.flows
    group_of = {item: group for group, item in plan.formulation.item_of.items()}

    def tensors(indices: Iterable[int]) -> list[str]:
        return [flows[index].tensor for index in indices if flows[index].tensor != END]

    return {
        item.name: {
            "candidate": item.name,
            "source_nodes": list(plan.workload.groups[group_of[index]].nodes) if index in group_of else [],
            "reads": tensors(wiring.entering((index,))),
            "writes": tensors(wiring.leaving((index,))),
        }
        for index, item in enumerate(plan.problem.items)
    }


def _tensors(plan: Plan, calls: list[Call]) -> list[dict[str, Any]]:
    """Return every tensor between two steps: its size on the host, who writes it and which kernels read it."""
    made_by = {tensor: call.kernel for call in calls for tensor in call.writes}
    return [
        {
            "tensor": flow.tensor,
            "host_bytes": plan.formulation.host_bytes[flow.tensor],
            "written_by": made_by.get(flow.tensor, "host"),
            "read_by_kernels": sorted({call.kernel for call in calls if flow.tensor in call.reads}),
            "is_output": flow.is_output,
        }
        for flow in plan.problem.flows
        if flow.tensor != END
    ]


@dataclass(frozen=True, slots=True)
class Call:
    kernel: str
    candidate: str  # name of the group that it computes
    groups: tuple[int, ...]  # indices of its groups, in the order in which they run
    task: Task
    estimate: KernelEstimate  # cycles of the kernel model
    time_us: ThreePoint  # time in force: a given speedup replaces the model's
    start_us: float  # likely start of its launch or, without one, of the kernel
    launch_us: float  # time that the host takes to start it; 0 where it starts with the call before
    reads: tuple[str, ...]  # tensors that it needs before it can start
    writes: tuple[str, ...]  # tensors that it leaves in the card's memory
    weight_bytes: int  # weights that stay in the card's memory


def calls_in_order(plan: Plan) -> list[Call]:
    calls = [call for kernel in plan.kernels for call in calls_of(plan, kernel)]
    return sorted(calls, key=lambda call: call.start_us)


def exchanged(calls: Sequence[Call]) -> Counter[tuple[str, str]]:
    """Return how many tensors one kernel writes and another one reads, by both."""
    made_by = {tensor: call.kernel for call in calls for tensor in call.writes}
    return Counter(
        (made_by[tensor], call.kernel)
        for call in calls
        for tensor in call.reads
        if made_by.get(tensor, call.kernel) != call.kernel
    )


def together_us(plan: Plan, one: PlannedKernel, other: PlannedKernel) -> float:
    """Return how long two kernels work at the same time in the likely schedule."""
    spans = [
        [(bar.start_us + bar.launch_us, bar.finish_us) for bar in plan.likely.bars if bar.resource == kernel.lane]
        for kernel in (one, other)
    ]
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in product(*spans))


def calls_of(plan: Plan, kernel: PlannedKernel) -> Iterator[Call]:
    options = {plan.problem.options[option].name: option for option in kernel.options}
    wiring, flows = Wiring(plan.problem), plan.problem.flows
    for bar in plan.likely.bars:
        if bar.resource != kernel.lane:
            continue
        option = options[bar.label]
        candidate, chosen = plan.candidate(option), plan.problem.options[option]
        assert candidate.task is not None  # else no engine would compute it
        written = wiring.leaving(chosen.covers)
        kept = [flow for flow in written if flows[flow].is_output or set(flows[flow].consumers) - set(chosen.covers)]
        yield Call(
            kernel=kernel.name,
            candidate=bar.label,
            groups=candidate.covers,
            task=candidate.task,
            estimate=plan.formulation.offers[option].estimate,
            time_us=chosen.time_us,
            start_us=bar.start_us,
            launch_us=bar.launch_us,
            reads=tuple(flows[flow].tensor for flow in wiring.entering(chosen.covers)),
            writes=tuple(flows[flow].tensor for flow in kept),
            weight_bytes=chosen.weight_bytes,
        )
