"""What every kernel model answers with: an estimate with its interval, not a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from common.fpga.device.resources import Resources
from common.intervals import ThreePoint
from common.workload.tasks import Task

Bound = Literal["compute", "memory", "fixed"]


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One call of a kernel. The optimistic and pessimistic cases come from published efficiencies."""

    cycles: ThreePoint
    time_us: ThreePoint
    bound: Bound
    flops: int
    moved_bytes: int


class Engine(Protocol):
    """A kernel that stands on the board once and serves any number of groups, one call after another."""

    @property
    def name(self) -> str:
        """Unique on a board: ``systolic-32x32x8-int8``."""
        ...

    @property
    def kind(self) -> str:
        """The kernel model behind it: systolic, streaming, overlay, attention, rowwise."""
        ...

    @property
    def clock_mhz(self) -> float:
        """The clock that cycles are of."""
        ...

    @property
    def resources(self) -> Resources:
        """What one instance takes, whatever it computes."""
        ...

    @property
    def spans_regions(self) -> bool:
        """Whether one instance may be divided over super logic regions."""
        ...

    def estimate(self, task: Task) -> KernelEstimate | None:
        """One call, or None where this kernel cannot compute the task."""
        ...


def interval(
    likely_us: float,
    ideal_compute_us: float,
    ideal_memory_us: float,
    efficiency: ThreePoint,
    memory_efficiency: ThreePoint,
    fixed_us: float = 0.0,
) -> ThreePoint:
    """Around a model's own time, what published designs say of the same roofs.

    t_case = max(ideal compute / efficiency_case, ideal memory / memory efficiency_case) + fixed (Williams et al. 2009,
    CACM 52:4, with an efficiency on each roof). The model's time stays the likely one; an end never cuts it off.

    Args:
        likely_us: what the model says.
        ideal_compute_us: work over the array's peak.
        ideal_memory_us: traffic over the theoretical bandwidth of the channels in use.
        efficiency: share of the array's peak that published kernels of this kind attain.
        memory_efficiency: share of the bandwidth that they attain.
        fixed_us: start-up that no efficiency changes.
    """

    def case(compute_share: float, memory_share: float) -> float:
        return max(ideal_compute_us / compute_share, ideal_memory_us / memory_share) + fixed_us

    worst = case(efficiency.pessimistic, memory_efficiency.pessimistic)
    best = case(efficiency.optimistic, memory_efficiency.optimistic)
    return ThreePoint(max(worst, likely_us), likely_us, min(best, likely_us))
