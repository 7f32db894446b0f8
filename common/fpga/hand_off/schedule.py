"""The host's schedule as JSON: what it computes, copies and starts, in order, and the tensors between the steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from common.fpga.hand_off.calls import Call
from common.fpga.offload.problem import Wiring
from common.fpga.offload.schedule import TimelineBar
from common.fpga.planning.plan import Plan
from common.fpga.planning.problem_builder import END


def schedule(plan: Plan, calls: list[Call]) -> dict[str, Any]:
    """Return the content of ``schedule.json`` in the likely case.

    Args:
        plan: the plan.
        calls: its calls in order.
    """
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
    called = {call.candidate: _call(plan, call) for call in calls}
    on_host = _host(plan)
    return [
        {
            "step": number,
            "activity": bar.kind,
            **({"call": called, "host": on_host}[bar.kind][bar.label] if bar.kind in ("call", "host") else _moved(bar)),
            "launch_us": bar.launch_us,
            "start_us": bar.start_us,
            "finish_us": bar.finish_us,
        }
        for number, bar in enumerate(plan.likely.bars, start=1)
    ]


def _moved(bar: TimelineBar) -> dict[str, Any]:
    return {"tensor": bar.label}


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
