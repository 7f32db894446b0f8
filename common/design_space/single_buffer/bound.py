"""A lower bound on the cost of every schedule: compulsory traffic and compulsory work.

Whatever is fused and however it is tiled, every weight is read once, every input of the model that a window touches is
read once, and every output of the model is written once. A tensor beside a layer that fuses with no other goes through
memory as well. No multiply-accumulate is left out, and traffic and work can at best overlap all the time.
"""

from __future__ import annotations

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.search.fronts import SupportedPoint
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import FeatureMap, LayerGraph, MapForm, MapLayer, Window, maps_of_nest


def lower_bound(graph: LayerGraph, buffer: SingleBuffer) -> SupportedPoint[None]:
    """Return cycles and energy that no schedule of a model on one accelerator is below."""
    macs = sum(layer.macs for layer in graph.layers)
    tensors = {*graph.producer, *graph.consumers}
    moved = sum(map(_own_bytes, graph.layers)) + sum(_map_bytes(graph, tensor) for tensor in tensors)
    return SupportedPoint(buffer.energy_pj(macs, moved), buffer.cycles(macs, moved), None)


def touched_lines(outputs: int, taps: int, stride: int, dilation: int, pad: int, extent: int) -> int:
    """Return how many of the stored lines some window touches."""
    lines = {result * stride + tap * dilation - pad for result in range(outputs) for tap in range(taps)}
    return sum(0 <= line < extent for line in lines)


def nest_bits(nest: LoopNest) -> int:
    """Return the compulsory traffic of a contraction by itself."""
    read = touched_elements(*maps_of_nest(nest, (nest.input_bits, nest.output_bits))) * nest.input_bits
    return read + nest.elements["weight"] * nest.weight_bits + nest.elements["output"] * nest.output_bits


def touched_elements(below: FeatureMap, window: Window, result: FeatureMap) -> int:
    """Return how many elements of a map some window touches."""
    extents = ((result.rows, below.rows), (result.columns, below.columns))
    rows, columns = (
        touched_lines(outputs, window.taps[axis], window.strides[axis], window.dilations[axis], window.pads[axis], most)
        for axis, (outputs, most) in enumerate(extents)
    )
    return below.images * below.channels * rows * columns


def other_bytes(layer: MapLayer) -> float:
    """Return the traffic of a layer beside its contractions: biases and scales, added operands, what it spills."""
    nests = [(nest.operand_bytes, nest.has_weight) for nest in layer.nests]
    weights = max(0, layer.weight_bytes - layer.passes * sum(own["weight"] for own, constant in nests if constant))
    if layer.form is not None and layer.nests:
        return weights + sum(layer.reads[tensor] for tensor in layer.form.added)
    maps = sum(own["input"] + own["output"] + own["weight"] * (not constant) for own, constant in nests)
    activations = sum(layer.reads.values()) + sum(layer.writes.values()) + layer.spilled_bytes
    return weights + max(0, activations - layer.passes * maps)


def _own_bytes(layer: MapLayer) -> float:
    """Return the traffic of a layer that no fusion saves: its weights, or all of it if it fuses with no other."""
    if layer.form is not None:
        return layer.weight_bytes
    return layer.passes * sum(nest_bits(nest) for nest in layer.nests) / 8 + other_bytes(layer)


def _map_bytes(graph: LayerGraph, tensor: str) -> float:
    """Return the traffic of a tensor at the layers that could fuse, if it must go through memory."""
    writer = graph.producer.get(tensor)
    readers = [(index, graph.layers[index].form) for index in graph.consumers.get(tensor, ())]
    form = graph.layers[writer].form if writer is not None else None
    bits = 0
    if form is not None and (tensor in graph.returned or any(other is None for _, other in readers)):
        bits += form.result.elements * form.result.bits
    if form is None:
        bits += max((read_bits(other, tensor) for _, other in readers if other is not None), default=0)
    return bits / 8


def read_bits(form: MapForm, tensor: str) -> int:
    """Return the bits of a tensor that the windows of a layer touch, or that it adds."""
    if tensor in form.added:
        return form.result.elements * form.result.bits
    return touched_elements(form.below, form.window, form.result) * form.below.bits
