"""Schedule a fixed assignment: when each item of the host, each call and each transfer starts and finishes.

The host executes its items one after the other in their order. Calls of one engine never overlap, nor do transfers in
one direction; the two directions work in parallel. A tensor crosses the link at most once each way, and only where it
must. A conversion delays its own tensor only: each tensor in flight has its own converter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from common.fpga.offload.jobs import Job, JobKey, JobKind, in_order, into_pauses, list_schedule
from common.fpga.offload.problem import Case, Floorplan, Problem, Wiring, place
from common.intervals import ThreePoint

Place = tuple[int, float]  # the job that computes an item, and when the item is done, after the job's finish


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A chosen option, and the instance of its engine that computes it."""

    option: int
    instance: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The calls on the card; all other items stay on the host."""

    calls: tuple[KernelCall, ...] = ()  # chosen options, no item covered twice
    regions: Floorplan = ()
    # Calls and transfers by start; each resource keeps this order. None: first come, first served.
    order: tuple[JobKey, ...] | None = None


def fitting(problem: Problem, calls: Sequence[KernelCall]) -> Assignment | None:
    """Return the plan of some calls; None if the board does not hold their engines, or their weights."""
    options = [problem.options[call.option] for call in calls]
    if sum(option.weight_bytes for option in options) > problem.memory_capacity_bytes:
        return None
    instances = {(option.engine, call.instance) for option, call in zip(options, calls, strict=True)}
    regions = place(problem, sorted(instances))
    return None if regions is None else Assignment(tuple(calls), regions)


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One bar of the schedule. ``launch_us`` is the first part of a call, before the kernel works."""

    resource: str
    kind: JobKind
    label: str
    start_us: float
    finish_us: float
    launch_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over one run. ``offloaded_host_us`` is the host time of the items that moved to the card."""

    host_us: float
    offloaded_host_us: float
    kernel_us: float
    launch_us: float
    h2d_us: float
    d2h_us: float
    convert_us: float
    call_count: int
    launch_count: int
    engine_us: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Schedule:
    finish_us: float
    bars: tuple[TimelineBar, ...]
    totals: Totals

    @property
    def is_serial(self) -> bool:
        busy_us = sum(bar.finish_us - bar.start_us for bar in self.bars)
        return busy_us <= self.finish_us * (1 + 1e-9)


def evaluate(problem: Problem, assignment: Assignment, case: Case = "likely") -> Schedule:
    """Schedule an assignment in one case; ValueError: two calls compute one item, or calls wait for each other."""
    return Scheduler(problem, case).run(assignment)


class Scheduler:
    """Scheduler for many assignments of one problem in one case."""

    def __init__(self, problem: Problem, case: Case = "likely") -> None:
        self.problem = problem
        self.wiring = Wiring(problem)
        self.case = case

    def value(self, estimate: ThreePoint) -> float:
        return float(getattr(estimate, self.case))

    def finish_us(self, assignment: Assignment) -> float:
        """Return the finish of a run; infinite if its calls wait for each other."""
        jobs = self.jobs(assignment)
        try:
            return _finish(jobs, starts_us(jobs, assignment))
        except ValueError:
            return math.inf

    def ordered(self, assignment: Assignment) -> tuple[float, Assignment]:
        """Return the same calls in the better of two orders, and their finish; infinite if they wait for each other.

        Either the job that can start first does, or the urgent ones go first and the others fill their pauses.
        """
        jobs = self.jobs(assignment)
        try:
            first_us, starts = _finish(jobs, list_schedule(jobs)), into_pauses(jobs)
        except ValueError:
            return math.inf, assignment
        if first_us <= _finish(jobs, starts):
            return first_us, replace(assignment, order=None)
        begins = sorted((start, job.key) for job, start in zip(jobs, starts, strict=True))
        urgent = replace(assignment, order=tuple(key for _, key in begins if key[0] != "host"))
        return self.finish_us(urgent), urgent

    def spans(self, assignment: Assignment) -> dict[JobKey, tuple[float, float]]:
        """Return start and finish of every item of the host, call and transfer."""
        jobs = self.jobs(assignment)
        return {
            key: (start, end)
            for job, job_start in zip(jobs, starts_us(jobs, assignment), strict=True)
            for key, _, start, end in self._parts(job, job_start)
        }

    def run(self, assignment: Assignment) -> Schedule:
        jobs = self.jobs(assignment)
        starts = starts_us(jobs, assignment)
        bars = [
            TimelineBar(job.resource, job.key[0], label, start, end, job.launch_us)
            for job, job_start in zip(jobs, starts, strict=True)
            for _, label, start, end in self._parts(job, job_start)
        ]
        bars += self._conversions(jobs, starts)
        bars.sort(key=lambda bar: (bar.start_us, bar.finish_us, bar.resource, bar.label))
        covered = {item for call in assignment.calls for item in self.problem.options[call.option].covers}
        offloaded_us = sum(self.problem.items[item].host_us for item in sorted(covered))
        return Schedule(_finish(jobs, starts), tuple(bars), _totals(bars, offloaded_us))

    def _parts(self, job: Job, start: float) -> Iterator[tuple[JobKey, str, float, float]]:
        """Yield key, label, start and finish of each item of the host's job, or of the job itself."""
        if not job.items:
            yield job.key, job.label, start, start + job.duration_us
        for item in job.items:
            end = start + self.problem.items[item].host_us
            yield ("host", item), self.problem.items[item].name, start, end
            start = end

    def jobs(self, assignment: Assignment) -> list[Job]:
        """Return all jobs with their dependencies, in a fixed order that breaks ties.

        Items that the host computes without a wait between them are one job, so a long network with few calls is
        scheduled quickly.
        """
        call_of = self._call_of(assignment)
        touched = {flow for item in call_of for flow in (*self.wiring.read_by[item], *self.wiring.written_by[item])}
        jobs, at = self._host_jobs(call_of, touched)
        for call in sorted(assignment.calls, key=lambda call: self.problem.options[call.option].covers):
            at.update(dict.fromkeys(self.problem.options[call.option].covers, (len(jobs), 0.0)))
            jobs.append(self._call_job(call, call_of))
        for index in sorted(touched):
            self._connect(index, jobs, at, call_of)
        return jobs

    def _host_jobs(self, call_of: Mapping[int, int], touched: Iterable[int]) -> tuple[list[Job], dict[int, Place]]:
        """Return the jobs of the host, each up to where it waits for the card, and for each item its place."""
        items, flows = self.problem.items, self.problem.flows
        waits = {item for flow in touched if flows[flow].producer in call_of for item in flows[flow].consumers}
        stretches: list[list[int]] = []
        for item in range(len(items)):
            if item not in call_of:
                if item in waits or not stretches:
                    stretches.append([])
                stretches[-1].append(item)
        jobs: list[Job] = []
        at: dict[int, Place] = {}
        for stretch in stretches:
            done = list(accumulate(items[item].host_us for item in stretch))
            at.update((item, (len(jobs), end - done[-1])) for item, end in zip(stretch, done, strict=True))
            jobs.append(Job(("host", stretch[0]), "host", "", done[-1], items=tuple(stretch)))
        return jobs, at

    def _call_of(self, assignment: Assignment) -> dict[int, int]:
        call_of: dict[int, int] = {}
        for call in assignment.calls:
            for item in self.problem.options[call.option].covers:
                if item in call_of:
                    raise ValueError(f"two calls compute {self.problem.items[item].name}")
                call_of[item] = call.option
        return call_of

    def _call_job(self, call: KernelCall, call_of: Mapping[int, int]) -> Job:
        option = self.problem.options[call.option]
        launch_us = self.value(option.launch_us) if self.pays_launch(call.option, call_of) else 0.0
        duration_us = self.value(option.time_us) + launch_us
        name = instance_name(self.problem, option.engine, call.instance)
        return Job(("call", call.option), name, option.name, duration_us, launch_us)

    def pays_launch(self, index: int, call_of: Mapping[int, int]) -> bool:
        """Return whether the host must launch this call, given the items on the card."""
        option, options = self.problem.options[index], self.problem.options
        rule = self.problem.engines[option.engine].launch_per
        if rule == "call" or option.reads_host:
            return True
        sources = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        if not sources or any(source is None or source not in call_of for source in sources):
            return True
        writers = {options[call_of[source]].engine for source in sources if source is not None}
        return rule == "engine" and writers != {option.engine}

    def _connect(self, index: int, jobs: list[Job], at: Mapping[int, Place], call_of: Mapping[int, int]) -> None:
        """Make the readers of a tensor wait for it, and add its transfers; the host keeps its own order."""
        flow = self.problem.flows[index]
        producer = None if flow.producer is None else at[flow.producer]
        is_made_here = flow.producer is None or flow.producer not in call_of
        readers = {at[item][0]: item in call_of for item in flow.consumers}
        inside = [reader for reader, is_call in readers.items() if is_call and (reader, 0.0) != producer]
        outside = [reader for reader, is_call in readers.items() if not is_call]
        if producer is not None and not is_made_here:
            for reader in inside:
                jobs[reader].after.append(producer)
        other = inside if is_made_here else outside
        if other or (flow.is_output and not is_made_here):
            transfer, lag_us = self._transfer(index, producer, is_made_here)
            jobs.append(transfer)
            for reader in other:
                jobs[reader].after.append((len(jobs) - 1, lag_us))

    def _transfer(self, index: int, producer: Place | None, is_to_card: bool) -> tuple[Job, float]:
        flow = self.problem.flows[index]
        if is_to_card:
            after = [] if producer is None else [producer]
            lag_us = self.value(flow.h2d_convert_us)
            return Job(("h2d", index), "h2d", flow.tensor, self.value(flow.h2d_us), after=after, tail_us=lag_us), lag_us
        after = [] if producer is None else [(producer[0], self.value(flow.d2h_convert_us))]
        return Job(("d2h", index), "d2h", flow.tensor, self.value(flow.d2h_us), after=after), 0.0

    def _conversions(self, jobs: Sequence[Job], starts: Sequence[float]) -> list[TimelineBar]:
        bars = []
        for job, start in zip(jobs, starts, strict=True):
            if job.key[0] == "h2d" and job.tail_us:
                begin = start + job.duration_us
                bars.append(TimelineBar("convert-in", "convert", job.label, begin, begin + job.tail_us))
            if job.key[0] == "d2h" and job.after[0][1]:
                producer, lag_us = job.after[0]
                begin = starts[producer] + jobs[producer].duration_us
                bars.append(TimelineBar("convert-out", "convert", job.label, begin, begin + lag_us))
        return bars


