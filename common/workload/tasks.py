"""What one call of a kernel computes: fused layers, and the bytes that cross their border in the card's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from common.workload.layers import Convolution, Layer, Matmul


@dataclass(frozen=True, slots=True)
class Task:
    """One fused group at the number format of the kernel.

    Attributes:
        name: unique among tasks.
        kind: conv, gemm, attention, rowwise, chain, pool or pointwise.
        layers: in graph order; what lies between two of them stays on the chip.
        precision: number format: fp64, fp32, bf16, int16, int8 or int4.
        weight_bytes: read in every call, from the card's memory.
        read_bytes: activations that enter.
        written_bytes: activations that leave.
        on_chip_bytes: what it must hold on the chip besides the engine's own buffers: for a chain, the rows between its
            layers and, if it goes through them more than once, their weights.
    """

    name: str
    kind: str
    layers: tuple[Layer, ...]
    precision: str
    weight_bytes: int
    read_bytes: int
    written_bytes: int
    on_chip_bytes: int = 0

    @property
    def nameless(self) -> Task:
        """The same work under no name: a network asks for much of it many times."""
        return replace(self, name="")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of its contractions."""
        return sum(layer.macs for layer in self.layers if isinstance(layer, Matmul | Convolution))

    @property
    def border_bytes(self) -> int:
        """All that must cross the border once."""
        return self.weight_bytes + self.read_bytes + self.written_bytes
