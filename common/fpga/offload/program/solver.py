"""One call of CP-SAT or HiGHS: a plan from hints, or a bound from the linear relaxation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from common.fpga.offload.effort import Spending
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import place
from common.fpga.offload.program.choices import Choices, Mode, nanoseconds
from common.fpga.offload.program.timing import Timing
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler


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
    run = minimized(choices.model, budget, limit)
    plan = None if run.solver is None else _plan(choices, run.solver.value)
    return Answer(plan, run.is_proved, run.bound)


def best_schedule(
    timing: Timing, known: Assignment | None, scheduler: Scheduler, budget: Spending, limit: float
) -> Answer:
    """Choose options, engines and order for the model's objective, starting from a known plan if there is one."""
    if known is not None:
        hint(timing, known, scheduler)
    run = minimized(timing.model, budget, limit)
    plan = None if run.solver is None else _ordered_plan(timing, run.solver.value)
    return Answer(plan, run.is_proved, run.bound)


@dataclass(frozen=True, slots=True)
class SolverRun:
    solver: Any
    is_proved: bool
    bound: int


def minimized(model: Any, budget: Spending, limit: float, linear_rows: int = 2) -> SolverRun:
    """Minimize a model's objective by CP-SAT in at most ``limit`` of the budget."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = budget.seed
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = max(0.0, min(limit, budget.left))
    solver.parameters.linearization_level = linear_rows
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C ends the search but not the program
    solver.parameters.cp_model_probing_level = 0  # it took longer than the search
    status = budget.wait_for(lambda: solver.solve(model), solver.stop_search)
    if status is None:
        return SolverRun(None, is_proved=False, bound=0)
    budget.left -= solver.deterministic_time
    is_proved = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    bound = solver.best_objective_bound
    whole = round(bound) if abs(bound) < float("inf") else 0
    return SolverRun(solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None, is_proved, whole)


Value = Callable[[Any], float]  # of a variable in a solution


def _chosen(choices: Choices, value: Value) -> list[Mode]:
    return [mode for mode in choices.modes if round(value(mode.chosen))]


def _plan(choices: Choices, value: Value) -> Assignment:
    modes = _chosen(choices, value)
    calls = tuple(KernelCall(mode.option, mode.instance[1]) for mode in modes)
    return Assignment(calls, place(choices.problem, sorted({mode.instance for mode in modes})) or ())


def _ordered_plan(timing: Timing, value: Value) -> Assignment:
    """Return the plan of a solution, its calls and transfers by start, and by finish where they start together."""
    begins: list[tuple[float, float, JobKey]] = []
    for mode in _chosen(timing.choices, value):
        end = value(timing.done[timing.problem.options[mode.option].covers[-1]])
        begins.append((end - mode.duration_ns, end, ("call", mode.option)))
    for key, start in timing.start.items():
        if round(value(timing.choices.travels[key])):
            begin = value(start)
            begins.append((begin, begin + timing.link_ns(*key), key))
    return replace(_plan(timing.choices, value), order=tuple(key for _, _, key in sorted(begins)))


def hint(timing: Timing, assignment: Assignment, scheduler: Scheduler) -> None:
    """Hint the solver to a plan; the times of ``scheduler`` must be whole nanoseconds, as in the model."""
    known = _Known(timing.choices, assignment, scheduler)
    timing.model.clear_hints()  # type: ignore[no-untyped-call]
    for variable, value in [*known.of_choices(), *known.of_timing(timing)]:
        timing.model.add_hint(variable, value)


class _Known:
    def __init__(self, choices: Choices, assignment: Assignment, scheduler: Scheduler) -> None:
        self.choices, self.problem = choices, choices.problem
        options = self.problem.options
        self.instance = {call.option: (options[call.option].engine, call.instance) for call in assignment.calls}
        self.call_of = {item: call.option for call in assignment.calls for item in options[call.option].covers}
        self.scheduler = scheduler
        self.spans = scheduler.spans(assignment)

    def of_choices(self) -> Iterator[tuple[Any, int]]:
        choices = self.choices
        for item, literal in enumerate(choices.on_host):
            if choices.modes_of[item] and not self.problem.items[item].is_on_card:
                yield literal, item not in self.call_of
        for mode in choices.modes:
            is_launched = self.scheduler.pays_launch(mode.option, self.call_of)
            yield mode.chosen, self.instance.get(mode.option) == mode.instance and mode.is_launched == is_launched
        standing = set(self.instance.values())
        for instance, used in choices.used.items():
            yield used, instance in standing
        floorplan = set(place(self.problem, sorted(standing)) or ())
        for where, here in choices.region.items():
            yield here, where in floorplan
        for key, travels in choices.travels.items():
            yield travels, key in self.spans

    def of_timing(self, timing: Timing) -> Iterator[tuple[Any, int]]:
        clock = last = 0
        for item, done in enumerate(timing.done):
            end = self._end(item)
            clock, last = clock if item in self.call_of else end, max(last, end)
            yield done, end
            if item in timing.clock:
                yield timing.clock[item], clock
        for key, start in timing.start.items():
            begin, end = self._transfer(key)
            last = max(last, end)
            yield start, begin
        for (way, index, item), crosses in timing.crosses.items():
            travels, stays = (way, index) in self.spans, item not in self.call_of
            yield crosses, travels and stays == (way == "d2h")
        yield timing.finish, last

    def _end(self, item: int) -> int:
        key: JobKey = ("call", self.call_of[item]) if item in self.call_of else ("host", item)
        return nanoseconds(self.spans[key][1])

    def _transfer(self, key: JobKey) -> tuple[int, int]:
        """Return start and finish; a transfer that does not happen starts when it could and takes no time."""
        if key in self.spans:
            begin, end = self.spans[key]
            return nanoseconds(begin), nanoseconds(end)
        producer = self.problem.flows[key[1]].producer
        made = 0 if producer is None else self._end(producer)
        return made, made


LinearRow = tuple[dict[int, float], float, float]  # coefficients by variable, lower and upper bound
TIME_GRAIN = 1000.0  # time enters in microseconds, which keeps the matrix well scaled
UNBOUNDED = 1 << 60
TOLERANCE = 1e-6  # relative, of HiGHS's answer
NODE_EFFORT = 1e-4  # deterministic seconds that a node of HiGHS's search counts for, after its root
ROOT_EFFORT = 0.05  # likewise, the root
INFEASIBLE = 2  # status of scipy.optimize.milp


def lower_bound(model: Any, objective: Any, budget: Spending) -> int:
    """Return a lower bound of the objective over all solutions of the model; 0 if HiGHS finds none in time."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    rows = _rows(model)
    below, above = np.isfinite(rows.high), np.isfinite(rows.low)
    both = vstack([rows.matrix[below], -rows.matrix[above]], format="csr")
    limits = np.concatenate([rows.high[below], -rows.low[above]])
    cost = rows.cost(objective)
    relaxed = budget.wait_for(lambda: linprog(cost, A_ub=both, b_ub=limits, bounds=rows.ends, method="highs"))
    is_solved = relaxed is not None and relaxed.status == 0
    return _floor_ns(relaxed.fun) if is_solved else 0


