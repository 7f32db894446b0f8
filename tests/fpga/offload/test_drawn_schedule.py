"""The finish over many draws: against the scheduler, one draw at a time, on random problems."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from common.fpga.offload.drawn_schedule import JobTimes, drawn_schedule
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import CASES
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, evaluate, starts_us
from common.intervals import ThreePoint
from tests.support.kernels.offload_problems import random_problem, random_towers

FACTORS = {"host": 0.83, "launch": 1.7, "transfer": 1.3, "conversion": 0.6}


def kernel_factor(option):
    return 0.5 + 0.31 * option


def assignments(problem):
    """The calls of each engine alone that no other covers, in the order of their options."""
    calls, covered = [], set()
    for index, option in enumerate(problem.options):
        if covered.isdisjoint(option.covers) and not Scheduler(problem).wiring.waits_for_itself(option.covers):
            trial = Assignment((*calls, KernelCall(index)))
            if Scheduler(problem).finish_us(trial) < float("inf"):
                calls.append(KernelCall(index))
                covered |= set(option.covers)
    return Assignment(tuple(calls))


def stretched(problem):
    """The problem with every time multiplied by the factor of its cause."""

    def by(name, estimate):
        return ThreePoint.exactly(FACTORS[name] * estimate.likely)

    return replace(
        problem,
        items=tuple(replace(item, host_us=FACTORS["host"] * item.host_us) for item in problem.items),
        flows=tuple(
            replace(
                flow,
                h2d_us=by("transfer", flow.h2d_us),
                d2h_us=by("transfer", flow.d2h_us),
                h2d_convert_us=by("conversion", flow.h2d_convert_us),
                d2h_convert_us=by("conversion", flow.d2h_convert_us),
            )
            for flow in problem.flows
        ),
        options=tuple(
            replace(
                option,
                time_us=ThreePoint.exactly(kernel_factor(index) * option.time_us.likely),
                launch_us=by("launch", option.launch_us),
            )
            for index, option in enumerate(problem.options)
        ),
    )


def drawn(problem, assignment, factors):
    """The schedule of two draws: the likely case, and that of the factors."""

    def times(name, estimate):
        return estimate.likely * np.array([1.0, factors[name]])

    def kernel(option, estimate):
        return estimate.likely * np.array([1.0, kernel_factor(option)])

    jobs = Scheduler(problem).jobs(assignment)
    causes = (partial(times, name) for name in ("host", "launch", "transfer", "conversion"))
    return drawn_schedule([jobs] * len(CASES), starts_us(jobs, assignment), JobTimes(*causes, kernel))


def order_of(problem, assignment) -> tuple[JobKey, ...]:
    """Calls and transfers by their start in the likely case."""
    spans = Scheduler(problem).spans(assignment)
    return tuple(sorted((key for key in spans if key[0] != "host"), key=lambda key: spans[key][0]))


@pytest.mark.parametrize("make", [random_problem, random_towers])
def test_each_draw_finishes_when_the_scheduler_says_so(make):
    moved = 0
    for seed in range(40):
        problem = make(seed)
        assignment = assignments(problem)
        moved += bool(assignment.calls)
        found = drawn(problem, assignment, FACTORS)
        ordered = replace(assignment, order=order_of(problem, assignment))
        expected = evaluate(problem, assignment).finish_us, evaluate(stretched(problem), ordered).finish_us
        assert np.broadcast_to(found.finish_us, (2,)) == pytest.approx(expected, rel=1e-12), seed
    assert moved > 30


def test_the_busy_times_are_those_of_the_schedule():
    for seed in range(20):
        problem = random_problem(seed)
        assignment = assignments(problem)
        found = drawn(problem, assignment, FACTORS).busy_us
        totals = evaluate(stretched(problem), assignment).totals
        expected = {"host": totals.host_us, "h2d": totals.h2d_us, "d2h": totals.d2h_us, **totals.engine_us}
        for name, us in expected.items():
            assert np.broadcast_to(found.get(name, 0.0), (2,))[1] == pytest.approx(us), (seed, name)
