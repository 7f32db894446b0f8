"""One run of CP-SAT with a fixed seed and a deterministic limit, so that equal problems get equal plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common.fpga.offload.choices import Choices, Mode
from common.fpga.offload.effort import Spending
from common.fpga.offload.floorplan import place
from common.fpga.offload.hints import hint
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler
from common.fpga.offload.timing import Timing


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a search: a plan, or None if none was found, and a bound for all plans.

    ``is_proved`` says that the plan is optimal or, without a plan, that there is none.
    """

    plan: Assignment | None
    is_proved: bool
    bound: int


def best_choices(choices: Choices, budget: Spending, limit: float) -> Answer:
    """Choose options and engines for the model's objective, without time, in at most ``limit`` of the budget."""
    answer = _solve(choices.model, budget, limit)
    if answer.solver is None:
        return Answer(None, answer.is_proved, answer.bound)
    return Answer(_plan(choices.problem, _chosen(choices, answer.solver)), answer.is_proved, answer.bound)


def best_schedule(
    timing: Timing, known: Assignment | None, scheduler: Scheduler, budget: Spending, limit: float
) -> Answer:
    """Choose options, engines and order for the model's objective, starting from a known plan if there is one."""
    if known is not None:
        hint(timing, known, scheduler)
    answer = _solve(timing.model, budget, limit)
    if answer.solver is None:
        return Answer(None, answer.is_proved, answer.bound)
    modes = _chosen(timing.choices, answer.solver)
    plan = _plan(timing.problem, modes)
    ordered = Assignment(plan.calls, plan.regions, _order(timing, modes, answer.solver))
    return Answer(ordered, answer.is_proved, answer.bound)


@dataclass(frozen=True, slots=True)
class _Run:
    solver: Any
    is_proved: bool
    bound: int


def _solve(model: Any, budget: Spending, limit: float) -> _Run:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = budget.seed
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = max(0.0, min(limit, budget.left))
    if math.isfinite(left_s := budget.watch.left_s()):
        solver.parameters.max_time_in_seconds = max(0.0, left_s)
    solver.parameters.linearization_level = 2
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C ends the search but not the program
    solver.parameters.cp_model_probing_level = 0  # it took longer than the search
    status = budget.wait_for(lambda: solver.solve(model), solver.stop_search)
    if status is None:
        return _Run(None, is_proved=False, bound=0)
    budget.left -= solver.deterministic_time
    is_proved = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    bound = solver.best_objective_bound
    whole = round(bound) if abs(bound) < float("inf") else 0
    return _Run(solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None, is_proved, whole)


def _chosen(choices: Choices, solver: Any) -> list[Mode]:
    return [mode for mode in choices.modes if solver.boolean_value(mode.chosen)]


def _plan(problem: Problem, modes: Sequence[Mode]) -> Assignment:
    calls = tuple(KernelCall(mode.option, mode.instance[1]) for mode in modes)
    return Assignment(calls, place(problem, sorted({mode.instance for mode in modes})) or ())


def _order(timing: Timing, modes: Sequence[Mode], solver: Any) -> tuple[JobKey, ...]:
    """Return calls and transfers by start, and by finish where they start together."""
    begins: list[tuple[int, int, JobKey]] = []
    for mode in modes:
        end = solver.value(timing.done[timing.problem.options[mode.option].covers[-1]])
        begins.append((end - mode.duration_ns, end, ("call", mode.option)))
    for (way, index), start in timing.start.items():
        if solver.boolean_value(timing.choices.travels[way, index]):
            begin = solver.value(start)
            begins.append((begin, begin + timing.link_ns(way, index), (way, index)))
    return tuple(key for _, _, key in sorted(begins))
