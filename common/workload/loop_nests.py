"""Contractions as bounded loop nests, the form in which accelerators map them.

One point of a nest multiplies one input element by one weight and adds the product to one output element:

    out[n, g, k, p, q] += in[n, g, c, p·stride_p + r·dilation_r, q·stride_q + s·dilation_s] · weight[g, k, c, r, s]

K and C are the channels of one group. A matrix product (m, k) by (k, n) is P = m, C = k, K = n with a window of one
element. Independent products are groups, unless they share their second operand. Names of the loops: Parashar et al.,
"Timeloop" (ISPASS 2019), section IV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from common.workload.layers import Convolution, Layer, Matmul

LOOPS = ("N", "G", "K", "C", "P", "Q", "R", "S")
# The loops that move each operand to other elements; under all others the operand stays where it is.
RELEVANT_LOOPS = {"input": frozenset("NGCPQRS"), "weight": frozenset("GKCRS"), "output": frozenset("NGKPQ")}


def window_extent(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Return the input positions along one axis from the first to the last that consecutive outputs read."""
    return (outputs - 1) * stride + (taps - 1) * dilation + 1


@dataclass(frozen=True, slots=True)
class LoopNest:
    """One contraction. Nests of equal extents are equal, so repeated layers of a network are one nest."""

    n: int = 1  # images
    k: int = 1  # output and input channels of one group
    c: int = 1
    p: int = 1  # output rows and columns
    q: int = 1
    r: int = 1  # rows and columns of the window
    s: int = 1
    groups: int = 1  # independent contractions over channels of their own
    stride_p: int = 1  # input rows between two output rows, and input columns between two output columns
    stride_q: int = 1
    dilation_r: int = 1  # input rows between two rows of the window, and columns between two of its columns
    dilation_s: int = 1
    pad_p: int = 0  # rows of zeros above the input, and columns left of it, that the window reads; they are not stored
    pad_q: int = 0
    height: int = 0  # stored input rows and columns; 0 means all that the window reads
    width: int = 0
    input_bits: int = 32  # of one stored element
    weight_bits: int = 32
    output_bits: int = 32
    # Whether the second operand is the same in all runs. In a product of two activations it is not.
    has_weight: bool = True

    @property
    def bounds(self) -> dict[str, int]:
        extents = (self.n, self.groups, self.k, self.c, self.p, self.q, self.r, self.s)
        return dict(zip(LOOPS, extents, strict=True))

    @property
    def distances(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Stride and dilation of each axis of the window, in input rows and in input columns."""
        return (self.stride_p, self.dilation_r), (self.stride_q, self.dilation_s)

    @property
    def macs(self) -> int:
        return prod(self.bounds.values())

    @property
    def stored_height(self) -> int:
        return self.height or window_extent(self.p, self.r, self.stride_p, self.dilation_r)

    @property
    def stored_width(self) -> int:
        return self.width or window_extent(self.q, self.s, self.stride_q, self.dilation_s)

    @property
    def elements(self) -> dict[str, int]:
        """Stored elements of each operand; an input row or column that no window reads is among them."""
        channels = self.groups * self.n
        return {
            "input": channels * self.c * self.stored_height * self.stored_width,
            "weight": self.groups * self.k * self.c * self.r * self.s,
            "output": channels * self.k * self.p * self.q,
        }

    @property
    def operand_bits(self) -> dict[str, int]:
        return {"input": self.input_bits, "weight": self.weight_bits, "output": self.output_bits}

    @property
    def operand_bytes(self) -> dict[str, int]:
        bits = self.operand_bits
        return {operand: ceil(count * bits[operand] / 8) for operand, count in self.elements.items()}


def nest_of(layer: Layer, bits: Mapping[str, int], pads: tuple[int, int] = (0, 0)) -> LoopNest | None:
    """Return the loop nest of a layer; None for a layer that is none.

    A window over three axes is folded to two in :class:`Convolution` and a transposed one scatters its results: both
    have the right number of multiply-accumulates there, but no nest of this form has their window.
    ``bits`` are of one stored element of ``input``, ``weight`` and ``output``; ``pads`` are rows of zeros above a
    convolution's input, and columns left of it.
    """
    if isinstance(layer, Matmul):
        nest = LoopNest(k=layer.n, c=layer.k, p=layer.m, groups=layer.batch, has_weight=layer.has_weight)
    elif isinstance(layer, Convolution) and layer.axes <= 2 and not layer.is_transposed:
        nest = LoopNest(
            n=layer.batch,
            k=layer.out_channels // layer.groups,
            c=layer.in_channels // layer.groups,
            p=layer.out_height,
            q=layer.out_width,
            r=layer.kernel_height,
            s=layer.kernel_width,
            groups=layer.groups,
            stride_p=layer.stride_height,
            stride_q=layer.stride_width,
            dilation_r=layer.dilation_height,
            dilation_s=layer.dilation_width,
            pad_p=pads[0],
            pad_q=pads[1],
            height=layer.in_height,
            width=layer.in_width,
        )
    else:
        return None
    return replace(nest, input_bits=bits["input"], weight_bits=bits["weight"], output_bits=bits["output"])
