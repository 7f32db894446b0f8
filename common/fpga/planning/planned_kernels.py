"""The engines that a plan puts on the board, over all of their calls in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.errors import CommandLineError
from common.fpga.kernels.estimate import Bound, Engine, KernelEstimate
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, Call, instance_name
from common.fpga.planning.problem_builder import Placement
from common.fpga.speedup.card_energy import CardEnergy
from common.fpga.speedup.energy import kernel_energy_uj, kernel_power_w
from common.fpga.speedup.totals import Card, CardWork
from common.intervals import ThreePoint, combine

NamedCalls = Mapping[str, Sequence[Call]]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One engine on the board, over all of its calls in one run.

    Attributes:
        name: K1 … by falling host latency of what it computes.
        engine: its model.
        lane: its name in the schedule.
        region: where it stands; None where it spans several.
        options: indices of the options that it computes.
        cycles: of all calls together; None where a speedup was given, which says nothing of cycles.
        time_us: of all calls together, launches apart.
        bound: what the larger part of the likely time is made of; None where a speedup was given.
        flops: as counted on the card.
        moved_bytes: between the chip and the card's memory.
        power_w: of the card while it works.
        energy_uj: of the card while it works.
    """

    name: str
    engine: Engine
    lane: str
    region: str | None
    options: tuple[int, ...]
    cycles: ThreePoint | None
    time_us: ThreePoint
    bound: Bound | None
    flops: int
    moved_bytes: int
    power_w: ThreePoint
    energy_uj: ThreePoint


def name_kernels(problem: Problem, assignment: Assignment) -> dict[str, tuple[Call, ...]]:
    """The calls of each engine instance by kernel name, K1 … by falling host time of what it computes."""
    calls: dict[tuple[int, int], list[Call]] = {}
    for call in assignment.calls:
        calls.setdefault((problem.options[call.option].engine, call.instance), []).append(call)

    def host_us(found: Sequence[Call]) -> float:
        return sum(_host_us(problem, call.option) for call in found)

    ranked = sorted(calls.items(), key=lambda entry: (-host_us(entry[1]), entry[0]))
    return {f"K{rank}": tuple(found) for rank, (_, found) in enumerate(ranked, start=1)}


def _host_us(problem: Problem, option: int) -> float:
    return sum(problem.items[item].host_us for item in problem.options[option].covers)


def with_given_speedups(problem: Problem, named: NamedCalls, given: Mapping[str, float]) -> Problem:
    """The problem with the times of kernels whose speedup over the host is known.

    Raises:
        CommandLineError: one of them is no kernel of the plan.
    """
    if unknown := sorted(set(given) - set(named)):
        known = ", ".join(named) or "none"
        raise CommandLineError("--kernel-speedup", f"{unknown[0]} is no kernel of this plan", f"it has {known}")
    options = list(problem.options)
    for name, speedup in given.items():
        for call in named[name]:
            known_us = ThreePoint.exactly(_host_us(problem, call.option) / speedup)
            options[call.option] = replace(options[call.option], time_us=known_us)
    return replace(problem, options=tuple(options))


def planned_kernels(
    placement: Placement,
    problem: Problem,
    assignment: Assignment,
    named: NamedCalls,
    given: Mapping[str, float],
    precision: str,
    card: Card,
    energy: CardEnergy,
) -> tuple[PlannedKernel, ...]:
    """Every engine of a plan.

    Args:
        placement: what the problem's indices stand for.
        problem: with the times that hold.
        assignment: the plan.
        named: calls by kernel.
        given: kernel speedups that the user knows.
        precision: number format of the kernels.
        card: static power and limit.
        energy: per operation and byte.
    """
    where = {(engine, instance): region for engine, instance, region in assignment.regions}
    return tuple(
        _kernel(placement, problem, name, calls, where, name in given, precision, card, energy)
        for name, calls in named.items()
    )


def _kernel(
    placement: Placement,
    problem: Problem,
    name: str,
    calls: Sequence[Call],
    where: Mapping[tuple[int, int], int | None],
    is_given: bool,
    precision: str,
    card: Card,
    energy: CardEnergy,
) -> PlannedKernel:
    options = tuple(call.option for call in calls)
    instance = problem.options[options[0]].engine, calls[0].instance
    estimates = [placement.offers[option].estimate for option in options]
    region, time_us = where.get(instance), _sum([problem.options[option].time_us for option in options])
    work = CardWork(precision, sum(e.flops for e in estimates), sum(e.moved_bytes for e in estimates))
    return PlannedKernel(
        name=name,
        engine=placement.engines[instance[0]],
        lane=instance_name(problem, *instance),
        region=None if region is None else problem.regions[region].name,
        options=options,
        cycles=None if is_given else _sum([estimate.cycles for estimate in estimates]),
        time_us=time_us,
        bound=None if is_given else _bound(estimates),
        flops=work.flops,
        moved_bytes=work.memory_bytes,
        power_w=kernel_power_w(work, time_us, card, energy),
        energy_uj=kernel_energy_uj(work, time_us, card, energy),
    )


def _sum(estimates: Sequence[ThreePoint]) -> ThreePoint:
    return combine(lambda *values: sum(values), ThreePoint.exactly(0.0), *estimates)


def _bound(estimates: Sequence[KernelEstimate]) -> Bound:
    """What the largest part of the likely time is made of."""
    parts: dict[Bound, float] = {}
    for estimate in estimates:
        parts[estimate.bound] = parts.get(estimate.bound, 0.0) + estimate.time_us.likely
    return max(parts, key=parts.__getitem__)
