"""The offload plan: the engines on the board, what each computes, when, and the speedup that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from common.fpga.array_designs import offered_designs
from common.fpga.coefficients import Models
from common.fpga.engine_catalogue import engines_for
from common.fpga.kernels.estimate import Engine
from common.fpga.offload.baselines import GroupClass, apply_rule, greedy
from common.fpga.offload.problem import CASES, Case, Problem
from common.fpga.offload.schedule import Assignment, Schedule, evaluate
from common.fpga.offload.search.plan_search import Solution, Status, optimize
from common.fpga.planning.planned_kernels import PlannedKernel, name_kernels, planned_kernels, with_given_speedups
from common.fpga.planning.problem_builder import Formulation, formulate, launch_rule
from common.fpga.planning.request import Request
from common.fpga.speedup.amdahl import latency_rows, throughput_rows
from common.fpga.speedup.energy import CardEnergy, energy_rows
from common.fpga.speedup.totals import CardWork, HostRun, added, case_totals
from common.graphs.grouping import grouped
from common.graphs.sums import ratio, total
from common.intervals import ThreePoint
from common.table_rows import SpeedupRow
from common.workload.formats import candidates_in, group_formats
from common.workload.layers import Convolution
from common.workload.task_candidates import TaskCandidate
from common.workload.tasks import batched
from common.workload.workload import Workload

NO_LAUNCH = ThreePoint.exactly(0.0)
REGULAR_KINDS = frozenset({"conv", "gemm", "attention"})


@dataclass(frozen=True)
class Plan:
    """A plan with its baselines."""

    workload: Workload
    request: Request
    formulation: Formulation
    problem: Problem  # that of the formulation with the times in force, given kernel speedups applied
    solution: Solution  # result of the search, which uses the models' times only
    kernels: tuple[PlannedKernel, ...]
    schedules: tuple[Schedule, ...]  # one inference in each of :data:`CASES`
    greedy_us: float
    classes: tuple[GroupClass, ...]
    rule: Assignment  # plan of the rule of thumb, which judges ``classes``

    @property
    def likely(self) -> Schedule:
        return self.schedules[CASES.index("likely")]

    @property
    def status(self) -> Status | None:
        """Return what the search proved; None if given speedups changed the times afterwards."""
        return None if self.request.given_speedups else self.solution.status

    @property
    def is_judged(self) -> bool:
        """Whether the host's times say something about the host of the plan."""
        return not self.workload.host.doubts and not self.request.host.mismatch(self.request.board)

    @cached_property
    def rule_us(self) -> float:
        return evaluate(self.formulation.problem, self.rule).finish_us

    @cached_property
    def kernel_of_option(self) -> dict[int, PlannedKernel]:
        return {option: kernel for kernel in self.kernels for option in kernel.options}

    def candidate(self, option: int) -> TaskCandidate:
        return self.formulation.candidates[self.formulation.offers[option].candidate]

    def groups_of(self, kernel: PlannedKernel) -> tuple[int, ...]:
        return tuple(group for option in kernel.options for group in self.candidate(option).covers)

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of weights that stay in the card's memory from run to run."""
        return sum(self.problem.options[option].weight_bytes for option in self.kernel_of_option)

    @property
    def link_bytes(self) -> int:
        """Return the bytes over the host link in one run, in the model's number format."""
        size = self.formulation.host_bytes
        return sum(size[bar.label] for bar in self.likely.bars if bar.kind in ("h2d", "d2h"))


def make_plan(workload: Workload, request: Request, models: Models) -> Plan:
    """Find the plan with the earliest finish, and its baselines.

    Raises:
        UnusableValueError: a kernel speedup is given for a kernel that is not in the plan, or the board has no rate
            for the number format.
    """
    formulation = formulation_of(workload, request, models)
    problem, given, card = formulation.problem, request.given_speedups, request.board
    solution = optimize(problem, request.effort, request.watch)
    named = name_kernels(problem, solution.assignment)
    timed = with_given_speedups(problem, named, given)
    kernels = planned_kernels(formulation, timed, solution.assignment, named, given, card, models.energy)
    classes = tuple(group_classes(workload, formulation))
    return Plan(
        workload,
        request,
        formulation,
        timed,
        solution,
        kernels,
        schedules=tuple(evaluate(in_case(timed, workload, case), solution.assignment, case) for case in CASES),
        greedy_us=evaluate(problem, greedy(problem)).finish_us,
        classes=classes,
        rule=apply_rule(problem, classes, request.thresholds),
    )


