"""Rows of a plan: its candidates, its kernels, and the resources that they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.offload.baselines import RuleCriteria, rule_criteria
from common.fpga.offload.reasons import Reasons
from common.fpga.planning.board_rows import WHOLE_BOARD, resource_use
from common.fpga.planning.plan import Plan, kernel_class
from common.fpga.planning.planned_kernels import PlannedKernel
from common.graphs.grouping import grouped
from common.graphs.sums import ratio, total
from common.intervals import ThreePoint
from common.table_rows import BoardResourcesRow, FpgaCandidatesRow, OffloadPlanRow
from common.workload.layers import Pooling
from common.workload.task_candidates import TaskCandidate
from common.workload.workload import Workload

# Usual abbreviations, because the printed table has 80 columns.
SHORT = {"BatchNormalization": "BN", "Softmax": "softmax", "Transpose": "transpose"}
SHORT |= {"QuantizeLinear": "Q", "DequantizeLinear": "DQ"}
SAME = 1e-6  # relative: two times that differ by less are one


class _Work(TypedDict):
    """Work of several calls, each over a group or a chain; traffic within a chain does not count."""

    macs: int | None
    flops: int | None
    bytes: int | None
    arithmetic_intensity_flop_per_byte: float | None


def _work(workload: Workload, calls: Sequence[Sequence[int]]) -> _Work:
    groups = [group for call in calls for group in call]
    flops = total(workload.flops(group) for group in groups)
    moved = total(workload.bytes(call) for call in calls)
    return {
        "macs": total(workload.macs(group) for group in groups),
        "flops": flops,
        "bytes": moved,
        "arithmetic_intensity_flop_per_byte": ratio(flops, moved),
    }


class _OfHost(TypedDict):
    """Cost of groups on the host alone."""

    group_count: int
    host_latency_us: float
    host_latency_share: float
    host_energy_share: float | None


def _of_host(workload: Workload, groups: Sequence[int]) -> _OfHost:
    return {
        "group_count": len(groups),
        "host_latency_us": sum(workload.costs[group].latency_us for group in groups),
        "host_latency_share": workload.host_us(groups) / workload.host.latency_us,
        "host_energy_share": ratio(_host_energy_uj(workload, groups), workload.host.energy_uj),
    }


def _host_energy_uj(workload: Workload, groups: Sequence[int]) -> float | None:
    return total(workload.costs[group].energy_uj for group in groups)


class _KernelTime(TypedDict):
    kernel_pessimistic_cycles: float | None
    kernel_likely_cycles: float | None
    kernel_optimistic_cycles: float | None
    kernel_latency_pessimistic_us: float | None
    kernel_latency_likely_us: float | None
    kernel_latency_optimistic_us: float | None


def _kernel_time(cycles: ThreePoint | None, time_us: ThreePoint | None) -> _KernelTime:
    of_cycles, of_time = _cases(cycles), _cases(time_us)
    return {
        "kernel_pessimistic_cycles": of_cycles[0],
        "kernel_likely_cycles": of_cycles[1],
        "kernel_optimistic_cycles": of_cycles[2],
        "kernel_latency_pessimistic_us": of_time[0],
        "kernel_latency_likely_us": of_time[1],
        "kernel_latency_optimistic_us": of_time[2],
    }


def _cases(estimate: ThreePoint | None) -> Sequence[float | None]:
    return (None, None, None) if estimate is None else estimate.cases


# --- candidates -------------------------------------------------------------------------------------------------------


def candidate_rows(plan: Plan) -> list[FpgaCandidatesRow]:
    """Return a row for every group, then for every chain, with the reason why the plan has it or not."""
    formulation = plan.formulation
    options_of = grouped((offer.candidate, option) for option, offer in enumerate(formulation.offers))
    why = Reasons(plan.problem, plan.solution.assignment)
    criteria = {members.label: rule_criteria(members, plan.request.thresholds) for members in plan.classes}
    ranked = sorted(enumerate(formulation.names), key=lambda entry: (entry[1].startswith("C"), int(entry[1][1:])))
    rows = []
    for index, name in ranked:
        candidate, options = formulation.candidates[index], options_of.get(index, [])
        chosen = next((option for option in options if option in plan.kernel_of_option), None)
        quickest = min(options, key=lambda option: plan.problem.options[option].time_us.likely, default=None)
        best = quickest if chosen is None else chosen
        reason = why.of(best) if best is not None else candidate.why_not or _no_engine(candidate)
        kernel = plan.kernel_of_option[chosen].name if chosen is not None else ""
        rows.append(_candidate_row(plan, criteria, candidate, (name, kernel, reason), best))
    return rows


def _no_engine(candidate: TaskCandidate) -> str:
    task = candidate.task
    if task is not None and candidate.kind == "chain" and any(isinstance(layer, Pooling) for layer in task.layers):
        return "no engine computes a pool within a chain"
    if task is not None and task.on_chip_bytes:
        return f"no engine has buffers for the {task.on_chip_bytes} bytes that it keeps on the chip"
    return "no engine that fits the board computes it"


def _candidate_row(
    plan: Plan,
    criteria: Mapping[str, RuleCriteria],
    candidate: TaskCandidate,
    texts: tuple[str, str, str],
    option: int | None,
) -> FpgaCandidatesRow:
    """Return the row of a candidate: a chain meets a criterion if all its groups do.

    ``texts`` are its name, its kernel and the reason. ``option`` is the best one, if any engine computes it.
    """
    workload, groups, (name, kernel, reason) = plan.workload, candidate.covers, texts
    estimate = None if option is None else plan.formulation.offers[option].estimate
    time_us = None if option is None else plan.problem.options[option].time_us  # with what the call waits for
    engine = "" if option is None else plan.formulation.engines[plan.problem.options[option].engine].name
    classes = list(dict.fromkeys(kernel_class(workload, group) for group in groups))
    executed = (node for group in groups for node in workload.costs[group].executed_nodes)
    return {
        "candidate": name,
        "kernel": kernel,
        "is_chosen": bool(kernel),
        "reason": reason,
        "kernel_kind": candidate.kind,
        "kernel_class": " + ".join(classes),
        "pattern": "+".join(workload.groups[group].pattern for group in groups),
        "source_nodes": [node for group in groups for node in workload.groups[group].nodes],
        "executed_nodes": list(dict.fromkeys(executed)),
        "host_energy_uj": _host_energy_uj(workload, groups),
        **_of_host(workload, groups),
        **_work(workload, [groups]),
        "is_large": all(criteria[label].is_large for label in classes),
        "is_regular": all(criteria[label].is_regular for label in classes),
        "is_intense": all(criteria[label].is_intense for label in classes),
        "is_fusable": all(criteria[label].is_fusable for label in classes),
        "engine": engine,
        "board_bound": estimate.bound if estimate else "",
        **_kernel_time(estimate.cycles if estimate else None, time_us),
    }


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernel_rows(plan: Plan) -> list[OffloadPlanRow]:
    """Return a row for every engine on the board, with the sum of its calls in one run."""
    return [_kernel_row(plan, kernel) for kernel in plan.kernels]


def _kernel_row(plan: Plan, kernel: PlannedKernel) -> OffloadPlanRow:
    workload, groups, engine = plan.workload, plan.groups_of(kernel), kernel.engine
    calls = [bar for bar in plan.likely.bars if bar.resource == kernel.lane]
    counts = Counter(workload.groups[group].pattern for group in groups)
    return {
        "kernel": kernel.name,
        "engine": kernel.lane,
        "engine_kind": engine.kind,
        "pattern_counts": dict(counts.most_common()),
        "board": plan.request.board.name,
        "region": kernel.region or WHOLE_BOARD,
        "precision": kernel.engine.precision,
        "call_count": len(calls),
        "board_bound": kernel.bound or "given",
        "launch_count": sum(bar.launch_us > 0 for bar in calls),
        "launch_us": sum(bar.launch_us for bar in calls),
        "onboard_weight_bytes": sum(plan.problem.options[option].weight_bytes for option in kernel.options),
        "kernel_power_pessimistic_w": kernel.power_w.pessimistic,
        "kernel_power_likely_w": kernel.power_w.likely,
        "kernel_power_optimistic_w": kernel.power_w.optimistic,
        "kernel_energy_pessimistic_uj": kernel.energy_uj.pessimistic,
        "kernel_energy_likely_uj": kernel.energy_uj.likely,
        "kernel_energy_optimistic_uj": kernel.energy_uj.optimistic,
        "comment": _comment(plan, kernel, groups),
        **_of_host(workload, groups),
        **_kernel_time(kernel.cycles, kernel.time_us),
        **_of_engine(engine),
        **_work(workload, [plan.candidate(option).covers for option in kernel.options]),
    }


class _OfEngine(TypedDict):
    """Clock and resources of an engine; an array's also case by case."""

    clock_mhz: float
    clock_pessimistic_mhz: float
    clock_likely_mhz: float
    clock_optimistic_mhz: float
    lut_count: float
    lut_pessimistic_count: float | None
    lut_likely_count: float | None
    lut_optimistic_count: float | None
    ff_count: float
    ff_pessimistic_count: float | None
    ff_likely_count: float | None
    ff_optimistic_count: float | None
    bram36_count: float
    bram36_pessimistic_count: float | None
    bram36_likely_count: float | None
    bram36_optimistic_count: float | None
    dsp_count: float
    dsp_pessimistic_count: float | None
    dsp_likely_count: float | None
    dsp_optimistic_count: float | None
    uram_count: float
    memory_channel_count: float


