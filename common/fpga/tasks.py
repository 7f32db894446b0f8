"""What one call of a kernel computes: fused layers, and the bytes that cross their border in the card's memory."""

from __future__ import annotations

from dataclasses import dataclass

from common.fpga.layers import Convolution, Layer, Matmul


@dataclass(frozen=True, slots=True)
class Task:
    """One fused group at the number format of the kernel.

    Attributes:
        name: unique among tasks.
        kind: conv, gemm, attention, rowwise, chain, pool or none.
        layers: in graph order; what lies between two of them stays on the chip.
        precision: number format: fp64, fp32, bf16, int16, int8 or int4.
        weight_bytes: read in every call, from the card's memory.
        read_bytes: activations that enter.
        written_bytes: activations that leave.
    """

    name: str
    kind: str
    layers: tuple[Layer, ...]
    precision: str
    weight_bytes: int
    read_bytes: int
    written_bytes: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of its contractions."""
        return sum(layer.macs for layer in self.layers if isinstance(layer, Matmul | Convolution))

    @property
    def border_bytes(self) -> int:
        """All that must cross the border once."""
        return self.weight_bytes + self.read_bytes + self.written_bytes
