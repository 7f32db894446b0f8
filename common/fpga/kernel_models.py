"""How long a fused group takes as a kernel: the seam, and the model that stands behind it now.

A further model (a systolic array, an overlay engine, a streaming kernel) is another class with ``estimate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal, Protocol

from common.fpga.boards import PRECISION_BITS, Board
from common.fpga.candidates import Candidate
from common.fpga.figures import Outlook, combine
from common.fusion.border import BorderTensor

Bound = Literal["compute", "memory"]

# The formats that are converted to the kernel's; integers (indices, quantized values) keep their width.
FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One call of a kernel: an estimate with its interval, not a bound."""

    cycles: Outlook
    time_us: Outlook
    bound: Bound


class KernelModel(Protocol):
    """Anything that can say how long a candidate takes on the board."""

    def estimate(self, candidate: Candidate) -> KernelEstimate | None:
        """Estimate one call, or None where the candidate's work or traffic is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class CeilingModel:
    """The board's ceilings, each times the share of it that published kernels attain.

    t = max(2·MACs / (array peak × compute efficiency), border bytes / (memory bandwidth × memory efficiency)): Williams
    et al. 2009 (CACM 52:4) with an efficiency on each roof. Fill, drain, tiling and bank conflicts are in the
    efficiencies and nowhere else. Point-wise work rides on the stream that leaves the array at no time of its own.
    """

    board: Board
    precision: str
    compute_efficiency: Outlook

    def estimate(self, candidate: Candidate) -> KernelEstimate | None:
        """Time of one call, the slower of the array and the memory."""
        traffic = board_bytes(candidate.border, self.precision)
        if candidate.macs is None or traffic is None:
            return None
        board, flops = self.board, 2 * candidate.macs
        peak, bandwidth = board.array_flop_per_s(self.precision), board.memory_bytes_per_s
        compute_us = combine(lambda share: 1e6 * flops / (peak * share), self.compute_efficiency)
        memory_us = combine(lambda share: 1e6 * traffic / (bandwidth * share), board.memory_efficiency)
        time_us = combine(max, compute_us, memory_us)
        cycles = combine(lambda time: time * board.clock_mhz, time_us)
        return KernelEstimate(cycles, time_us, "compute" if compute_us.likely >= memory_us.likely else "memory")


def board_bytes(tensors: Iterable[BorderTensor], precision: str) -> int | None:
    """Bytes of the tensors in the board's memory, floating-point ones in the kernel's format; packed below a byte."""
    total = 0
    for tensor in tensors:
        if tensor.size_bytes is None:
            return None
        bits = FLOAT_BITS.get(tensor.dtype)
        scale = PRECISION_BITS[precision] / bits if bits else 1
        total += ceil(tensor.size_bytes * scale)
    return total