def best_assignment(timing: Timing, budget: Spending, nodes: int) -> Answer:
    """Choose options and engines for the rows of the program with whole choices but real times, by HiGHS in few nodes.

    Nothing there keeps calls of one engine or transfers apart, so its finish bounds that of every plan. Its calls are a
    plan, in the order of its times.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = _rows(timing.model)
    limits = LinearConstraint(rows.matrix, rows.low, rows.high)
    bounds, whole_ones = Bounds(*rows.ends.T), (rows.grain == 1).astype(int)
    options = {"node_limit": nodes, "mip_rel_gap": TOLERANCE}
    cost = rows.cost(timing.finish)
    found = budget.wait_for(
        lambda: milp(cost, constraints=limits, bounds=bounds, integrality=whole_ones, options=options)
    )
    if found is None:
        return Answer(None, is_proved=False, bound=0)
    budget.left -= ROOT_EFFORT + NODE_EFFORT * (found.mip_node_count or 0)
    bound = found.mip_dual_bound
    whole = _floor_ns(bound) if bound is not None and math.isfinite(bound) else 0
    if found.x is None:
        return Answer(None, is_proved=found.status == INFEASIBLE, bound=whole)

    def value(variable: Any) -> float:
        return float(found.x[variable.index] * rows.grain[variable.index])

    return Answer(_ordered_plan(timing, value), is_proved=found.status == 0, bound=whole)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The linear rows of a model: ``low <= matrix x <= high``, with the ends of each variable.

    Times are in units of :data:`TIME_GRAIN`; the grain of a variable that is no time is 1.
    """

    matrix: Any
    low: Any
    high: Any
    ends: Any
    grain: Any

    def cost(self, objective: Any) -> Any:
        import numpy as np

        cost = np.zeros(len(self.grain))
        cost[objective.index] = 1.0
        return cost


