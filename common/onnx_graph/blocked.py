"""Channels that ONNX Runtime's blocked layout adds: an optimized graph holds them as zeros in its weights.

The layout keeps channels in blocks of 8 or 16, and pads the last one. The graph says how many channels it computes.
Only the weights of its convolutions say how many are more than zeros. So these weights, and no others, are read.

Layouts: onnxruntime/core/optimizer/nchwc_transformer.cc. A filter is stored as O/B × I/B × kernel × B input × B output
channels, or as O/B × I × kernel × B where the input is not blocked or each channel is convolved alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx

from common.graphs.graph import Count, Graph
from common.graphs.operators import NCHWC
from common.messages.names import listed
from common.onnx_graph.counts import NodeCount
from common.onnx_graph.reading.scan import read_tensors
from common.onnx_graph.shapes.types import Array, element_bits

NARROW, WIDE = 8, 16  # channels in a block, by processor
WEIGHT = 1  # position of a convolution's weight
MOST_NAMED = 3  # nodes that a note names


@dataclass(frozen=True, slots=True)
class Padding:
    """Pairs of output and input channels that a convolution computes, and those of them that are not all zeros."""

    computed: int
    used: int


def padding_notes(path: Path, graph: Graph, counts: Mapping[str, NodeCount]) -> list[str]:
    """Return a note with the MACs that are counted, and those of them that are not padding; none without padding."""
    padded = {name: padding for name, padding in paddings(path, graph).items() if padding.used < padding.computed}
    macs = {name: count.figure("macs") for name, count in counts.items()}
    known = {name: figure for name, figure in macs.items() if figure is not None}
    if not padded.keys() & known.keys():
        return []
    unpadded = known | {
        name: known[name] * padding.used // padding.computed for name, padding in padded.items() if name in known
    }
    named = [f"{name} ({_text(known[name])}, {_text(unpadded[name])} without)" for name in known if name in padded]
    total, without = (_text(sum(figures.values())) for figures in (known, unpadded))
    return [
        f"channels are padded to blocks in {len(named)} convolutions: {total} MACs are counted, {without} without the "
        f"padding: {listed(named, MOST_NAMED)}; to count a model as it was exported, give it before its optimization"
    ]


def _text(macs: Count) -> str:
    return f"{macs:,}" if isinstance(macs, int) else str(macs)


def paddings(path: Path, graph: Graph) -> dict[str, Padding]:
    """Return the padding of each convolution on the blocked layout whose weight is stored in the model."""
    weights = {
        node.name: node.inputs[WEIGHT]
        for node in graph.nodes
        if node.domain == NCHWC and node.op_type == "Conv" and len(node.inputs) > WEIGHT
    }
    stored = read_tensors(path, {*weights.values()}) if weights else {}
    arrays = {name: _bits(stored[weight]) for name, weight in weights.items() if weight in stored}
    known = {name: array for name, array in arrays.items() if array is not None}
    candidates = (
        {name: _padding(array, block) for name, array in known.items() if array.shape[0] % block == 0}
        for block in _blocks([array.shape for array in known.values()])
    )
    return min(candidates, key=lambda of_block: sum(padding.used for padding in of_block.values()))


def _bits(tensor: onnx.TensorProto) -> Array | None:
    """Return the elements of a weight as unsigned numbers of the same width; None where the file does not hold them."""
    width, elements = element_bits(tensor.data_type) // 8, prod(tensor.dims)
    if width not in (1, 2, 4, 8) or len(tensor.dims) < 3 or not elements or len(tensor.raw_data) != width * elements:
        return None
    return np.frombuffer(tensor.raw_data, f"u{width}").reshape(tuple(tensor.dims))


def _blocks(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the sizes that a block may have.

    Channels may be multiples of both sizes. Zeros are at the end of the last block in the right order alone, so the
    size that leaves the fewest channels is the right one.
    """
    may_be_wide = all(shape[0] % WIDE == 0 and (shape[1] < WIDE or shape[1] % WIDE == 0) for shape in shapes)
    return [WIDE, NARROW] if may_be_wide else [NARROW]


def _padding(weight: Array, block: int) -> Padding:
    outputs, inputs = weight.shape[:2]
    is_blocked = inputs % block == 0
    lanes = (
        weight.reshape(outputs // block, inputs // block, -1, block, block)
        if is_blocked
        else weight.reshape(outputs // block, 1, -1, 1, block)
    )
    used_outputs = outputs - block + _used(lanes[-1], -1)
    used_inputs = inputs - block + _used(lanes[:, -1], -2) if is_blocked else inputs
    return Padding(outputs * inputs, used_outputs * used_inputs)


def _used(lanes: Array, axis: int) -> int:
    """Return the channels of the last block up to the last one that is not zero; all where all are zero."""
    other_axes = tuple(index for index in range(lanes.ndim) if index != lanes.ndim + axis)
    used = np.flatnonzero((lanes != 0).any(axis=other_axes))
    return int(used[-1]) + 1 if used.size else lanes.shape[axis]
