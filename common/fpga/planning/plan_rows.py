"""Rows of the tables of a plan, under the names of the column dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic import SystolicArray
from common.fpga.offload.problem import CASES
from common.fpga.offload.reasons import Reasons
from common.fpga.planning.plan import Plan
from common.fpga.planning.planned_kernels import PlannedKernel
from common.fpga.planning.rule_classes import RuleCriteria, kernel_class, rule_criteria
from common.fpga.speedup.board_use import WHOLE_BOARD, ResourceUse, resource_use
from common.fpga.speedup.totals import timeline
from common.intervals import ThreePoint
from common.sums import total
from common.workload.layers import Pooling
from common.workload.task_candidates import TaskCandidate
from common.workload.workload import Workload

# Usual abbreviations, because the printed table has 80 columns.
SHORT = {
    "BatchNormalization": "BN",
    "Softmax": "softmax",
    "Transpose": "transpose",
    "QuantizeLinear": "Q",
    "DequantizeLinear": "DQ",
}


# --- candidates -------------------------------------------------------------------------------------------------------


def candidate_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row for every group, then for every chain, with the reason why the plan has it or not."""
    workload, formulation = plan.workload, plan.formulation
    options_of: dict[int, list[int]] = {}
    for option, offer in enumerate(formulation.offers):
        options_of.setdefault(offer.candidate, []).append(option)
    why = Reasons(plan.problem, plan.solution.assignment)
    names = formulation.names
    criteria = {members.label: rule_criteria(members, plan.request.thresholds) for members in plan.classes}
    rows = []
    for index in sorted(range(len(formulation.candidates)), key=lambda index: _rank(names[index])):
        candidate, options = formulation.candidates[index], options_of.get(index, [])
        taken = next((option for option in options if option in plan.kernel_of_option), None)
        best = taken
        if best is None and options:
            best = min(options, key=lambda option: formulation.offers[option].estimate.time_us.likely)
        reason = why.of(best).sentence if best is not None else candidate.why_not or _no_engine(candidate)
        rows.append(
            {
                "candidate": names[index],
                "kernel": plan.kernel_of_option[taken].name if taken is not None else None,
                "is_chosen": taken is not None,
                "reason": reason,
                **_group_facts(workload, candidate),
                **_criteria(workload, criteria, candidate),
                **_best(plan, best),
            }
        )
    return rows


def _no_engine(candidate: TaskCandidate) -> str:
    task = candidate.task
    if task is not None and candidate.kind == "chain" and any(isinstance(layer, Pooling) for layer in task.layers):
        return "no engine computes a pool within a chain"
    if task is not None and task.on_chip_bytes:
        return f"no engine has buffers for the {task.on_chip_bytes} bytes that it keeps on the chip"
    return "no engine that fits the board computes it"


def _rank(name: str) -> tuple[bool, int]:
    return name.startswith("C"), int(name[1:])


def _group_facts(workload: Workload, candidate: TaskCandidate) -> dict[str, Any]:
    groups = candidate.covers
    executed = (name for group in groups for name in workload.costs[group].executed_nodes)
    energy_uj = total(workload.costs[group].energy_uj for group in groups)
    latency_us = sum(workload.costs[group].latency_us for group in groups)
    return {
        "kernel_kind": candidate.kind,
        "kernel_class": " + ".join(dict.fromkeys(kernel_class(workload, group) for group in groups)),
        "pattern": "+".join(workload.groups[group].pattern for group in groups),
        "source_nodes": [name for group in groups for name in workload.groups[group].nodes],
        "executed_nodes": list(dict.fromkeys(executed)),
        "group_count": len(groups),
        "host_latency_us": latency_us,
        "host_latency_share": workload.host_us(groups) / workload.host.latency_us,
        "host_energy_uj": energy_uj,
        "host_energy_share": share(energy_uj, workload.host.energy_uj),
        **_work(workload, [groups]),
    }


def _work(workload: Workload, calls: Sequence[Sequence[int]]) -> dict[str, Any]:
    groups = [group for call in calls for group in call]
    flops = total(workload.flops(group) for group in groups)
    moved = total(workload.bytes(call) for call in calls)
    return {
        "macs": total(workload.macs(group) for group in groups),
        "flops": flops,
        "bytes": moved,
        "arithmetic_intensity_flop_per_byte": share(flops, moved),
    }


def _criteria(workload: Workload, criteria: Mapping[str, RuleCriteria], candidate: TaskCandidate) -> dict[str, bool]:
    """Return the criteria of the candidate's class; a chain meets a criterion if all its groups do."""
    members = [asdict(criteria[kernel_class(workload, group)]) for group in candidate.covers]
    return {name: all(flags[name] for flags in members) for name in members[0]}


