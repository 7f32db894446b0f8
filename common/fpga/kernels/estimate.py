"""The protocol of kernel models: an engine, and the three-point estimate that it gives for a task."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from typing import Literal, Protocol

from common.files.configuration import Section
from common.fpga.device.resources import Resources
from common.intervals import ThreePoint, combine
from common.workload.tasks import Task

Bound = Literal["compute", "memory", "fixed"]


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """Estimate of one kernel call. Published efficiencies give its pessimistic and optimistic case."""

    cycles: ThreePoint
    time_us: ThreePoint
    bound: Bound
    flops: int
    moved_bytes: int  # to and from the card's memory
    kept_bytes: int = 0  # to and from memories on the chip that keep weights or activations between calls


class Engine(Protocol):
    """A kernel instance on the board. It serves any number of groups, one call after another."""

    @property
    def name(self) -> str:
        """Name that is unique on a board: ``systolic-32x32x8-int8``."""

    @property
    def kind(self) -> str:
        """Kernel model: systolic, streaming, overlay, attention or rowwise."""

    @property
    def precision(self) -> str:
        """Number format of the operands and the results."""

    @property
    def clock_mhz(self) -> float: ...

    @property
    def clock_cases_mhz(self) -> ThreePoint:
        """Clocks at which such designs close; one clock in all cases where it is given."""

    @property
    def resources(self) -> Resources:
        """Resources of one instance; they do not depend on the task."""

    @property
    def spans_regions(self) -> bool:
        """Whether one instance may span several super logic regions."""

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call; None where this kernel cannot compute the task."""


@dataclass(frozen=True, slots=True)
class TimeScatter:
    """How measured times scatter around what a kernel's equations give: ln(measured / equations)."""

    # Factors of the equations' time; the likely one is the median of the families of designs, and 90 % of the designs
    # of a further family are between the others
    band: ThreePoint
    family_sd: float  # standard deviation between families, for a further one; scale of Student's t
    design_sd: float  # standard deviation between the designs of one family, and between what they compute
    family_count: int  # published families; Student's t has one degree of freedom less


def read_scatter(section: Section) -> TimeScatter:
    return TimeScatter(
        section.constant("time_factor").as_cost(),
        section.constant("family_sd").likely,
        section.constant("design_sd").likely,
        section.count("family_count"),
    )


def scattered(likely_us: float, band: ThreePoint, floor_us: float = 0.0) -> ThreePoint:
    """Return a model's time with its interval: the factors by which published measurements differ from a model.

    No such kernel can beat ``floor_us``: all operators busy, or every port in every cycle.
    """
    return combine(lambda factor: max(likely_us * factor, floor_us), band)


def widened(band: ThreePoint, clock_factors: ThreePoint) -> ThreePoint:
    """Return factors of a model's time for a design whose clock is not known either.

    The two are independent, so the logarithms of their reaches from the likely case add up as squares.
    """

    def reach(factor: float, clock: float) -> float:
        return hypot(log(factor / band.likely), log(clock))

    slow = reach(band.pessimistic, clock_factors.pessimistic)
    fast = reach(band.optimistic, clock_factors.optimistic)
    return ThreePoint(band.likely * exp(slow), band.likely, band.likely * exp(-fast))


def interval(
    likely_us: float,
    ideal_compute_us: float,  # work divided by the array's peak
    ideal_memory_us: float,  # traffic divided by the theoretical bandwidth of the used channels
    efficiency: ThreePoint,  # share of the array's peak that published kernels of this kind attain
    memory_efficiency: ThreePoint,  # share of the bandwidth that they attain
    fixed_us: float = 0.0,  # start-up time, which no efficiency changes
) -> ThreePoint:
    """Return a three-point estimate: the model's time, and the interval around it that published efficiencies imply.

    t_case = max(ideal compute / efficiency_case, ideal memory / memory efficiency_case) + fixed (Williams et al. 2009,
    CACM 52:4, with an efficiency on each roof). Published kernels differ by the factor sqrt(t_worst / t_best) from the
    middle of their times. The model's time stays the likely one. The slow end is no nearer to it than that factor, so a
    time beyond what was published does not end the interval. The fast end is the best that was published.
    """

    def case(compute_share: float, memory_share: float) -> float:
        return max(ideal_compute_us / compute_share, ideal_memory_us / memory_share) + fixed_us

    worst = case(efficiency.pessimistic, memory_efficiency.pessimistic)
    best = case(efficiency.optimistic, memory_efficiency.optimistic)
    reach = sqrt(worst / best)
    return ThreePoint(max(worst, likely_us * reach), likely_us, min(best, likely_us))
