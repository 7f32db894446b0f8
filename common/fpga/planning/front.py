"""The front of a model on a board: plans for the least latency, the highest throughput and the least energy, by batch.

A batch of B inferences is one run of the plan: the host takes B times its measured time, every tensor is B times as
large, and each call computes B inferences as its kernel model says, with one launch and one read of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import le
from typing import Literal

from common.fpga.coefficients import Models
from common.fpga.offload.effort import Effort
from common.fpga.offload.problem import CASES, Problem
from common.fpga.offload.schedule import Assignment, Schedule, evaluate
from common.fpga.offload.search.pipelined import StreamEnergy, best_stream, interval_us, stream_cost
from common.fpga.offload.search.plan_search import Status, optimize
from common.fpga.planning.plan import Plan, formulation_of, in_case
from common.fpga.planning.problem_builder import Formulation
from common.fpga.planning.request import Request
from common.fpga.speedup.amdahl import Objective
from common.fpga.speedup.energy import energy_rows, kernel_dynamic_uj
from common.fpga.speedup.totals import CardWork, HostRun, added, case_totals
from common.graphs.sums import ratio, total
from common.intervals import ThreePoint, combine
from common.table_rows import OffloadFrontRow
from common.workload.workload import Workload

STREAM_SHARE = 0.1  # of the effort, for each search that has no order to find
Operation = Literal["one by one", "streaming"]  # the next batch starts at the last one's end, or as soon as it can
LIKELY = CASES.index("likely")


def front_rows(plan: Plan, models: Models, most_batch: int) -> list[OffloadFrontRow]:
    """Return a row for each plan of the front, with the batch doubled up to the largest.

    ``plan`` is the one with the earliest finish of a single inference.
    """
    workload, request = plan.workload, plan.request
    single = _Batch(1, plan.formulation, plan.problem, workload, request, models)
    rows = list(_plans(single, plan.solution.assignment, plan.solution.status))
    for count in batch_sizes(most_batch):
        formulation = formulation_of(workload, request, models, count)
        flows = tuple(flow.timed(partial(_times, count)) for flow in formulation.problem.flows)
        problem = replace(formulation.problem, flows=flows)
        batch = _Batch(count, formulation, problem, workload, request, models)
        solution = optimize(batch.likely, request.effort, request.watch)
        rows += _plans(batch, solution.assignment, solution.status)
    return [{**row, "is_on_front": not _is_beaten(row, rows), "is_judged": plan.is_judged} for row in rows]


def _times(count: int, estimate: ThreePoint) -> ThreePoint:
    return combine(lambda value: count * value, estimate)


def batch_sizes(most: int) -> list[int]:
    """Return the batches above 1: doubled up to the largest."""
    return sorted({min(2**power, most) for power in range(1, most.bit_length() + 1)} - {1}) if most > 1 else []


@dataclass(frozen=True)
class _Batch:
    """Inferences that are planned together; ``problem`` has the times of all of them on the link and on the card."""

    count: int
    formulation: Formulation
    problem: Problem
    workload: Workload
    request: Request
    models: Models

    @cached_property
    def likely(self) -> Problem:
        return in_case(self.problem, self.workload, "likely", self.count)

    def work(self, options: Sequence[int], transferred: Sequence[str] = ()) -> CardWork:
        offers = [self.formulation.offers[option] for option in options]
        flops = added((self.formulation.engines[each.engine].precision, each.estimate.flops) for each in offers)
        link_bytes = self.count * sum(self.formulation.host_bytes[tensor] for tensor in transferred)
        return CardWork(flops, sum(each.estimate.moved_bytes for each in offers), link_bytes)

    def host(self, options: Sequence[int], moved_us: ThreePoint) -> HostRun:
        offers, host = self.formulation.offers, self.workload.host
        groups = [group for option in options for group in self.formulation.candidates[offers[option].candidate].covers]
        moved_uj = total(self.workload.costs[group].energy_uj for group in groups)
        energy = None if host.energy is None else _times(self.count, host.energy)
        latency, moved = _times(self.count, host.latency), None if moved_uj is None else self.count * moved_uj
        return HostRun(latency, energy, host.static_power_w, moved_us, moved)

    @property
    def stream_energy(self) -> StreamEnergy | None:
        """Return what each choice costs in energy; None where the host's energy is unknown."""
        workload, card, coefficients = self.workload, self.request.board, self.models.energy
        items_uj, static_w = _item_energies(workload), workload.host.static_power_w
        if items_uj is None or static_w is None:
            return None
        link_uj = coefficients.link(card.link.kind).likely / 1e6
        return StreamEnergy(
            [self.count * uj for uj in items_uj],
            [kernel_dynamic_uj(self.work([o]), card, coefficients).likely for o in range(len(self.problem.options))],
            [self.count * self.formulation.host_bytes[flow.tensor] * link_uj for flow in self.problem.flows],
            static_w,
            card.static_w.likely,
        )


