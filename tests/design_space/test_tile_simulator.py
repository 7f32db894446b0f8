"""The formulas of traffic and residency against an execution that shares no code with them."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.design_space.groups.tiled_group import TiledGroup, TileStage
from common.design_space.single_buffer.group_tiles import every_tiling, group_tilings
from common.design_space.single_buffer.nest_tiles import best_tiling
from common.design_space.single_buffer.nest_tiles import every_tiling as every_nest_tiling
from common.workload.loop_nests import LoopNest, window_extent
from common.workload.map_layers import FeatureMap, Window
from tests.support.designs.tile_simulator import run_group, run_nest

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def nests(draw):
    taps, strides, dilations, outputs, pads, stored = [], [], [], [], [], []
    for _ in range(2):
        tap, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
        output, reach = draw(st.integers(1, 7)), window_extent(1, tap, stride, dilation)
        pad = draw(st.integers(0, reach - 1))
        behind = draw(st.integers(0, reach - 1))
        taps.append(tap), strides.append(stride), dilations.append(dilation), outputs.append(output)
        pads.append(pad)
        stored.append(max(1, window_extent(output, tap, stride, dilation) - pad - behind))
    bits = [draw(st.sampled_from([8, 16, 32])) for _ in range(3)]
    return LoopNest(
        draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 4)), *outputs, *taps,
        draw(st.integers(1, 2)), *strides, *dilations, *pads, *stored, *bits,
    )  # fmt: skip


def check_nest(nest, data):
    tilings = list(every_nest_tiling(nest))
    some = data.draw(st.sampled_from(tilings))
    compare_nest(nest, some)
    capacity = data.draw(st.sampled_from(sorted({tiling.peak_bits for tiling in tilings})))
    best = best_tiling(nest, capacity)
    assert best is not None
    least = min(sum(tiling.moved_bits) for tiling in tilings if tiling.peak_bits <= capacity)
    assert sum(best.moved_bits) == least
    assert best.peak_bits <= capacity
    compare_nest(nest, best)
    assert best_tiling(nest, min(tiling.peak_bits for tiling in tilings) - 1) is None


def compare_nest(nest, tiling):
    counted = run_nest(nest, tiling.tile, tiling.order)
    assert tuple(counted.moved.values()) == tiling.moved_bits
    assert counted.macs == nest.macs
    assert counted.peak <= tiling.peak_bits


@pytest.mark.slow
@FEW
@given(nests(), st.data())
def test_a_nest_moves_what_the_formula_says(nest, data):
    check_nest(nest, data)


@pytest.mark.exhaustive
@MANY
@given(nests(), st.data())
def test_a_thousand_nests_move_what_the_formula_says(nest, data):
    check_nest(nest, data)


@st.composite
def groups(draw):
    """A chain of windows with residual additions, branches, and maps that are resident."""
    images = draw(st.integers(1, 2))
    maps = [FeatureMap(images, draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(1, 9)), 8)]
    for _ in range(draw(st.integers(0, 1))):  # another map from memory, to be added somewhere
        maps.append(FeatureMap(images, maps[0].channels, maps[0].rows, maps[0].columns, 16))
    externals = len(maps)
    stages: list[TileStage] = []
    is_residual = draw(st.booleans())  # a chain of one extent, with additions of any map before
    for number in range(draw(st.integers(1 + is_residual, 4))):
        source = len(maps) - 1 if is_residual else draw(st.sampled_from([len(maps) - 1, 0, externals if number else 0]))
        source = source if number else 0
        below = maps[source]
        window, extents = draw(windows(below, is_residual))
        channels = below.channels if is_residual else draw(st.sampled_from([below.channels, 1, 2, 3]))
        result = FeatureMap(images, channels, *extents, draw(st.sampled_from([8, 16])))
        alike = [at for at, one in enumerate(maps) if (one.channels, one.rows, one.columns) == (channels, *extents)]
        added = tuple(draw(st.sets(st.sampled_from(alike), max_size=2))) if alike else ()
        depthwise = channels == below.channels and draw(st.booleans())
        per_position = prod(window.taps) * (1 if depthwise else below.channels)
        macs = images * channels * extents[0] * extents[1] * per_position
        kernel = draw(st.sampled_from([0, 8 * prod(window.taps)]))
        weights = kernel * channels * (1 if depthwise else below.channels)
        stages.append(TileStage(source, added, window, macs, weights, kernel, channels if depthwise else 1))
        maps.append(result)
    read = {at for stage in stages for at in (stage.source, *stage.added)}
    used = [at for at in range(externals) if at in read]
    renamed = {at: new for new, at in enumerate([*used, *range(externals, len(maps))])}
    stages = [
        TileStage(renamed[s.source], tuple(renamed[at] for at in s.added), s.window, s.macs, s.weight_bits,
                  s.kernel_bits, s.groups) for s in stages
    ]  # fmt: skip
    kept = [maps[at] for at in renamed]
    leaving = tuple(externals + n not in read or draw(st.booleans()) for n in range(len(stages)))
    resident = draw(st.sampled_from([(), tuple(
        draw(st.integers(0, 3)) == 0 and (at < len(used) or leaving[at - len(used)]) for at in range(len(kept))
    )]))  # fmt: skip
    return TiledGroup(tuple(kept), tuple(stages), leaving, resident if any(resident) else ())


@st.composite
def windows(draw, below, keeps_extents):
    if keeps_extents or draw(st.booleans()):
        tap = draw(st.sampled_from([1, 3]))
        return Window((tap, tap), pads=(tap // 2, tap // 2)), (below.rows, below.columns)
    taps, strides, dilations, pads, extents = [], [], [], [], []
    for extent in (below.rows, below.columns):
        tap, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
        reach = (tap - 1) * dilation + 1
        pad, behind = draw(st.integers(0, reach - 1)), draw(st.integers(0, reach - 1))
        most = (extent + pad + behind - reach) // stride + 1
        if most < 1:
            tap = stride = dilation = reach = 1
            pad, most = 0, extent
        taps.append(tap), strides.append(stride), dilations.append(dilation), pads.append(pad)
        extents.append(draw(st.integers(max(1, most - 1), most)))
    return Window(tuple(taps), tuple(strides), tuple(dilations), tuple(pads)), tuple(extents)


tileable = groups().filter(lambda group: group.is_tileable)


def check_group(group, data):
    unlimited = 1 << 60
    everything = list(every_tiling(group, unlimited))
    some = data.draw(st.sampled_from(everything))
    compare_group(group, some)
    capacity = data.draw(st.integers(min(tiling.peak_bits for tiling in everything) // 2, some.peak_bits))
    front, fitting = group_tilings(group, capacity), list(every_tiling(group, capacity))
    assert bool(front) == bool(fitting)
    for tiling in front:
        assert tiling.peak_bits <= capacity
        compare_group(group, tiling)
    for tiling in fitting:  # nothing that fits beats the front
        assert any(one.macs <= tiling.macs and one.moved_bits <= tiling.moved_bits for one in front)


def compare_group(group, tiling):
    counted = run_group(group, tiling)
    assert counted.moved_bits == tiling.moved_bits
    assert counted.macs == tiling.macs
    assert counted.peak == tiling.peak_bits


@pytest.mark.slow
@FEW
@given(tileable, st.data())
def test_a_fused_group_moves_and_holds_what_the_formula_says(group, data):
    check_group(group, data)


@pytest.mark.exhaustive
@MANY
@given(tileable, st.data())
def test_a_thousand_fused_groups_move_and_hold_what_the_formula_says(group, data):
    check_group(group, data)
