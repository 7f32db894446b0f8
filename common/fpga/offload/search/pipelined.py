"""Find the plan of a stream of inferences: the shortest interval between two of them, or the least energy of each.

Successive inferences start every interval, the busy time of the busiest resource: the host, a direction of the link, or
an engine. No order is part of it, so the program has no times but that one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from common.fpga.offload.baselines import possible_options
from common.fpga.offload.effort import Effort, Spending, Watch
from common.fpga.offload.problem import Problem
from common.fpga.offload.program.choices import Choices, arrival_ns, nanoseconds
from common.fpga.offload.program.solver import best_choices
from common.fpga.offload.schedule import Assignment, Schedule, Scheduler

MOST_OPTIONS = 3000  # a larger program takes too much memory: the known plan stays


@dataclass(frozen=True, slots=True)
class StreamEnergy:
    """Energy of one inference in a stream: what each choice takes, and the power that is drawn all the time."""

    item_uj: Sequence[float]  # of each item on the host, beyond the host's static power
    option_uj: Sequence[float]  # of each option on the card, beyond the card's static power
    flow_uj: Sequence[float]  # of each tensor that crosses the link, either way
    host_w: float
    card_w: float  # static power of the card, which a plan without a call does not need


@dataclass(frozen=True, slots=True)
class Stream:
    """A plan for a stream of inferences; ``is_proved`` says that no plan has a lower objective."""

    assignment: Assignment
    is_proved: bool


def interval_us(schedule: Schedule) -> float:
    """Return the least time between two inferences of a plan: the busy time of its busiest resource."""
    sums = schedule.totals
    return max(sums.host_us, sums.h2d_us, sums.d2h_us, *sums.engine_us.values())


def stream_energy_uj(problem: Problem, assignment: Assignment, energy: StreamEnergy) -> float:
    """Return the energy of one inference of a plan in a stream, in the likely case."""
    scheduler, taken = Scheduler(problem), [call.option for call in assignment.calls]
    moved = {item for option in taken for item in problem.options[option].covers}
    stays = sum(uj for item, uj in enumerate(energy.item_uj) if item not in moved)
    link = sum(energy.flow_uj[index] for kind, index in scheduler.spans(assignment) if kind in ("h2d", "d2h"))
    watts = energy.host_w + (energy.card_w if taken else 0.0)
    calls = sum(energy.option_uj[option] for option in taken)
    return stays + calls + link + watts * interval_us(scheduler.run(assignment))


def stream_cost(problem: Problem, energy: StreamEnergy | None, assignment: Assignment) -> float:
    """Return what a stream is to have least of: the energy of an inference or, without energies, the interval."""
    if energy is None:
        return interval_us(Scheduler(problem).run(assignment))
    return stream_energy_uj(problem, assignment, energy)


def best_stream(
    problem: Problem, known: Assignment, effort: Effort, energy: StreamEnergy | None = None, watch: Watch | None = None
) -> Stream:
    """Return the plan of the shortest likely interval or, given energies, of the least energy; no worse than known."""
    scheduler = Scheduler(problem)
    options = possible_options(problem, scheduler)
    if len(options) > MOST_OPTIONS:
        return Stream(known, is_proved=False)
    choices = Choices(problem, options)
    program = _Program(choices)
    choices.model.minimize(program.interval if energy is None else program.picojoules(energy))
    spending = Spending.of(effort, len(problem.items), watch)
    spending.watch.begin()
    answer = best_choices(choices, spending, spending.left)
    finite = [plan for plan in (answer.plan, Assignment()) if plan and math.isfinite(scheduler.finish_us(plan))]
    best = min([known, *finite], key=partial(stream_cost, problem, energy))
    return Stream(best, answer.is_proved and answer.plan in finite)


class _Program:
    """The interval as a variable above every busy time, and the energy as a sum over the choices."""

    def __init__(self, choices: Choices) -> None:
        self.choices, self.problem = choices, choices.problem
        self.horizon_ns = sum(nanoseconds(item.host_us) for item in self.problem.items) + 1
        self.horizon_ns += sum(mode.duration_ns for mode in choices.modes)
        self.horizon_ns += sum(arrival_ns(self.problem.flows[index], way) for way, index in choices.travels)
        self.interval = self._time()
        for busy in self._busy():
            choices.model.add(self.interval >= busy)

    def _time(self) -> Any:
        return self.choices.model.new_int_var(0, self.horizon_ns, "")

    def _busy(self) -> list[Any]:
        choices, flows = self.choices, self.problem.flows
        items = zip(self.problem.items, choices.on_host, strict=True)
        busy: list[Any] = [sum(nanoseconds(item.host_us) * here for item, here in items)]
        for way in ("h2d", "d2h"):
            times_ns = [nanoseconds((flow.h2d_us if way == "h2d" else flow.d2h_us).likely) for flow in flows]
            travels = ((index, crosses) for (to, index), crosses in choices.travels.items() if to == way)
            busy.append(sum(times_ns[index] * crosses for index, crosses in travels))
        for instance in choices.used:
            modes = [mode for mode in choices.modes if mode.instance == instance]
            busy.append(sum(mode.duration_ns * mode.chosen for mode in modes))
        return busy

    def picojoules(self, energy: StreamEnergy) -> Any:
        """Return the energy of one inference: mW times ns are pJ."""
        choices = self.choices
        on_card = self._time()  # the interval, if any engine is used
        for used in choices.used.values():
            choices.model.add(on_card >= self.interval).only_enforce_if(used)
        stays = sum(_pj(uj) * here for uj, here in zip(energy.item_uj, choices.on_host, strict=True))
        calls = sum(_pj(energy.option_uj[mode.option]) * mode.chosen for mode in choices.modes)
        link = sum(_pj(energy.flow_uj[index]) * crosses for (_, index), crosses in choices.travels.items())
        static = round(1e3 * energy.host_w) * self.interval + round(1e3 * energy.card_w) * on_card
        return stays + calls + link + static


def _pj(value_uj: float) -> int:
    return round(1e6 * value_uj)