def _of_engine(engine: Engine) -> _OfEngine:
    intervals = engine.resource_cases if isinstance(engine, SystolicArray) else {}
    lut, ff, bram36, dsp = (_cases(intervals.get(name)) for name in ("lut", "ff", "bram36", "dsp"))
    clocks, resources = engine.clock_cases_mhz, engine.resources
    return {
        "clock_mhz": engine.clock_mhz,
        "clock_pessimistic_mhz": clocks.pessimistic,
        "clock_likely_mhz": clocks.likely,
        "clock_optimistic_mhz": clocks.optimistic,
        "lut_count": resources.lut,
        "lut_pessimistic_count": lut[0],
        "lut_likely_count": lut[1],
        "lut_optimistic_count": lut[2],
        "ff_count": resources.ff,
        "ff_pessimistic_count": ff[0],
        "ff_likely_count": ff[1],
        "ff_optimistic_count": ff[2],
        "bram36_count": resources.bram36,
        "bram36_pessimistic_count": bram36[0],
        "bram36_likely_count": bram36[1],
        "bram36_optimistic_count": bram36[2],
        "dsp_count": resources.dsp,
        "dsp_pessimistic_count": dsp[0],
        "dsp_likely_count": dsp[1],
        "dsp_optimistic_count": dsp[2],
        "uram_count": resources.uram,
        "memory_channel_count": resources.memory_channels,
    }


