"""The offload plan: which engines stand on the board, what each computes, when, and what that gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from common.errors import CommandLineError
from common.fpga.coefficients import Models
from common.fpga.device.board import PLAN_PRECISIONS, Board
from common.fpga.kernels.catalogue import engines_for
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.offload.greedy import greedy
from common.fpga.offload.problem import CASES, Problem
from common.fpga.offload.program import Solution, Status, optimize
from common.fpga.offload.rule import GroupClass, RulePlan, Thresholds, by_rule
from common.fpga.offload.schedule import Schedule, evaluate
from common.fpga.offload.solver import Effort
from common.fpga.planning.planned_kernels import PlannedKernel, name_kernels, planned_kernels, with_given_speedups
from common.fpga.planning.problem_builder import LAUNCH_PER, LaunchPer, Placement, make_placement
from common.fpga.planning.rule_classes import group_classes
from common.fpga.speedup.card_energy import CardEnergy
from common.fpga.speedup.speedup_rows import speedup_rows
from common.fpga.speedup.terms import SpeedupRow
from common.fpga.speedup.timeline import case_totals
from common.fpga.speedup.totals import Card, CardWork, HostRun, PlanTotals
from common.intervals import ThreePoint
from common.sums import total
from common.workload.task_candidates import TaskCandidate, task_candidates
from common.workload.workload import Workload

NO_LAUNCH = ThreePoint.exactly(0.0)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        board: with its budgets, memory and link.
        precision: number format of the kernels.
        launch_per: whether each call is launched.
        thresholds: of the rule that the plan is held against.
        given_speedups: of kernels over the host, that the user knows, by kernel name.
        effort: of the search.
        overlay: an overlay engine that may stand on the board too, besides what the catalogue has.
    """

    board: Board
    precision: str
    launch_per: LaunchPer
    thresholds: Thresholds
    given_speedups: Mapping[str, float]
    effort: Effort
    overlay: OverlayEngine | None = None

    def __post_init__(self) -> None:
        """Refuse words that a configuration file may hold and no flag would take."""
        for flag, value, allowed in (
            ("--precision", self.precision, PLAN_PRECISIONS),
            ("--launch-per", self.launch_per, LAUNCH_PER),
        ):
            if value not in allowed:
                raise CommandLineError(flag, f"{value!r} is unknown", f"it takes {', '.join(allowed)}")
        if self.overlay is not None and self.precision != "int8":
            raise CommandLineError("--engine", f"{self.overlay.name} computes in int8 alone", "add --precision int8")


@dataclass(frozen=True)
class Plan:
    """A plan and everything that it was held against.

    Attributes:
        workload: what was placed.
        request: how it was to be placed.
        placement: what the problem's indices stand for.
        problem: with the times that hold, speedups that were given among them.
        solution: of the search, which knew the models' times alone.
        kernels: engines on the board.
        schedules: one inference in each of :data:`CASES`.
        greedy_us: finish of a greedy plan.
        classes: what the rule of thumb looks at.
        rule: what it takes.
    """

    workload: Workload
    request: Request
    placement: Placement
    problem: Problem
    solution: Solution
    kernels: tuple[PlannedKernel, ...]
    schedules: tuple[Schedule, ...]
    greedy_us: float
    classes: tuple[GroupClass, ...]
    rule: RulePlan

    @property
    def likely(self) -> Schedule:
        """One inference in the likely case."""
        return self.schedules[CASES.index("likely")]

    @property
    def status(self) -> Status | None:
        """What the search proved; nothing of a plan whose kernels then get other times."""
        return None if self.request.given_speedups else self.solution.status

    @cached_property
    def rule_us(self) -> float:
        """Finish of what the rule of thumb would take."""
        return evaluate(self.placement.problem, self.rule.assignment).finish_us

    @cached_property
    def kernel_of_option(self) -> dict[int, PlannedKernel]:
        """The kernel that computes a chosen option."""
        return {option: kernel for kernel in self.kernels for option in kernel.options}

    def candidate(self, option: int) -> TaskCandidate:
        """What an option computes."""
        return self.placement.candidates[self.placement.offers[option].candidate]

    def groups_of(self, kernel: PlannedKernel) -> tuple[int, ...]:
        """Groups that a kernel computes."""
        return tuple(group for option in kernel.options for group in self.candidate(option).covers)

    @property
    def weight_bytes(self) -> int:
        """What stays in the card's memory from run to run."""
        return sum(self.problem.options[option].weight_bytes for option in self.kernel_of_option)

    @property
    def link_bytes(self) -> int:
        """Bytes over the host link in one run, at the model's number format."""
        size = self.placement.host_bytes
        return sum(size[bar.what] for bar in self.likely.placed if bar.kind in ("h2d", "d2h"))


def make_plan(workload: Workload, request: Request, models: Models) -> Plan:
    """Find the plan with the earliest finish, and what it is held against.

    Raises:
        CommandLineError: a kernel speedup is given for a kernel that is not in the plan, or the board gives no rate for
            the number format.
    """
    board, precision = request.board, request.precision
    candidates = task_candidates(workload.graph, workload.groups, workload.layers, precision, workload.in_bodies)
    tasks = [candidate.task for candidate in candidates if candidate.task is not None]
    engines = engines_for(board, precision, models, tasks, request.overlay)
    placement = make_placement(workload, candidates, engines, board, precision, request.launch_per)
    problem, given, card = placement.problem, request.given_speedups, Card.of(board)
    solution = optimize(problem, request.effort)
    named = name_kernels(problem, solution.assignment)
    asked = with_given_speedups(problem, named, given)
    kernels = planned_kernels(placement, asked, solution.assignment, named, given, precision, card, models.energy)
    classes = tuple(group_classes(workload, placement))
    return Plan(
        workload,
        request,
        placement,
        asked,
        solution,
        kernels,
        schedules=tuple(evaluate(asked, solution.assignment, case) for case in CASES),
        greedy_us=evaluate(problem, greedy(problem)).finish_us,
        classes=classes,
        rule=by_rule(problem, classes, request.thresholds),
    )


def gains(plan: Plan, energy: CardEnergy) -> list[SpeedupRow]:
    """Every term of what the plan gains in latency, energy and throughput, in three cases."""
    workload, request, assignment = plan.workload, plan.request, plan.solution.assignment
    free = replace(plan.problem, options=tuple(replace(option, launch_us=NO_LAUNCH) for option in plan.problem.options))
    totals = PlanTotals(
        *(
            case_totals(schedule, evaluate(free, assignment, case).finish_us)
            for case, schedule in zip(CASES, plan.schedules, strict=True)
        )
    )
    work = CardWork(
        request.precision,
        sum(kernel.flops for kernel in plan.kernels),
        sum(kernel.moved_bytes for kernel in plan.kernels),
        plan.link_bytes,
        plan.weight_bytes,
    )
    host, groups = workload.host, [group for kernel in plan.kernels for group in plan.groups_of(kernel)]
    moved_uj = total(workload.costs[group].energy_uj for group in groups)
    moved_us = plan.likely.totals.offloaded_host_us
    run = HostRun(host.latency_us, host.energy_uj, host.static_power_w, moved_us, moved_uj)
    return speedup_rows(run, totals, work, Card.of(request.board), energy)
