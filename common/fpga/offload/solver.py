"""One run of CP-SAT with a fixed seed and a deterministic limit, so that equal problems get equal plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common.fpga.offload.choices import Choices, Mode
from common.fpga.offload.floorplan import place
from common.fpga.offload.hints import hint
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler
from common.fpga.offload.timing import Timing


@dataclass(frozen=True, slots=True)
class Effort:
    """Limit of a search in CP-SAT's deterministic seconds, which are equal on every machine, and its seed.

    One deterministic second is 5 to 15 seconds of a core on these programs.
    """

    deterministic_limit: float = 1.0
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a search: a plan, or None if none was found, and a bound for all plans."""

    plan: Assignment | None
    is_proved: bool
    bound: int


def best_choices(choices: Choices, effort: Effort) -> Answer:
    """Choose options and engines for the model's objective, without time."""
    solver, is_found, is_proved = _solve(choices.model, effort)
    plan = _plan(choices.problem, _chosen(choices, solver)) if is_found else None
    return Answer(plan, is_proved, round(solver.best_objective_bound))


def best_schedule(timing: Timing, known: Assignment, scheduler: Scheduler, effort: Effort) -> Answer:
    """Choose options, engines and order for the model's objective, starting from a known plan."""
    hint(timing, known, scheduler)
    solver, is_found, is_proved = _solve(timing.model, effort)
    bound = round(solver.best_objective_bound)
    if not is_found:
        return Answer(None, is_proved=False, bound=bound)
    modes = _chosen(timing.choices, solver)
    plan = _plan(timing.problem, modes)
    ordered = Assignment(plan.calls, plan.regions, _order(timing, modes, solver))
    return Answer(ordered, is_proved, bound)


def _solve(model: Any, effort: Effort) -> tuple[Any, bool, bool]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = effort.seed
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort.deterministic_limit
    solver.parameters.linearization_level = 2
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C ends the search but not the program
    solver.parameters.cp_model_probing_level = 0  # it took longer than the search
    status = solver.solve(model)
    return solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE), status == cp_model.OPTIMAL


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
