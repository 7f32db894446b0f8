"""Parts of tensors that begin inside of a fold, for an engine that reads and writes whole folds.

A layer with weights reads the whole tensor instead, with weights of zero for the other channels. Others read a copy of
the part. What writes such a part writes the whole tensor with zeros elsewhere, and adds what is there already, as a
residual of the same scale, which changes no integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from common.fpga.rtl.engine.network import LEAST, MOST, EngineLayer, EngineNetwork, EngineTensor, Residual
from common.fpga.rtl.engine.reading.maps import copy_of
from common.messages.errors import PipelineError


def on_whole_folds(network: EngineNetwork, cols: int) -> EngineNetwork:
    """Return a network with the same results, whose parts of channels are whole folds of ``cols``.

    Raises:
        PipelineError: a layer writes such a part, and cannot write the whole tensor instead.
    """
    layers = [each for layer in network.layers for each in _reading(layer, cols)]
    split = {layer.y.whole.name for layer in layers if _is_cut(layer.y, cols)}
    # A product of two tensors is refused by its own name where a head is no whole fold.
    split -= {layer.y.whole.name for layer in layers if layer.second}
    written: dict[str, EngineTensor] = {}
    last = {layer.y.whole.name: place for place, layer in enumerate(layers)}
    for place, layer in enumerate(layers):
        whole = layer.y.whole
        if whole.name in split:
            to = whole if last[whole.name] == place else replace(whole, name=f"{whole.name}/{place}")
            layers[place] = _writing_all(layer, to, written.get(whole.name))
            written[whole.name] = to
    return replace(network, layers=tuple(layers))


def _begins_inside(tensor: EngineTensor, cols: int) -> bool:
    return tensor.first_channel % cols > 0


def _is_cut(tensor: EngineTensor, cols: int) -> bool:
    """Whether the first or the last fold of a part holds channels of another one."""
    end = tensor.first_channel + tensor.channels
    return _begins_inside(tensor, cols) or (end % cols > 0 and end < tensor.whole.channels)


def _reading(layer: EngineLayer, cols: int) -> Iterator[EngineLayer]:
    """Yield the layer, and before it the copies of parts that it reads."""
    if layer.second:
        yield layer
        return
    if _begins_inside(layer.x, cols):
        if layer.weights is None:
            copy = _copy(layer.x, f"{layer.y.name}/x")
            yield copy
            layer = replace(layer, x=copy.y)
        else:
            layer = _reading_all(layer)
    if layer.residual and _begins_inside(layer.residual.other, cols):
        copy = _copy(layer.residual.other, f"{layer.y.name}/added")
        yield copy
        layer = replace(layer, residual=replace(layer.residual, other=copy.y))
    yield layer


def _copy(part: EngineTensor, name: str) -> EngineLayer:
    """Return the layer that copies a part of a tensor to one of its own."""
    copied = replace(part, name=name, of=None, first_channel=0, first_line=0)
    return _reading_all(replace(copy_of(name, part), y=copied))


def _reading_all(layer: EngineLayer) -> EngineLayer:
    """Return the layer that reads all channels of the tensor of which it read a part."""
    assert layer.weights is not None
    channels, outputs = layer.x.whole.channels, range(len(layer.weights))
    weights = layer.dense(channels, outputs, layer.x.first_channel)
    return replace(layer, x=replace(layer.x, channels=channels, first_channel=0), weights=weights, groups=1)


def _writing_all(layer: EngineLayer, y: EngineTensor, before: EngineTensor | None) -> EngineLayer:
    """Return the layer that writes all channels, and adds what is there already: those are at the zero point."""
    part, zero = layer.y, layer.y.zero
    if layer.weights is None or layer.residual or not layer.low <= zero <= layer.high or part.first_line:
        raise PipelineError(layer.node, f"writes {part.channels} channels from {part.first_channel} on, no whole folds")
    channels = slice(part.first_channel, part.first_channel + part.channels)
    dense = layer.dense(layer.x.channels, range(part.channels))
    weights = np.zeros((y.channels, layer.x.channels, *layer.kernel), np.int8)
    bias, factors = np.zeros(y.channels, np.int64), np.zeros(y.channels, np.float32)
    weights[channels], bias[channels], factors[channels] = dense, layer.bias, layer.factors
    residual = Residual(before, y.scale, y.zero, LEAST, MOST) if before else None
    return replace(layer, y=y, weights=weights, bias=bias, factors=factors, groups=1, residual=residual)
