"""What the gains are computed from: one run on the host, one inference under the plan, and the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.fpga.device.board import Board
from common.intervals import ThreePoint

HOST, TO_CARD, TO_HOST = "host", "h2d", "d2h"
NOT_ENGINES = (HOST, TO_CARD, TO_HOST)  # names of resources; every other one is an engine on the card
BUFFER_ACCESSES = 2  # what comes from the card's memory is written to a buffer once and read from it once


@dataclass(frozen=True, slots=True)
class HostRun:
    """One inference on the host alone, and the part of it that the plan moves.

    Attributes:
        latency_us: all of it, the gap between nodes included.
        energy_uj: all of it; None is unknown.
        static_power_w: what the host draws while it waits; None is unknown.
        offloaded_us: host time that the plan spares.
        offloaded_uj: host energy that the plan spares; None is unknown.
    """

    latency_us: float
    energy_uj: float | None
    static_power_w: float | None
    offloaded_us: float
    offloaded_uj: float | None

    @property
    def rest_us(self) -> float:
        """What stays on the host."""
        return self.latency_us - self.offloaded_us


@dataclass(frozen=True, slots=True)
class CaseTotals:
    """One inference under the plan, in one case: sums over its calls and transfers, and when it ends.

    Attributes:
        kernel_us: kernels alone.
        transfer_us: over the link, both directions.
        conversion_us: between the model's number format and the kernels'.
        launch_us: of all calls.
        finish_us: end of the schedule, in which host, link and engines work at once where data allow.
        busy_us: by resource: ``host``, ``h2d``, ``d2h``, and each engine by its name, its launches included.
        launch_count: launches.
        finish_without_launch_us: end of the same schedule if launches were free; None where nobody computed it.
    """

    kernel_us: float
    transfer_us: float
    conversion_us: float
    launch_us: float
    finish_us: float
    busy_us: Mapping[str, float]
    launch_count: int
    finish_without_launch_us: float | None = None

    def overlap_us(self, host: HostRun) -> float:
        """Time that the plan hides by doing things at once: the sum of all parts less the finish."""
        parts = self.kernel_us + self.transfer_us + self.conversion_us + self.launch_us
        return host.rest_us + parts - self.finish_us

    def without_launch_us(self, host: HostRun) -> float:
        """End of the schedule if launches were free.

        Where nobody computed it, overlap is taken to hide launches before anything else: what remains of them is the
        least that their absence can save.
        """
        if self.finish_without_launch_us is not None:
            return self.finish_without_launch_us
        return self.finish_us - max(self.launch_us - max(self.overlap_us(host), 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """One inference under the plan, in the three cases."""

    pessimistic: CaseTotals
    likely: CaseTotals
    optimistic: CaseTotals

    @property
    def cases(self) -> tuple[CaseTotals, CaseTotals, CaseTotals]:
        """Pessimistic, likely, optimistic."""
        return self.pessimistic, self.likely, self.optimistic


@dataclass(frozen=True, slots=True)
class CardWork:
    """What is counted on the card: of one kernel, or of all that one inference puts there.

    Attributes:
        precision: number format of the kernels.
        flops: two per MAC.
        memory_bytes: between the chip and the card's memory.
        link_bytes: between host and card.
        weight_bytes: put into the card's memory once, before the first inference.
        on_chip_bytes: through buffers on the chip; None takes one write and one read of every byte from memory.
    """

    precision: str
    flops: int
    memory_bytes: int
    link_bytes: int = 0
    weight_bytes: int = 0
    on_chip_bytes: int | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes through buffers on the chip."""
        return BUFFER_ACCESSES * self.memory_bytes if self.on_chip_bytes is None else self.on_chip_bytes


@dataclass(frozen=True, slots=True)
class Card:
    """What energy and one-off costs need to know of a board.

    Attributes:
        static_w: with the shell loaded and no kernel running.
        limit_w: what the card may draw at most.
        memory_kind: as the board names it: ``hbm…`` or ``ddr…``.
        link_kind: ``pcie`` or ``shared_memory``.
        link_bytes_per_s: one direction, as measured.
    """

    static_w: ThreePoint
    limit_w: float
    memory_kind: str
    link_kind: str
    link_bytes_per_s: ThreePoint

    @classmethod
    def of(cls, board: Board) -> Card:
        """The card that a board is."""
        return cls(board.static_w, board.limit_w, board.memory.kind, board.link.kind, board.link.bytes_per_s)
