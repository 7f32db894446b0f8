"""Amdahl's law with what offloading adds: transfer, launch, and for energy the idle card.

Amdahl, AFIPS 1967: a part f of the total, made S_k times faster, gives S = 1 / ((1 - f) + f / S_k). The overheads stand
in the denominator as fractions of the former total.
"""

from __future__ import annotations


def total_speedup(accelerated_fraction: float, kernel_speedup: float, overhead_fraction: float = 0.0) -> float:
    """1 / ((1 - f) + f / S_k + o): below 1 where offloading makes the whole slower.

    Args:
        accelerated_fraction: f, the part of the former total that moves, 0 to 1.
        kernel_speedup: S_k, how much faster that part becomes.
        overhead_fraction: o, what is added, as a fraction of the former total.
    """
    return 1.0 / ((1.0 - accelerated_fraction) + accelerated_fraction / kernel_speedup + overhead_fraction)


def break_even_kernel_speedup(accelerated_fraction: float, overhead_fraction: float) -> float | None:
    """The S_k at which the total speedup is 1: f / (f - o).

    Returns:
        None where the overhead alone costs as much as the part that moves: no kernel is fast enough.
    """
    if overhead_fraction >= accelerated_fraction:
        return None
    return accelerated_fraction / (accelerated_fraction - overhead_fraction)