def formulation_of(workload: Workload, request: Request, models: Models, count: int = 1) -> Formulation:
    """Return the offload problem of a batch of ``count`` inferences, with engines in each number format of the plan."""
    board, formats = request.board, group_formats(workload.groups, request.precision, request.wider)
    candidates = [
        each if each.task is None or count == 1 else replace(each, task=batched(each.task, count))
        for each in candidates_in(workload, formats)
        if request.has_chains or len(each.covers) == 1
    ]
    engines: list[Engine] = []
    for precision in dict.fromkeys((request.precision, *formats)):
        tasks = [each.task for each in candidates if each.task is not None and each.task.precision == precision]
        overlay = request.overlay if precision == request.precision else None
        engines += engines_for(board, precision, models, tasks, overlay, has_arrays=request.has_own_arrays)
        engines += offered_designs(request.designs, board, precision, models, tasks)
    return formulate(workload, candidates, engines, board, formats, request.launch_per)


def in_case(problem: Problem, workload: Workload, case: Case, count: int = 1) -> Problem:
    """Return the problem of ``count`` inferences with the host's times in one case, which is that of the whole run."""
    times = workload.step_times(case)
    items = (replace(item, host_us=count * us) for item, us in zip(problem.items, times, strict=True))
    return replace(problem, items=tuple(items))


def relaunched(plan: Plan, request: Request) -> Plan:
    """Return the plan with the same calls, launched as the request says."""
    models = zip(plan.problem.engines, plan.formulation.engines, strict=True)
    engines = tuple(replace(engine, launch_per=launch_rule(model, request.launch_per)) for engine, model in models)
    problem = replace(plan.problem, engines=engines)
    schedules = (evaluate(in_case(problem, plan.workload, case), plan.solution.assignment, case) for case in CASES)
    return replace(plan, request=request, problem=problem, schedules=tuple(schedules))


def plan_speedup(plan: Plan, energy: CardEnergy) -> list[SpeedupRow]:
    """Return the terms of latency, energy and throughput, one per row.

    A PipelineError says that the energy per byte of the card's memory or link is unknown.
    """
    workload, request, assignment = plan.workload, plan.request, plan.solution.assignment
    free = replace(plan.problem, options=tuple(replace(option, launch_us=NO_LAUNCH) for option in plan.problem.options))
    totals = [
        case_totals(schedule, evaluate(in_case(free, workload, case), assignment, case).finish_us)
        for case, schedule in zip(CASES, plan.schedules, strict=True)
    ]
    host, work, card = host_run(plan), card_work(plan), request.board
    rows = latency_rows(host, totals, work, card)
    rows += energy_rows(host, totals, work, card, energy)
    rows += throughput_rows(host, totals)
    return [{**row, "is_judged": plan.is_judged} for row in rows]


def host_run(plan: Plan) -> HostRun:
    """Return one inference on the host alone, and the part of it that the plan moves."""
    host, costs = plan.workload.host, plan.workload.costs
    moved_uj = total(costs[group].energy_uj for kernel in plan.kernels for group in plan.groups_of(kernel))
    moved_us = ThreePoint(*(schedule.totals.offloaded_host_us for schedule in plan.schedules))
    return HostRun(host.latency, host.energy, host.static_power_w, moved_us, moved_uj)


def card_work(plan: Plan) -> CardWork:
    return CardWork(
        added((kernel.engine.precision, kernel.flops) for kernel in plan.kernels),
        sum(kernel.moved_bytes for kernel in plan.kernels),
        plan.link_bytes,
        plan.weight_bytes,
    )


# --- what the rule of thumb judges ------------------------------------------------------------------------------------


def kernel_class(workload: Workload, index: int) -> str:
    """Return ``conv 3x3``, ``grouped conv 3x3``, ``gemm``, ``attention`` …, or the pattern of a group of kind none."""
    group = workload.groups[index]
    if group.kind == "none":
        return group.pattern
    if group.kind != "conv":
        return group.kind
    head = next((layer for layer in workload.layers[group.heads[0]] or () if isinstance(layer, Convolution)), None)
    if head is None:
        return "conv"
    return f"{'grouped ' if head.groups > 1 else ''}conv {head.kernel_height}x{head.kernel_width}"


def group_classes(workload: Workload, formulation: Formulation) -> list[GroupClass]:
    """Return the classes of groups of one kind and window, which could share a kernel; that of most host time first."""
    members = grouped((kernel_class(workload, index), index) for index in range(len(workload.groups)))
    classes = []
    for label, groups in members.items():
        host, kind = workload.host, workload.groups[groups[0]].kind
        flops, moved = total(map(workload.flops, groups)), total(workload.bytes([group]) for group in groups)
        unfused, macs = total(map(workload.unfused_bytes, groups)), total(map(workload.macs, groups))
        energy_uj = total(workload.costs[group].energy_uj for group in groups)
        known = GroupClass(
            label=label,
            groups=tuple((formulation.item_of[group],) for group in groups),
            latency_share=workload.host_us(groups) / host.latency_us,
            energy_share=ratio(energy_uj, host.energy_uj),
            is_regular=kind in REGULAR_KINDS and macs is not None and moved is not None,
            intensity_flop_per_byte=ratio(flops, moved),
            fused_share=None if unfused is None or moved is None or not unfused else 1 - moved / unfused,
        )
        classes.append(known)
    return sorted(classes, key=lambda members: -(members.latency_share or 0.0))