def _comment(plan: Plan, kernel: PlannedKernel, groups: Sequence[int]) -> str:
    """Return what is fused into the kernel, its speedup, its share of the critical path, and a limit that it meets."""
    workload = plan.workload
    latency_us = sum(workload.costs[group].latency_us for group in groups)
    speed = workload.host_us(groups) / kernel.time_us.likely if kernel.time_us.likely else 0.0
    source = "given" if kernel.bound is None else "likely"
    on_path = ratio(sum(workload.costs[group].critical_latency_us for group in groups), latency_us)
    path = "" if on_path is None else f"; {100 * on_path:.0f} % of its host time is on the critical path"
    is_one_sided = kernel.bound is not None and kernel.time_us.optimistic >= kernel.time_us.likely * (1 - SAME)
    why = (
        "; no case is faster: neither published kernels nor its ports and multipliers allow it" if is_one_sided else ""
    )
    return f"{_fused_with(workload, groups)}; kernel {speed:.3g}x ({source}){path}{why}"


def _fused_with(workload: Workload, groups: Sequence[int]) -> str:
    """Return the operators fused with the contractions, in the order of their first use: ``fuse BN/Relu/Add``."""
    fused = dict.fromkeys(
        SHORT.get(op_type, op_type)
        for group in (workload.groups[index] for index in groups)
        for name, op_type in zip(group.nodes, group.op_types, strict=True)
        if name not in group.heads
    )
    return f"fuse {'/'.join(fused)}" if fused else "nothing to fuse"


def resource_rows(plan: Plan) -> list[BoardResourcesRow]:
    used: dict[str, Resources] = {}
    spanning = Resources()
    for kernel in plan.kernels:
        if kernel.region is None:
            spanning += kernel.engine.resources
        else:
            used[kernel.region] = used.get(kernel.region, Resources()) + kernel.engine.resources
    return resource_use(plan.request.board, used, spanning)