def _rows(model: Any) -> _Rows:
    """Return the linear rows of a model, each divided by its largest coefficient."""
    import numpy as np
    from scipy.sparse import csr_matrix

    proto = model.proto
    ends = np.array([(variable.domain[0], variable.domain[len(variable.domain) - 1]) for variable in proto.variables])
    grain = np.where(ends[:, 1] > 1, TIME_GRAIN, 1.0)
    rows = list(_linear_rows(proto))
    columns = [column for coefficients, _, _ in rows for column in coefficients]
    values = np.array([value for coefficients, _, _ in rows for value in coefficients.values()]) * grain[columns]
    begins = np.cumsum([0, *(len(coefficients) for coefficients, _, _ in rows)])
    largest = np.maximum.reduceat(np.abs(values), begins[:-1])
    largest[largest == 0] = 1.0
    values = values / np.repeat(largest, np.diff(begins))
    low, high = (np.array([row[end] for row in rows]) / largest for end in (1, 2))
    matrix = csr_matrix((values, columns, begins), shape=(len(rows), len(grain)))
    return _Rows(matrix, low, high, ends / grain[:, None], grain)


def _floor_ns(bound: float) -> int:
    return math.floor(bound * TIME_GRAIN * (1 - TOLERANCE))


def _linear_rows(proto: Any) -> Iterator[LinearRow]:
    """Yield the constraints that are linear: unconditional sums, implications between literals, and exactly-one."""
    for constraint in proto.constraints:
        conditions = list(constraint.enforcement_literal)
        if constraint.has_exactly_one():
            yield _row(((literal, 1) for literal in constraint.exactly_one.literals), 1, 1)
        elif constraint.has_bool_and() and len(conditions) == 1:
            for literal in constraint.bool_and.literals:
                yield _row([(literal, 1), (conditions[0], -1)], 0, math.inf)
        elif constraint.has_linear() and not conditions and len(constraint.linear.vars):
            linear = constraint.linear
            low, high = linear.domain[0], linear.domain[len(linear.domain) - 1]
            terms = zip(linear.vars, linear.coeffs, strict=True)
            yield _row(terms, low if low > -UNBOUNDED else -math.inf, high if high < UNBOUNDED else math.inf)


def _row(terms: Iterable[tuple[int, float]], low: float, high: float) -> LinearRow:
    coefficients: dict[int, float] = {}
    for reference, factor in terms:
        if reference >= 0:
            coefficients[reference] = coefficients.get(reference, 0.0) + factor
            continue
        variable = -reference - 1  # a negated literal: 1 - variable
        low, high = low - factor, high - factor
        coefficients[variable] = coefficients.get(variable, 0.0) - factor
    return coefficients, low, high