def _item_energies(workload: Workload) -> list[float] | None:
    """Return the energy of each step beyond the host's static power; None where it is unknown."""
    static_w, inserted = workload.host.static_power_w, {node.name: node.energy_uj for node in workload.executed}
    energies = [
        inserted.get(step.name, 0.0) if step.group is None else workload.costs[step.group].energy_uj
        for step in workload.steps
    ]
    known = [energy for energy in energies if energy is not None]
    if static_w is None or len(known) < len(energies):
        return None
    return [max(0.0, uj - static_w * step.host_us) for uj, step in zip(known, workload.steps, strict=True)]


def _plans(batch: _Batch, soonest: Assignment, status: Status) -> Iterator[OffloadFrontRow]:
    """Yield the plan with the earliest finish in both operations, and the best streams."""
    effort = Effort(STREAM_SHARE * batch.request.effort.deterministic_limit, batch.request.effort.seed)
    yield _front_row(batch, soonest, status, "latency", "one by one")
    yield _front_row(batch, soonest, status, "latency", "streaming")
    searches: dict[Objective, StreamEnergy | None] = {"throughput": None}
    if batch.stream_energy is not None:
        searches["energy"] = batch.stream_energy
    watch = batch.request.watch
    streams = {name: best_stream(batch.likely, soonest, effort, energy, watch) for name, energy in searches.items()}
    for objective, energy in searches.items():
        # A search that ended early may know less than the other one found.
        known = [streams[objective].assignment, *(stream.assignment for stream in streams.values())]
        best = min(known, key=partial(stream_cost, batch.likely, energy))
        stream_status: Status = "optimal" if streams[objective].is_proved else "feasible"
        yield _front_row(batch, best, stream_status, objective, "streaming")


def _front_row(
    batch: _Batch, assignment: Assignment, status: Status, objective: Objective, operation: Operation
) -> OffloadFrontRow:
    """Return the row of a plan that is operated in one way; whether it is on the front and judged is not known yet.

    At the given rate so many inferences are under way at once, at the least (Little's law).
    """
    cases = [in_case(batch.problem, batch.workload, case, batch.count) for case in CASES]
    schedules = [evaluate(problem, assignment, case) for problem, case in zip(cases, CASES, strict=True)]
    latency_us = [schedule.finish_us for schedule in schedules]
    every_us = [interval_us(schedule) for schedule in schedules] if operation == "streaming" else latency_us
    energy_uj = _energy_uj(batch, assignment, schedules, every_us)
    rate_per_s = [batch.count * 1e6 / us for us in every_us]
    totals = schedules[LIKELY].totals
    return {
        "objective": objective,
        "operation": operation,
        "inference_count": batch.count,
        "in_flight_count": batch.count * math.ceil(latency_us[LIKELY] / every_us[LIKELY] - 1e-9),
        "plan_status": status,
        "batch_latency_pessimistic_us": latency_us[0],
        "batch_latency_likely_us": latency_us[1],
        "batch_latency_optimistic_us": latency_us[2],
        "pessimistic_inferences_per_s": rate_per_s[0],
        "likely_inferences_per_s": rate_per_s[1],
        "optimistic_inferences_per_s": rate_per_s[2],
        "inference_energy_pessimistic_uj": energy_uj[0],
        "inference_energy_likely_uj": energy_uj[1],
        "inference_energy_optimistic_uj": energy_uj[2],
        "engines": list(totals.engine_us),
        "batch_call_count": totals.call_count,
        "is_on_front": False,  # it and the next one are of all rows together
        "is_judged": False,
    }


def _energy_uj(
    batch: _Batch, assignment: Assignment, schedules: Sequence[Schedule], every_us: Sequence[float]
) -> list[float | None]:
    """Return the energy of one inference in each case: static power is drawn from one batch to the next."""
    options = [call.option for call in assignment.calls]
    transferred = [bar.label for bar in schedules[LIKELY].bars if bar.kind in ("h2d", "d2h")]
    host = batch.host(options, ThreePoint(*(schedule.totals.offloaded_host_us for schedule in schedules)))
    pairs = zip(schedules, every_us, strict=True)
    totals = [replace(case_totals(schedule), finish_us=us) for schedule, us in pairs]
    card, work = batch.request.board, batch.work(options, transferred)
    energy = energy_rows(host, totals, work, card, batch.models.energy)
    row = next(row for row in energy if row["term"] == "new_total")
    cases = row["pessimistic"], row["likely"], row["optimistic"]
    return [ratio(value, batch.count) for value in cases]


def _costs(row: OffloadFrontRow) -> tuple[float, float, float]:
    """Return what a plan is compared by in the likely case; less is better."""
    return row["batch_latency_likely_us"], -row["likely_inferences_per_s"], row["inference_energy_likely_uj"] or 0.0


def _is_beaten(row: OffloadFrontRow, rows: Sequence[OffloadFrontRow]) -> bool:
    """Return whether another plan is as good in everything and better in something."""
    costs = _costs(row)
    return any(theirs != costs and all(map(le, theirs, costs)) for theirs in map(_costs, rows))
