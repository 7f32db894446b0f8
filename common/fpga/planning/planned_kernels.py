"""The engines of a plan on the board, each with the sum of its calls in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.fpga.device.board import Board
from common.fpga.kernels.estimate import Bound, Engine, KernelEstimate
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, KernelCall, instance_name
from common.fpga.planning.problem_builder import Formulation
from common.fpga.speedup.energy import CardEnergy, kernel_energy_uj, kernel_power_w
from common.fpga.speedup.totals import CardWork
from common.graphs.grouping import grouped
from common.intervals import ThreePoint, summed
from common.messages.errors import UnusableValueError

NamedCalls = Mapping[str, Sequence[KernelCall]]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One engine on the board, with the sum of its calls in one run."""

    name: str  # K1, K2, …; K1 replaces the most host latency
    engine: Engine
    lane: str
    region: str | None  # of the board; None if it spans several
    options: tuple[int, ...]  # indices of the options that it computes
    cycles: ThreePoint | None  # of all calls; None if a speedup was given, from which cycles do not follow
    time_us: ThreePoint  # of all calls, without launches
    bound: Bound | None  # what limits the largest part of the likely time; None if a speedup was given
    flops: int  # as counted on the card
    moved_bytes: int  # between the chip and the card's memory
    power_w: ThreePoint  # of the card while the kernel works
    energy_uj: ThreePoint  # likewise


def name_kernels(problem: Problem, assignment: Assignment) -> dict[str, tuple[KernelCall, ...]]:
    """Return the calls of each engine instance by kernel name: K1, K2, …; K1 replaces the most host time."""
    calls = grouped(((problem.options[call.option].engine, call.instance), call) for call in assignment.calls)

    def host_us(instance_calls: Sequence[KernelCall]) -> float:
        return sum(_host_us(problem, call.option) for call in instance_calls)

    ranked = sorted(calls.items(), key=lambda entry: (-host_us(entry[1]), entry[0]))
    return {f"K{rank}": tuple(instance_calls) for rank, (_, instance_calls) in enumerate(ranked, start=1)}


def _host_us(problem: Problem, option: int) -> float:
    return sum(problem.items[item].host_us for item in problem.options[option].covers)


def with_given_speedups(problem: Problem, named: NamedCalls, given: Mapping[str, float]) -> Problem:
    """Return the problem with the times of given kernel speedups; UnusableValueError: the plan lacks such a kernel."""
    if unknown := sorted(set(given) - set(named)):
        known = ", ".join(named) or "none"
        raise UnusableValueError("kernel_speedup", f"{unknown[0]} is no kernel of this plan", f"its kernels: {known}")
    options = list(problem.options)
    for name, speedup in given.items():
        for call in named[name]:
            known_us = ThreePoint.exactly(_host_us(problem, call.option) / speedup)
            options[call.option] = replace(options[call.option], time_us=known_us)
    return replace(problem, options=tuple(options))


def planned_kernels(
    formulation: Formulation,
    problem: Problem,
    assignment: Assignment,
    named: NamedCalls,
    given: Mapping[str, float],
    card: Board,
    energy: CardEnergy,
) -> tuple[PlannedKernel, ...]:
    """Return every engine of a plan; ``problem`` has the times in force, ``given`` the speedups by kernel name."""
    where = {(engine, instance): region for engine, instance, region in assignment.regions}
    kernels = []
    for name, calls in named.items():
        options = tuple(call.option for call in calls)
        instance = problem.options[options[0]].engine, calls[0].instance
        estimates = [formulation.offers[option].estimate for option in options]
        region, time_us = where.get(instance), summed([problem.options[option].time_us for option in options])
        flops, engine = sum(each.flops for each in estimates), formulation.engines[instance[0]]
        work = CardWork({engine.precision: flops}, sum(each.moved_bytes for each in estimates))
        kernel = PlannedKernel(
            name=name,
            engine=engine,
            lane=instance_name(problem, *instance),
            region=None if region is None else problem.regions[region].name,
            options=options,
            cycles=None if name in given else summed([estimate.cycles for estimate in estimates]),
            time_us=time_us,
            bound=None if name in given else _bound(estimates),
            flops=flops,
            moved_bytes=work.memory_bytes,
            power_w=kernel_power_w(work, time_us, card, energy),
            energy_uj=kernel_energy_uj(work, time_us, card, energy),
        )
        kernels.append(kernel)
    return tuple(kernels)


def _bound(estimates: Sequence[KernelEstimate]) -> Bound:
    """Return what limits the largest part of the likely time."""
    parts: dict[Bound, float] = {}
    for estimate in estimates:
        parts[estimate.bound] = parts.get(estimate.bound, 0.0) + estimate.time_us.likely
    return max(parts, key=parts.__getitem__)
