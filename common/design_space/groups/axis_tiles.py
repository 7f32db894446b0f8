"""The intervals of rows (or of columns) that the tiles of a fused group compute, read and keep.

A tile is an interval of the result of the group's last layers. Going backwards, the interval of a map that a tile needs
is the hull of what the windows above it touch (Alwani et al., MICRO 2016, "Fused-layer CNN accelerators", section III).
Two tiles overlap by the halo. Either each tile computes its halo again, or the lines of the halo are kept from tile to
tile and only new lines are computed. Both axes are independent of each other, so sums over tiles are products of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from common.design_space.groups.tiled_group import TiledGroup
from common.messages.errors import PipelineError
from common.workload.map_layers import Window

MOST_EXTENT = 2**20  # that is cut into tiles
Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AxisTiles:
    """Line counts along one axis, [map or stage, tile]. Lines are rows on one axis and columns on the other."""

    held: Lines  # lines of each map that the tile has on the chip while the map is in use
    fresh: Lines  # lines of each map that the tile computes or reads anew
    kept_before: Lines  # held lines that the tile before has left
    kept_after: Lines  # held lines that the next tile needs
    windows: Lines  # lines of each stage's source that its fresh lines read
    computed: Lines  # fresh lines of each stage

    @property
    def tile_count(self) -> int:
        return int(self.held.shape[1])


def tile_sizes(extent: int) -> tuple[int, ...]:
    """Return the smallest size for each number of tiles that an extent can be cut into, largest first.

    There are about ``2·sqrt(extent)``: with few tiles one size for each number of them, then every small size.
    An extent that is too large for a search is a PipelineError.
    """
    require_extent(extent)
    last = extent - 1  # ceil(extent / count) = floor(last / count) + 1
    few = isqrt(last)
    return tuple(sorted({last // count + 1 for count in range(1, few + 1)} | {*range(1, few + 2)}, reverse=True))


def require_extent(extent: int) -> None:
    """Raise PipelineError for an extent that has too many tiles for a search."""
    if extent > MOST_EXTENT:
        remedy = f"a loop or an axis of a tensor may have {MOST_EXTENT:,} steps"
        raise PipelineError("op_metrics.csv", f"a search cannot cut {extent:,} steps into tiles", remedy)


def axis_tiles(group: TiledGroup, axis: int, size: int, *, keeps_halo: bool) -> AxisTiles:
    """Return the intervals of all tiles along one axis.

    Args:
        axis: 0 for rows, 1 for columns.
        size: lines of the last layers' results in each tile; the last tile may have fewer.
        keeps_halo: whether lines that the next tile needs are kept, else they are computed or read again.
    """
    externals, extents = group.external_count, [(shape.rows, shape.columns)[axis] for shape in group.maps]
    sink = extents[externals + group.sinks[0]]
    begins = np.arange(0, sink, size, dtype=np.int64)
    ends = np.minimum(begins + size, sink)
    shape = (len(extents), len(begins))
    low, high = np.full(shape, np.iinfo(np.int64).max), np.full(shape, -1)
    for index in range(externals, len(extents)):  # all of every result is computed, also lines that nobody reads
        if keeps_halo and group.readers[index]:
            high[index, -1] = extents[index]
            continue
        high[index] = -(-ends * extents[index] // sink)
        if not keeps_halo:
            low[index] = -(-begins * extents[index] // sink)
    windows = np.zeros((len(group.stages), len(begins)), dtype=np.int64)
    first = np.zeros(shape, dtype=np.int64)
    for index in reversed(range(len(extents))):  # every reader of a map comes after it
        is_stage = index >= externals
        low[index], high[index], first[index] = _settled(low[index], high[index], keeps_halo, is_stage)
        if not is_stage:
            continue
        stage = group.stages[index - externals]
        touched = _touched(stage.window, axis, first[index], high[index], extents[stage.source])
        windows[index - externals] = touched[1] - touched[0]
        _widen(low, high, stage.source, *touched)
        for tensor in stage.added:
            _widen(low, high, tensor, first[index], high[index])
    before, after = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if keeps_halo:
        overlap = np.maximum(0, high[:, :-1] - low[:, 1:])
        before[:, 1:], after[:, :-1] = overlap, overlap
    fresh = high - first
    return AxisTiles(high - low, fresh, before, after, windows, fresh[externals:])


def _settled(low: Lines, high: Lines, keeps_halo: bool, is_stage: bool) -> tuple[Lines, Lines, Lines]:
    """Return the interval of a map that each tile holds, and where its fresh lines begin.

    With a kept halo, a line stays until the last tile that needs it, and a stage goes on where it stopped.
    """
    if not keeps_halo:
        low, high = np.where(high > low, low, 0), np.where(high > low, high, 0)
        return low, high, low.copy()
    low, high = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
    low, high = np.minimum(low, np.maximum(high, 0)), np.maximum(high, 0)
    before = np.concatenate((low[:1] * (not is_stage), high[:-1]))
    first = before if is_stage else np.maximum(before, low)
    return np.minimum(low, first), high, first


def _touched(window: Window, axis: int, begin: Lines, end: Lines, extent: int) -> tuple[Lines, Lines]:
    """Return the lines that the windows of an interval of results touch, without the zeros around the map."""
    stride, reach = window.strides[axis], (window.taps[axis] - 1) * window.dilations[axis] + 1
    low = np.clip(begin * stride - window.pads[axis], 0, extent)
    high = np.clip((end - 1) * stride - window.pads[axis] + reach, low, extent)
    return np.where(end > begin, low, extent), np.where(end > begin, high, extent)


def _widen(low: Lines, high: Lines, index: int, read_low: Lines, read_high: Lines) -> None:
    """Let a map's interval cover what another reader touches; an empty interval widens nothing."""
    some = read_high > read_low
    low[index] = np.where(some, np.minimum(low[index], read_low), low[index])
    high[index] = np.where(some, np.maximum(high[index], read_high), high[index])