def _best(plan: Plan, option: int | None) -> dict[str, Any]:
    """Return the engine that computes the option and its estimate; without an option, empty cells."""
    if option is None:
        unknown = dict.fromkeys(("engine", "board_bound"))
        return {**unknown, **_cases("kernel", "_cycles", None), **_cases("kernel_latency", "_us", None)}
    estimate = plan.formulation.offers[option].estimate
    return {
        "engine": plan.formulation.engines[plan.problem.options[option].engine].name,
        "board_bound": estimate.bound,
        **_cases("kernel", "_cycles", estimate.cycles),
        **_cases("kernel_latency", "_us", estimate.time_us),
    }


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernel_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row for every engine on the board, with the sum of its calls in one run."""
    return [_kernel_row(plan, kernel) for kernel in plan.kernels]


def _kernel_row(plan: Plan, kernel: PlannedKernel) -> dict[str, Any]:
    workload, request, groups = plan.workload, plan.request, plan.groups_of(kernel)
    calls = [bar for bar in plan.likely.bars if bar.resource == kernel.lane]
    latency_us = sum(workload.costs[group].latency_us for group in groups)
    energy_uj = total(workload.costs[group].energy_uj for group in groups)
    counts = Counter(workload.groups[group].pattern for group in groups)
    return {
        "kernel": kernel.name,
        "engine": kernel.lane,
        "engine_kind": kernel.engine.kind,
        "pattern_counts": dict(counts.most_common()),
        "board": request.board.name,
        "region": kernel.region or WHOLE_BOARD,
        "precision": request.precision,
        "clock_mhz": kernel.engine.clock_mhz,
        "group_count": len(groups),
        "call_count": len(calls),
        "host_latency_us": latency_us,
        "host_latency_share": workload.host_us(groups) / workload.host.latency_us,
        "host_energy_share": share(energy_uj, workload.host.energy_uj),
        "board_bound": kernel.bound or "given",
        **_cases("kernel", "_cycles", kernel.cycles),
        **_cases("kernel_latency", "_us", kernel.time_us),
        **_resource_counts(kernel.engine.resources),
        **_design_cases(kernel.engine),
        "launch_count": sum(bar.launch_us > 0 for bar in calls),
        "launch_us": sum(bar.launch_us for bar in calls),
        "onboard_weight_bytes": sum(plan.problem.options[option].weight_bytes for option in kernel.options),
        **_cases("kernel_power", "_w", kernel.power_w),
        **_cases("kernel_energy", "_uj", kernel.energy_uj),
        "comment": _comment(plan, kernel, groups),
        **_work(workload, [plan.candidate(option).covers for option in kernel.options]),
    }


def _resource_counts(resources: Resources) -> dict[str, float]:
    return {
        "lut_count": resources.lut,
        "ff_count": resources.ff,
        "bram36_count": resources.bram36,
        "uram_count": resources.uram,
        "dsp_count": resources.dsp,
        "memory_channel_count": resources.memory_channels,
    }


def _design_cases(engine: Engine) -> dict[str, float | None]:
    """Return the clock in three cases, and the resources of an array; those of other kernels have no interval."""
    amounts = engine.resource_cases if isinstance(engine, SystolicArray) else {}
    cases = dict(_cases("clock", "_mhz", engine.clock_cases_mhz))
    for name in ("lut", "ff", "bram36", "dsp"):
        cases |= _cases(name, "_count", amounts.get(name))
    return cases


def _comment(plan: Plan, kernel: PlannedKernel, groups: Sequence[int]) -> str:
    """Return what is fused into the kernel, its speedup, and its share of the host's critical path."""
    workload = plan.workload
    latency_us = sum(workload.costs[group].latency_us for group in groups)
    speed = workload.host_us(groups) / kernel.time_us.likely if kernel.time_us.likely else 0.0
    source = "given" if kernel.bound is None else "likely"
    on_path = share(sum(workload.costs[group].critical_latency_us for group in groups), latency_us)
    path = "" if on_path is None else f"; {100 * on_path:.0f} % of its host time is on the critical path"
    return f"{_fused_with(workload, groups)}; kernel {speed:.3g}x ({source}){path}"


def _fused_with(workload: Workload, groups: Sequence[int]) -> str:
    """Return the operators fused with the contractions, in the order of their first use: ``fuse BN/Relu/Add``."""
    others: dict[str, None] = {}
    for group in (workload.groups[index] for index in groups):
        for name, op_type in zip(group.nodes, group.op_types, strict=True):
            if name not in group.heads:
                others[SHORT.get(op_type, op_type)] = None
    return f"fuse {'/'.join(others)}" if others else "nothing to fuse"


# --- schedule and board -----------------------------------------------------------------------------------------------


def schedule_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return one inference before and after offloading, interval by interval."""
    return [asdict(interval) for interval in timeline(plan.problem.items, plan.likely)]


def resource_rows(plan: Plan) -> list[ResourceUse]:
    used: dict[str, Resources] = {}
    spanning = Resources()
    for kernel in plan.kernels:
        if kernel.region is None:
            spanning += kernel.engine.resources
        else:
            used[kernel.region] = used.get(kernel.region, Resources()) + kernel.engine.resources
    return resource_use(plan.request.board, used, spanning)


def _cases(stem: str, unit: str, estimate: ThreePoint | None) -> Mapping[str, float | None]:
    """Return one column for each case; all are empty without an estimate."""
    values = (None,) * 3 if estimate is None else estimate.cases
    return {f"{stem}_{case}{unit}": value for case, value in zip(CASES, values, strict=True)}


def share(part: float | None, whole: float | None) -> float | None:
    """Return part over whole; None if either is unknown or the whole is not positive."""
    return None if part is None or whole is None or whole <= 0 else part / whole
