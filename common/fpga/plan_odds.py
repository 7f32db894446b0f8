"""The distribution of a plan's gain: its own schedule with drawn times, and its own energy with drawn powers.

The plan is the one that was chosen for the likely times; the draws do not search again. A cause that several times
share is drawn once for all of them: the length of the host's run, the clock of the card, the efficiency of each family
of kernels, the design of each engine, the rate of the link.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import log

import numpy as np

from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine, TimeScatter
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.fpga.offload.drawn_schedule import DrawnSchedule, DrawnTimes, JobTimes, drawn_schedule
from common.fpga.offload.problem import CASES
from common.fpga.offload.schedule import Scheduler, starts_us
from common.fpga.planning.plan import Plan, card_work, host_run, in_case
from common.fpga.speedup.draws import Draws, Values
from common.fpga.speedup.energy import CardEnergy, dynamic_uj
from common.fpga.speedup.odds import Odds, odds_of
from common.intervals import END_Z, ThreePoint, combine

HOST, SHARE = "length of the host's run", "share of the host's run that moves"
CLOCK, LAUNCH, LINK, CONVERSION = "clock of the card", "time of a launch", "rate of the link", "conversion of numbers"
POWER, STATIC, LINK_ENERGY = "power of the host", "static power of the card", "energy of a byte over the link"
DYNAMIC = {
    "card_compute": "energy of arithmetic",
    "card_memory": "energy of the card's memory",
    "card_on_chip": "energy of the card's buffers",
}
MANY_FAMILIES = 100  # from which Student's t is as good as normal


def plan_odds(plan: Plan, energy: CardEnergy) -> dict[str, Odds]:
    """Return the distribution of the gain by objective; an objective whose likely gain is unknown has none."""
    causes = {option: _causes(kernel.engine) for option, kernel in plan.kernel_of_option.items()}
    of_kernels = sorted({term for shares in causes.values() for term in shares})
    of_time = (HOST, SHARE, *of_kernels, CLOCK, LAUNCH, LINK, CONVERSION)
    of_energy = (*of_time, POWER, STATIC, *DYNAMIC.values(), LINK_ENERGY)
    draws = Draws(of_energy)
    alone_us, of_host = draws.of(HOST, plan.workload.host.latency), _host_times(plan, draws)
    schedule, moved_us = _drawn_schedule(plan, draws, of_host, causes), of_host(host_run(plan).offloaded_us)
    busiest_us = np.max(np.broadcast_arrays(*schedule.busy_us.values()), axis=0)
    found = {
        "latency": odds_of(alone_us, schedule.finish_us, draws, of_time),
        "throughput": odds_of(alone_us, busiest_us, draws, of_time),
    }
    energies = _energies(plan, energy, draws, schedule, alone_us, moved_us)
    return found if energies is None else {**found, "energy": odds_of(*energies, draws, of_energy)}


def _causes(engine: Engine) -> dict[str, float]:
    """Return the causes of uncertainty of an engine's times besides its clock, with their shares of the variance."""
    scatter = time_scatter(engine)
    both = scatter.family_sd**2 + scatter.design_sd**2
    family = scatter.family_sd**2 / both if both else 1.0
    causes = {f"efficiency of {engine.kind} kernels": family, f"design of {engine.name}": 1 - family}
    return {term: share for term, share in causes.items() if share}


def time_scatter(engine: Engine) -> TimeScatter:
    """Return how measured times of an engine scatter around the likely time, besides the clock.

    With x = ln(measured / likely time) at the same clock, x = family + design. *family* is common to all kernels of one
    kind in a plan: they come from the same hands. *design* differs from engine to engine. Both are independent, and
    :mod:`common.fpga.speedup.draws` divides the variance of an interval between them in proportion to their squares.
    """
    match engine:
        case Team():
            return time_scatter(engine.member)
        case SystolicArray():
            return engine.scatter
        case OverlayEngine():
            return engine.scatter
        case AttentionEngine() | StreamingGemv():
            share = engine.efficiency
        case RowwiseEngine():
            share = engine.efficiency.reduction
        case _:
            raise TypeError(f"{engine.name} has no published shares")
    # The lowest and the highest published share of a peak imply it, one kernel a family.
    band = ThreePoint(share.optimistic / share.pessimistic, 1.0, 1.0)
    return TimeScatter(band, log(band.pessimistic) / (2 * END_Z), 0.0, MANY_FAMILIES)


def _host_times(plan: Plan, draws: Draws) -> DrawnTimes:
    """Return a function that draws a part of the host's run: its share of the run, times the length of the run."""
    latency = plan.workload.host.latency
    length = draws.of(HOST, latency)

    def times(part_us: ThreePoint) -> Values:
        return draws.between(SHARE, combine(lambda part, whole: part / whole, part_us, latency)) * length

    return times


def _drawn_schedule(
    plan: Plan, draws: Draws, of_host: DrawnTimes, causes: Mapping[int, Mapping[str, float]]
) -> DrawnSchedule:
    assignment = plan.solution.assignment
    cases = [Scheduler(in_case(plan.problem, plan.workload, case), case).jobs(assignment) for case in CASES]

    def kernel(option: int, time_us: ThreePoint) -> Values:
        clock_mhz = plan.kernel_of_option[option].engine.clock_cases_mhz
        return draws.kernel_us(causes[option], CLOCK, time_us, clock_mhz)

    launch, link, conversion = (partial(draws.of, term) for term in (LAUNCH, LINK, CONVERSION))
    times = JobTimes(of_host, launch, link, conversion, kernel)
    return drawn_schedule(cases, starts_us(cases[CASES.index("likely")], assignment), times)


def _energies(
    plan: Plan, energy: CardEnergy, draws: Draws, schedule: DrawnSchedule, alone_us: Values, moved_us: Values
) -> tuple[Values, Values] | None:
    """Return the energy of an inference on the host alone and with the card, in µJ; None where the host's is unknown.

    The sums are those of :func:`common.fpga.speedup.energy.energy_rows`, here over arrays.
    """
    run, card, work = host_run(plan), plan.request.board, card_work(plan)
    if run.energy_uj is None or run.static_power_w is None or run.offloaded_uj is None:
        return None
    watts = combine(lambda uj, us: uj / us, run.energy_uj, run.latency_us)
    power_w = draws.of(POWER, watts)
    moved_w = run.offloaded_uj / run.offloaded_us.likely / watts.likely if run.offloaded_us.likely else 0.0
    alone_uj = power_w * alone_us
    rest_uj = alone_uj - np.minimum(moved_w * power_w * moved_us, alone_uj)
    if not plan.kernels:
        return alone_uj, rest_uj
    waits_us = np.maximum(schedule.finish_us - (alone_us - moved_us), 0.0)
    idle_uj = run.static_power_w * power_w / watts.likely * waits_us
    static_uj = draws.of(STATIC, card.static_w) * schedule.finish_us
    dynamic = sum(draws.of(DYNAMIC[name], cost) for name, cost in dynamic_uj(work, card, energy).items())
    link_pj = draws.of(LINK_ENERGY, energy.link(card.link.kind))
    return alone_uj, rest_uj + idle_uj + static_uj + dynamic + work.link_bytes * link_pj / 1e6
