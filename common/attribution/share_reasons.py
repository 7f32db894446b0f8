"""Why a share of the roof is above 1, or is left out although work and time are known.

The roof is that of an operator that computes every tap and reads DRAM. An operator that skips taps, multiplies less or
reads a cache is above it. The reasons are tried in the order of this module; the first that explains the whole share is
the reason. Where none does, the ceiling is too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from common.graphs.operators import CONVOLUTIONS
from common.table_rows import OpLatencyRow, OpMetricsRow

if TYPE_CHECKING:
    from common.attribution.known_work import KnownWork
    from common.graphs.graph import WorkInRun
    from common.roofline import Ceilings, Place, Roofs

Reason: TypeAlias = Literal[
    "other_device", "unstable", "correction", "not_executed", "cache", "padding", "winograd", "ceiling"
]
REASONS: tuple[str, ...] = get_args(Reason)
# Multiplications of a 3×3 convolution over those of Winograd's algorithm F(4×4, 3×3): 144 over 36. Lavin, Gray, "Fast
# algorithms for convolutional neural networks", CVPR 2016 (arXiv:1509.09308), section 4.1; recalled.
WINOGRAD_GAIN = 4.0


def share_reason(
    placed: Place,
    ceilings: Ceilings,
    roofs: Roofs,
    timed: OpLatencyRow,
    sources: Sequence[OpMetricsRow],
    work: KnownWork,
    executed: WorkInRun,
) -> Reason | None:
    """Return why the share of a node is above 1, or why it is not stated; None where it needs no reason.

    ``placed`` is the node under ``ceilings``, one of the host's ``roofs``; it computes the nodes ``sources``, and
    ``executed`` is the work of its own operator.
    """
    share = placed.roof_share
    if share is None or (roofs.is_stable and share <= 1):
        return None
    if not roofs.is_stable:
        return "unstable"
    if timed["is_correction_dominated"]:
        return "correction"
    if work.flops and executed.flops is not None and share * executed.flops <= work.flops:
        return "not_executed"
    if placed.bound == "memory" and (placed.attained_flop_per_s or 0.0) <= ceilings.peak_flop_per_s:
        return "cache" if (work.bytes or 0) <= roofs.last_level_cache_bytes else "ceiling"
    return _above_the_peak(share, next((row for row in sources if row["op_type"] in CONVOLUTIONS), None))


def _above_the_peak(share: float, convolution: OpMetricsRow | None) -> Reason:
    if convolution is None:
        return "ceiling"
    if share * used_taps_share(convolution) <= 1:
        return "padding"
    is_plain = convolution["strides"] == [1, 1] and convolution["groups"] == 1
    is_winograd = convolution["kernel_shape"] == [3, 3] and is_plain and share <= WINOGRAD_GAIN
    return "winograd" if is_winograd else "ceiling"


def used_taps_share(convolution: OpMetricsRow) -> float:
    """Return the share of the counted taps that are not on padding; 1 where the geometry is unknown."""
    kernel, strides, attributes = convolution["kernel_shape"], convolution["strides"], convolution["attributes"]
    every_shape = (convolution["input_shapes"], convolution["output_shapes"])
    source, result = ((shapes[0] if shapes else None) or [] for shapes in every_shape)
    pads, dilations = (attributes.get(name) for name in ("pads", "dilations"))
    axes = [source[2:], result[2:], kernel, strides, pads and pads[: len(kernel)], dilations]
    geometry = [[extent for extent in axis or () if isinstance(extent, int)] for axis in axes]
    is_known = bool(kernel) and all(len(axis) == len(kernel) for axis in geometry)
    return prod(_used_share(*axis) for axis in zip(*geometry, strict=True)) if is_known else 1.0


def _used_share(source: int, result: int, kernel: int, stride: int, before: int, dilation: int) -> float:
    first = stride * np.arange(result)[:, None] - before
    taps = first + dilation * np.arange(kernel)
    return float(np.mean((taps >= 0) & (taps < source))) if taps.size else 1.0
