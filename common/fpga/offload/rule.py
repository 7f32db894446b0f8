"""A second yardstick, the rule of thumb: what is large, regular, and intense or fusable goes to the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.fpga.offload.floorplan import Instance, place
from common.fpga.offload.greedy import possible_options
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, Call, Scheduler


@dataclass(frozen=True, slots=True)
class GroupClass:
    """Groups of one kind, which a designer would give one kernel: all convolutions, all attentions.

    Attributes:
        label: what reasons call it.
        groups: the items of each group.
        latency_share: of the run on the host, all groups together; None where unknown.
        energy_share: of its energy; None where unknown.
        is_regular: a dense contraction whose work is known beforehand.
        intensity_flop_per_byte: FLOPs over the bytes that cross the borders of the groups; None where unknown.
        fused_share: the part of the unfused traffic that stays within the groups; None where unknown.
    """

    label: str
    groups: tuple[tuple[int, ...], ...]
    latency_share: float | None
    energy_share: float | None
    is_regular: bool
    intensity_flop_per_byte: float | None
    fused_share: float | None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The numbers behind large, intense and fusable."""

    min_share: float
    min_intensity_flop_per_byte: float
    min_fused_share: float


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What the rule takes, and its reason for each class by label."""

    assignment: Assignment
    reasons: Mapping[str, str]


def by_rule(problem: Problem, classes: Sequence[GroupClass], thresholds: Thresholds) -> RulePlan:
    """Go through the classes in their order; each that passes takes the fastest engine that still fits, once.

    The rule looks at no transfer, no launch in sum and no order, which is what the program is compared with it for.
    """
    filling = _Filling(problem)
    reasons = {found.label: obstacle(found, thresholds) or filling.take(found) for found in classes}
    instances = sorted(filling.standing)
    return RulePlan(Assignment(tuple(filling.calls), place(problem, instances) or ()), reasons)


def obstacle(found: GroupClass, limits: Thresholds) -> str:
    """Why the rule leaves a class on the host, or an empty word."""
    largest = max((share for share in (found.latency_share, found.energy_share) if share is not None), default=0.0)
    if not largest > limits.min_share:
        return f"{largest:.1%} of latency or energy, not above {limits.min_share:.0%}"
    if not found.is_regular:
        return "not regular"
    is_intense = (found.intensity_flop_per_byte or 0.0) >= limits.min_intensity_flop_per_byte
    is_fusable = (found.fused_share or 0.0) >= limits.min_fused_share
    return "" if is_intense or is_fusable else "neither intense nor fusable"


class _Filling:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.possible = possible_options(problem, Scheduler(problem))
        self.calls: list[Call] = []
        self.standing: set[Instance] = set()
        self.taken: set[int] = set()
        self.free_bytes = problem.memory_capacity_bytes

    def take(self, found: GroupClass) -> str:
        """Give the groups of a class to one engine, and say which."""
        groups = [group for group in found.groups if self.taken.isdisjoint(group)]
        offers = sorted(self._offers(groups))
        if not offers:
            return "no engine that computes all its groups fits beside those already chosen"
        _, engine, options = offers[0]
        self.calls += [Call(option) for option in options]
        self.standing.add((engine, 0))
        self.taken.update(item for group in groups for item in group)
        self.free_bytes -= sum(self.problem.options[option].weight_bytes for option in options)
        return f"taken by {self.problem.engines[engine].name}"

    def _offers(self, groups: Sequence[tuple[int, ...]]) -> Iterator[tuple[float, int, list[int]]]:
        """Engines that compute all groups and fit: time, engine, options."""
        for engine in range(len(self.problem.engines)):
            own = {
                self.problem.options[index].covers: index
                for index in reversed(self.possible)
                if self.problem.options[index].engine == engine
            }
            options = [own[group] for group in groups if group in own]
            chosen = [self.problem.options[index] for index in options]
            fits_memory = sum(option.weight_bytes for option in chosen) <= self.free_bytes
            is_complete = bool(groups) and len(options) == len(groups)
            if is_complete and fits_memory and place(self.problem, sorted({*self.standing, (engine, 0)})) is not None:
                yield sum(option.time_us.likely + option.launch_us.likely for option in chosen), engine, options
