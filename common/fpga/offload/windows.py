"""Improve a plan by large neighbourhood search: decide a window of items again and keep the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.fpga.offload.choices import Choices, nanoseconds
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, Scheduler
from common.fpga.offload.solver import Effort, best_schedule
from common.fpga.offload.stretches import Stretch
from common.fpga.offload.timing import Timing

WINDOW = 24  # items that are decided again together; neighbouring windows share half of them
SHARE = 0.2  # of the whole effort, for one window


def window_by_window(
    problem: Problem,
    options: list[int],
    plan: Assignment,
    scheduler: Scheduler,
    effort: Effort,
    stretches: Sequence[Stretch] = (),
) -> Assignment:
    """Pass once over the items in order and return a plan that is no worse."""
    small = replace(effort, deterministic_limit=SHARE * effort.deterministic_limit)
    finish_ns = nanoseconds(scheduler.run(plan).finish_us)
    for begin in range(0, len(problem.items), WINDOW // 2):
        timing = _around(problem, options, plan, set(range(begin, begin + WINDOW)), finish_ns)
        for stretch in stretches:
            timing.bound_stretch(stretch)
        changed = best_schedule(timing, plan, scheduler, small).plan
        if changed is not None and (earlier_ns := nanoseconds(scheduler.run(changed).finish_us)) < finish_ns:
            plan, finish_ns = changed, earlier_ns
    return plan


def _around(problem: Problem, options: list[int], plan: Assignment, window: set[int], horizon_ns: int) -> Timing:
    """Return the program in which the calls outside the window are those of the plan; their times stay free."""
    kept = {call.option: call.instance for call in plan.calls if window.isdisjoint(problem.options[call.option].covers)}
    taken = {item for option in kept for item in problem.options[option].covers}
    free = [
        index
        for index in options
        if not window.isdisjoint(covers := problem.options[index].covers) and taken.isdisjoint(covers)
    ]
    choices = Choices(problem, sorted([*kept, *free]))
    for option, instance in kept.items():
        modes = (mode for mode in choices.modes if (mode.option, mode.instance[1]) == (option, instance))
        choices.model.add_exactly_one(mode.chosen for mode in modes)
    timing = Timing(choices, horizon_ns)
    timing.model.minimize(timing.finish)
    return timing
