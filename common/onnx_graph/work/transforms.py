"""Transforms of signals and matrices, in FLOPs: Fourier transforms, determinants, inverses.

A Fourier transform of n complex values costs 5·n·⌈log₂ n⌉ FLOPs (the radix-2 count by which FFTW's authors rate
transforms of any length: Frigo and Johnson, "The design and implementation of FFTW3", Proc. IEEE 93(2), 2005), of n
real values half of that. Transforms are not contractions and have no MACs.
"""

from __future__ import annotations

from math import prod

from common.graphs.graph import Count
from common.graphs.operators import MICROSOFT
from common.onnx_graph.work.registry import Cost, Operation, UnknownShapeError, formula


def fourier_flops(points: Count, *, real: bool) -> int:
    """Return the FLOPs of one transform; with an unbound length they are unknown."""
    if not isinstance(points, int):
        raise UnknownShapeError
    flops = 5 * points * max(points - 1, 0).bit_length()
    return flops // 2 if real else flops


@formula("DFT")
def count_fourier_transform(operation: Operation) -> Cost:
    """Count a transform for each position along the other axes.

    The operands are data (batch, …, 1 or 2), an optional length and, from opset 20 on, an optional axis. A formula does
    not see the values of the last two. The default axis is the last but one, and in opset 17 the first after the batch;
    at rank 3 both are the same.
    """
    data = operation.shape(0, least=2)
    output = operation.output_shape(rank=len(data))
    if operation.has(2) or ("axis" not in operation.node.attributes and len(data) != 3):
        raise UnknownShapeError
    axis = operation.integer("axis", 1) % len(data)
    halved = operation.flag("onesided")
    inverse = operation.flag("inverse")
    if halved and operation.has(1) and not inverse:
        raise UnknownShapeError  # an output of n // 2 + 1 bins leaves open whether the length was odd
    points = output[axis] if operation.has(1) or (halved and inverse) else data[axis]
    transforms = prod(extent for place, extent in enumerate(data[:-1]) if place != axis)
    return Cost(other_flops=transforms * fourier_flops(points, real=bool(data[-1] == 1 or (halved and inverse))))


@formula("STFT")
def count_short_time_fourier_transform(operation: Operation) -> Cost:
    """Count a window product and a transform per frame: signal (batch, length, 1 or 2), step, window, length."""
    batch, frames, bins, _ = operation.output_shape(rank=4)
    if operation.has(2):
        points = operation.dim(2, 0)
    elif operation.attribute("onesided", 1):
        raise UnknownShapeError  # the frame's length is a value
    else:
        points = bins
    real = operation.shape(0, least=1)[-1] == 1
    window = operation.has(2) * points * (1 if real else 2)
    return Cost(other_flops=batch * frames * (fourier_flops(points, real=real) + window))


@formula("Rfft", "Irfft", domains=(MICROSOFT,))
def count_real_fourier_transform(operation: Operation) -> Cost:
    """Count transforms of real values over the last ``signal_ndim`` axes, of one side's bins (…, bins, 2)."""
    forward = operation.node.op_type == "Rfft"
    real = operation.shape(0) if forward else operation.output_shape()
    axes = real[len(real) - operation.integer("signal_ndim", 1) :]
    return Cost(other_flops=prod(real[: len(real) - len(axes)]) * fourier_flops(prod(axes), real=True))


@formula("Det")
def count_determinant(operation: Operation) -> Cost:
    """Count the elimination (for each k below n, k quotients and 2k² other FLOPs) and the product of the diagonal."""
    *batch, rows, _ = operation.shape(0, least=2)
    quotients = rows * (rows - 1) // 2
    updates = rows * (rows - 1) * (2 * rows - 1) // 3
    return Cost(other_flops=prod(batch) * (quotients + updates + rows - 1))


@formula("Inverse", domains=(MICROSOFT,))
def count_inverse(operation: Operation) -> Cost:
    """Count 2·n³ per matrix (Gauss and Jordan)."""
    *batch, rows, _ = operation.shape(0, least=2)
    return Cost(other_flops=2 * prod(batch) * rows**3)
