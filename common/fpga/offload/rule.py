"""The rule-of-thumb baseline: groups that are large, regular, and intense or fusable go to the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.fpga.offload.floorplan import Instance, place
from common.fpga.offload.greedy import possible_options
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler


@dataclass(frozen=True, slots=True)
class GroupClass:
    """Groups that could share one kernel, such as all 3x3 convolutions. None is unknown.

    Attributes:
        label: name of the class in reasons.
        groups: the items of each group.
        latency_share: share of the host run of all groups together.
        energy_share: share of its energy.
        is_regular: whether it is a dense contraction with known work.
        intensity_flop_per_byte: FLOPs over the bytes that cross the borders of the groups.
        fused_share: share of the unfused traffic that stays within the groups.
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
    """Thresholds for large, intense and fusable."""

    min_share: float
    min_intensity_flop_per_byte: float
    min_fused_share: float


@dataclass(frozen=True, slots=True)
class RulePlan:
    """The plan that the rule gives, and its reason for each class by label."""

    assignment: Assignment
    reasons: Mapping[str, str]


def apply_rule(problem: Problem, classes: Sequence[GroupClass], thresholds: Thresholds) -> RulePlan:
    """Give each class that passes the rule, in order, the fastest engine that still fits.

    The rule ignores transfers, the sum of launches and the schedule. Comparing it with the plan shows what they cost.
    """
    plan = _RuleFill(problem)
    reasons = {members.label: obstacle(members, thresholds) or plan.take(members) for members in classes}
    floorplan = place(problem, sorted(plan.standing)) or ()
    return RulePlan(Assignment(tuple(plan.calls), floorplan), reasons)


def obstacle(members: GroupClass, limits: Thresholds) -> str:
    """Return why the rule leaves a class on the host; an empty string if the class passes."""
    largest = max((share for share in (members.latency_share, members.energy_share) if share is not None), default=0.0)
    if not largest > limits.min_share:
        return f"{largest:.1%} of latency or energy, not above {limits.min_share:.0%}"
    if not members.is_regular:
        return "not regular"
    is_intense = (members.intensity_flop_per_byte or 0.0) >= limits.min_intensity_flop_per_byte
    is_fusable = (members.fused_share or 0.0) >= limits.min_fused_share
    return "" if is_intense or is_fusable else "neither intense nor fusable"


class _RuleFill:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.possible = possible_options(problem, Scheduler(problem))
        self.calls: list[KernelCall] = []
        self.standing: set[Instance] = set()
        self.taken: set[int] = set()
        self.free_bytes = problem.memory_capacity_bytes

    def take(self, members: GroupClass) -> str:
        """Give the groups of a class to one engine; return which, or why there is none."""
        groups = [group for group in members.groups if self.taken.isdisjoint(group)]
        offers = sorted(self._offers(groups))
        if not offers:
            return "no engine that computes all its groups fits beside those already chosen"
        _, engine, options = offers[0]
        self.calls += [KernelCall(option) for option in options]
        self.standing.add((engine, 0))
        self.taken.update(item for group in groups for item in group)
        self.free_bytes -= sum(self.problem.options[option].weight_bytes for option in options)
        return f"taken by {self.problem.engines[engine].name}"

    def _offers(self, groups: Sequence[tuple[int, ...]]) -> Iterator[tuple[float, int, list[int]]]:
        """Yield time, engine and options for each engine that computes all groups and fits."""
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
