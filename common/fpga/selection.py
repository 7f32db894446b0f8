"""Which kernel classes go on the board: the seam, and the rule of large, regular, intense or fusable behind it now.

A further selection (a program that minimises the finish time, say) is another class with ``judge``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.errors import PipelineError
from common.fpga.candidates import KernelClass
from common.fpga.kernel_models import board_bytes


@dataclass(frozen=True, slots=True)
class HostTotals:
    """One run on the host, the gap between nodes included."""

    latency_us: float
    energy_uj: float | None
    static_power_w: float | None

    def __post_init__(self) -> None:
        """Refuse a run that took no time: no share could be told."""
        if not self.latency_us > 0:
            raise PipelineError("ops_profile.csv", "no node has a latency", "run 01_profile_onnx.py again")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of a kernel class, and the reason in a sentence."""

    is_large: bool
    is_regular: bool
    is_intense: bool
    is_fusable: bool
    is_chosen: bool
    reason: str


class Selection(Protocol):
    """Anything that can choose among kernel classes."""

    def judge(self, classes: Sequence[KernelClass], host: HostTotals) -> list[Verdict]:
        """One verdict per class, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The numbers behind large, intense and fusable."""

    min_share: float
    min_intensity_flop_per_byte: float
    min_fused_share: float


@dataclass(frozen=True, slots=True)
class ThresholdSelection:
    """Large and regular, and intense or fusable, as long as the weights fit the board's memory.

    Large: a share of latency *or* energy. Regular: a dense contraction whose work is known beforehand. Intense:
    FLOPs per border byte. Fusable: a share of the unfused traffic that stays on the chip.
    """

    thresholds: Thresholds
    precision: str
    memory_capacity_bytes: int

    def judge(self, classes: Sequence[KernelClass], host: HostTotals) -> list[Verdict]:
        """Go through the classes in their order; the first ones take the memory."""
        verdicts, free_bytes = [], self.memory_capacity_bytes
        for kernel_class in classes:
            weights = weight_bytes(kernel_class, self.precision)
            verdict = self._judge_one(kernel_class, host, weights, free_bytes)
            free_bytes -= (weights or 0) if verdict.is_chosen else 0
            verdicts.append(verdict)
        return verdicts

    def _judge_one(self, kernel_class: KernelClass, host: HostTotals, weights: int | None, free_bytes: int) -> Verdict:
        limits = self.thresholds
        shares = (
            share(kernel_class.host_latency_us, host.latency_us),
            share(kernel_class.host_energy_uj, host.energy_uj),
        )
        largest = max((value for value in shares if value is not None), default=0.0)
        is_known = None not in (kernel_class.macs, kernel_class.bytes)
        is_large = largest >= limits.min_share
        is_regular = kernel_class.kind != "none" and is_known
        intensity = share(kernel_class.flops, kernel_class.bytes)
        is_intense = intensity is not None and intensity >= limits.min_intensity_flop_per_byte
        fused = kernel_class.fused_share
        is_fusable = kernel_class.kind != "none" and fused is not None and fused >= limits.min_fused_share
        label = kernel_class.label
        fits = weights is not None and weights <= free_bytes
        obstacles = {
            f"{label}: not a dense contraction": kernel_class.kind == "none",
            f"{label}: work or traffic unknown; bind its dimensions with --dim in 01 and 02": not is_known,
            f"{label}: {100 * largest:.1f} % of latency or energy, below {100 * limits.min_share:g} %": not is_large,
            f"{label}: neither intense nor fusable": not (is_intense or is_fusable),
            f"{label}: weights of {weights} bytes do not fit {free_bytes} bytes left on the board": not fits,
        }
        reason = next((text for text, stands in obstacles.items() if stands), "")
        chosen = f"{label}: {100 * largest:.1f} % of latency or energy, regular, " + _merits(is_intense, is_fusable)
        return Verdict(is_large, is_regular, is_intense, is_fusable, not reason, reason or chosen)


def _merits(is_intense: bool, is_fusable: bool) -> str:
    return " and ".join(word for word, holds in (("intense", is_intense), ("fusable", is_fusable)) if holds)


def weight_bytes(kernel_class: KernelClass, precision: str) -> int | None:
    """What its groups keep in the board's memory from run to run; a weight that two groups read is kept once."""
    weights = {
        tensor.tensor: tensor
        for member in kernel_class.candidates
        for tensor in member.border
        if tensor.role == "weight"
    }
    return board_bytes(weights.values(), precision)


def share(part: float | None, whole: float | None) -> float | None:
    """Part over whole, unknown where either is, or where there is no whole."""
    return None if part is None or whole is None or whole <= 0 else part / whole
