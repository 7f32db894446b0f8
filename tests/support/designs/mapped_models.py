"""Small models for accelerators with several memories: chains with branches and residual additions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from common.design_space.hierarchy.model_layers import ModelLayer
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import MapForm, MapLayer, maps_of_nest
from tests.support.designs.layer_graphs import graph_of


def window_layer(nest, source, written, added=(), constants=0):
    """A convolution from one tensor to another, with tensors that are added to its result."""
    below, window, result = maps_of_nest(nest, (8, 8))
    size = nest.elements["output"]
    reads = {source: below.elements} | dict.fromkeys(added, size)
    form = MapForm(below, window, result, source, tuple(added))
    layer = MapLayer(written, "conv", (written,), ("Conv",), (nest,), 1, nest.macs,
                     nest.elements["weight"] + constants, reads, {written: size}, 0, form)  # fmt: skip
    return ModelLayer(layer, {f"{written}.0": nest}, source, dict.fromkeys(added, size), {written: size}, constants)


def pool_layer(below, window, result, source, written):
    """A window that multiplies nothing."""
    form = MapForm(below, window, result, source, ())
    reads, writes = {source: below.elements}, {written: result.elements}
    layer = MapLayer(written, "pool", (written,), ("MaxPool",), (), 1, 0, 0, reads, writes, 0, form)
    return ModelLayer(layer, reads=reads, writes=writes)


def copy_layer(sizes, written, size):
    """An operator that only moves."""
    layer = MapLayer(written, "pointwise", (written,), ("Copy",), (), 1, 0, 0, sizes, {written: size}, 0, None, "")
    return ModelLayer(layer, reads=sizes, writes={written: size})


def closed_layer(nest, source, written):
    """A contraction whose tensors are no maps: they never rest."""
    reads, writes = {source: nest.elements["input"]}, {written: nest.elements["output"]}
    layer = MapLayer(written, "attention", (written,), ("MatMul",), (nest,), 1, nest.macs, 0, reads, writes, 0, None)
    return ModelLayer(layer, {f"{written}.0": nest})


@st.composite
def small_models(draw, most_layers=4, tiny=False):
    """Layers over maps of few channels: windows that shrink, branches, additions, copies, contractions on their own."""
    images = 1 if tiny else draw(st.integers(1, 2))
    most = (2, 3, 2) if tiny else (4, 6, 4)
    maps = {"in": tuple(draw(st.integers(1, extent)) for extent in most)}
    found: list[ModelLayer] = []
    for index in range(draw(st.integers(2, most_layers))):
        written = f"t{index}"
        source = [*maps][-1] if draw(st.booleans()) else draw(st.sampled_from([*maps]))
        channels, rows, columns = maps[source]
        kind = draw(st.integers(0, 9))
        if kind == 0:
            size = images * channels * rows * columns
            found.append(copy_layer({source: size}, written, size))
            maps[written] = maps[source]
        elif kind == 1:
            nest = LoopNest(n=images, k=channels, c=channels, p=rows, q=columns)
            found.append(closed_layer(nest, source, written))
            maps[written] = maps[source]
        else:
            found.append(draw(windows(maps, source, written, images)))
    read = {tensor for layer in found for tensor in layer.layer.reads}
    ends = {tensor for tensor in maps if tensor != "in" and (tensor not in read or draw(st.integers(0, 5)) == 0)}
    return graph_of([layer.layer for layer in found], ends), tuple(found)


@st.composite
def windows(draw, maps, source, written, images):
    """A window over one map, grouped or not; the map that it makes is added to ``maps``."""
    channels, rows, columns = maps[source]
    is_shrinking = draw(st.booleans())
    taps = [draw(st.integers(1, min(3, extent))) if is_shrinking else 1 for extent in (rows, columns)]
    strides = [draw(st.integers(1, 2)) if is_shrinking else 1 for _ in taps]
    p, q = ((extent - tap) // stride + 1 for extent, tap, stride in zip((rows, columns), taps, strides, strict=True))
    pads = (0, 0)
    if not is_shrinking and draw(st.booleans()):
        taps, pads = [3, 3], (1, 1)
    groups = channels if draw(st.integers(0, 4)) == 0 else 1
    k = draw(st.sampled_from([1, 2, 4] if groups == 1 else [1, 2]))
    nest = LoopNest(n=images, k=k, c=channels // groups, p=p, q=q, r=taps[0], s=taps[1], groups=groups,
                    stride_p=strides[0], stride_q=strides[1], pad_p=pads[0], pad_q=pads[1], height=rows,
                    width=columns)  # fmt: skip
    if draw(st.integers(0, 5)) == 0:
        below, window, result_map = maps_of_nest(replace(nest, k=1, c=1, groups=channels), (8, 8))
        maps[written] = (channels, p, q)
        return pool_layer(below, window, result_map, source, written)
    result = (k * groups, p, q)
    alike = sorted(tensor for tensor, extents in maps.items() if extents == result and tensor != source)
    added = tuple(draw(st.sets(st.sampled_from(alike), max_size=2))) if alike else ()
    maps[written] = result
    return window_layer(nest, source, written, added, draw(st.integers(0, 5)))