def instance_name(problem: Problem, engine: int, instance: int) -> str:
    """Return the engine's name, numbered from the second instance on."""
    return problem.engines[engine].name + (f"#{instance + 1}" if instance else "")


def starts_us(jobs: Sequence[Job], assignment: Assignment) -> list[float]:
    return list_schedule(jobs) if assignment.order is None else in_order(jobs, assignment.order)


def _finish(jobs: Sequence[Job], starts: Sequence[float]) -> float:
    ends = (start + job.duration_us + job.tail_us for job, start in zip(jobs, starts, strict=True))
    return max(ends, default=0.0)


def _totals(bars: Sequence[TimelineBar], offloaded_us: float) -> Totals:
    def busy(kind: JobKind) -> float:
        return sum(bar.finish_us - bar.start_us for bar in bars if bar.kind == kind)

    calls = [bar for bar in bars if bar.kind == "call"]
    engine_us: dict[str, float] = {}
    for bar in calls:
        engine_us[bar.resource] = engine_us.get(bar.resource, 0.0) + bar.finish_us - bar.start_us
    launch_us = sum(bar.launch_us for bar in calls)
    launches = sum(bar.launch_us > 0 for bar in calls)
    sums = (busy("h2d"), busy("d2h"), busy("convert"), len(calls), launches, engine_us)
    return Totals(busy("host"), offloaded_us, busy("call") - launch_us, launch_us, *sums)
