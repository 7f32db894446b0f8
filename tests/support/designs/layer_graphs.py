"""Graphs of layers that can be fused, buffers for them, and checks of what was planned by executing it."""

from __future__ import annotations

from hypothesis import strategies as st

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.groups.tiled_group import tiled_group
from common.design_space.single_buffer.group_tiles import GroupTiling
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph, MapForm, MapLayer, maps_of_nest
from tests.support.designs.tile_simulator import run_group, run_nest

FP32 = 32


def graph_of(layers, returned):
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for tensor in layer.reads:
            readers.setdefault(tensor, []).append(index)
    producer = {tensor: index for index, layer in enumerate(layers) for tensor in layer.writes}
    return LayerGraph(tuple(layers), producer, {name: tuple(at) for name, at in readers.items()}, frozenset(returned))


def conv_layer(nest, source, written, added=()):
    """A convolution of fp32 from one tensor to another, with operands that are added to its result."""
    below, window, result = maps_of_nest(nest, (FP32, FP32))
    sizes = nest.operand_bytes
    reads = {source: sizes["input"]} | dict.fromkeys(added, sizes["output"])
    form = MapForm(below, window, result, source, tuple(added))
    return MapLayer(written, "conv", (written,), ("Conv",), (nest,), 1, nest.macs, sizes["weight"], reads,
                    {written: sizes["output"]}, 0, form)  # fmt: skip


def traffic_layer(size, source, written):
    """An operator that only moves: it fuses with nothing."""
    return MapLayer(written, "pointwise", (written,), ("Transpose",), (), 1, 0, 0, {source: size}, {written: size}, 0,
                    None, "Transpose counts as traffic")  # fmt: skip


@st.composite
def small_graphs(draw):
    """Up to four layers over maps of one extent: chains, branches, residual additions, operators that do not fuse."""
    rows, columns, channels = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    size = 4 * rows * columns * channels
    layers, tensors = [], ["input"]
    for index in range(draw(st.integers(2, 4))):
        source = tensors[-1] if index == 0 or draw(st.booleans()) else draw(st.sampled_from(tensors))
        written = f"t{index}"
        if draw(st.integers(0, 5)) == 0:
            layers.append(traffic_layer(size, source, written))
        else:
            tap = draw(st.sampled_from([1, 3]))
            nest = LoopNest(k=channels, c=channels, p=rows, q=columns, r=tap, s=tap, pad_p=tap // 2, pad_q=tap // 2,
                            height=rows, width=columns)  # fmt: skip
            others = [tensor for tensor in tensors if tensor != source]
            added = draw(st.sets(st.sampled_from(others), max_size=1)) if others else ()
            layers.append(conv_layer(nest, source, written, tuple(added)))
        tensors.append(written)
    read = {tensor for layer in layers for tensor in layer.reads}
    return graph_of(layers, {tensor for tensor in tensors[1:] if tensor not in read or draw(st.integers(0, 4)) == 0})


buffers = st.builds(
    SingleBuffer,
    capacity_bytes=st.integers(60, 1_500),
    memory_bytes_per_cycle=st.sampled_from([3.0, 50.0]),
    buffer_bytes_per_cycle=st.just(1000.0),
    macs_per_cycle=st.sampled_from([2.0, 100.0]),
    memory_pj_per_byte=st.just(2.5),
    buffer_pj_per_byte=st.just(0.25),
    mac_pj=st.sampled_from([0.0, 0.3]),
)


def check_room(graph, buffer, path):
    """What is resident beside a group, from the group that left it to the last that reads it, fits as well."""
    for at, plan in enumerate(path):
        beside = 0
        for tensor in {name for other in path for name in other.resident} - plan.resident:
            holders = [number for number, other in enumerate(path) if tensor in other.resident]
            if holders[0] < at < holders[-1]:
                result = graph.layers[graph.producer[tensor]].form.result
                beside += result.elements * result.bits
        for tiling in plan.tilings:
            assert tiling.peak_bits + beside <= 8 * buffer.capacity_bytes


def check_by_execution(graph, plan):
    """Run what was planned; the groups here are small enough to be executed position by position."""
    for number, tiling in enumerate(plan.tilings):
        if isinstance(tiling, GroupTiling):
            counted = run_group(tiled_group(graph, plan.members, plan.resident), tiling)
            assert counted.peak == tiling.peak_bits
            assert counted.moved_bits == tiling.moved_bits
            assert counted.macs == tiling.macs
        else:
            nest = graph.layers[plan.members[0]].nests[number]
            if nest.macs < 10**6:
                assert tuple(run_nest(nest, tiling.tile, tiling.order).moved.values()) == tiling.moved_bits
