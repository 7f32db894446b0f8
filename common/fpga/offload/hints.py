"""Hints for the solver from a known plan: a value for every variable, so that the search starts from a solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common.fpga.offload.choices import Choices, nanoseconds
from common.fpga.offload.floorplan import place
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.schedule import Assignment, Scheduler
from common.fpga.offload.timing import Timing


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
