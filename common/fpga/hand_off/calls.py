"""The calls of a plan's kernels in the order of its schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.offload.problem import Wiring
from common.fpga.planning.plan import Plan
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one kernel.

    Attributes:
        kernel: its name.
        candidate: name of the group or chain that it computes.
        groups: indices of its groups, in the order in which they run.
        task: their layers.
        estimate: cycles of the kernel model.
        time_us: time in force: a given speedup replaces the model's.
        start_us: likely start of its launch or, without one, of the kernel.
        launch_us: time that the host takes to start it; 0 where it starts with the call before.
        reads: tensors that it needs before it can start.
        writes: tensors that it leaves in the card's memory.
        weight_bytes: weights that stay in the card's memory.
    """

    kernel: str
    candidate: str
    groups: tuple[int, ...]
    task: Task
    estimate: KernelEstimate
    time_us: ThreePoint
    start_us: float
    launch_us: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    weight_bytes: int


def calls_in_order(plan: Plan) -> list[Call]:
    calls = [call for kernel in plan.kernels for call in calls_of(plan, kernel)]
    return sorted(calls, key=lambda call: call.start_us)


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
