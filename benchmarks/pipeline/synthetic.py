"""Build models of any number of nodes, with small weights or with weights in a sparse side file.

A transformer's layer is 36 nodes as exporters write them, target shapes computed from ``Shape`` among them; a block of
a residual convolutional net is 7. Every layer has weights of its own, so that the graph, its tensors and its file grow
together. Nothing here is for running: it is for reading.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
OPSET = 17
HEADS = 2
SEQUENCE = 11
FLOAT_BYTES = 4
GIB = 2**30
LAYER_NODES = 36  # of a transformer


@dataclass
class Builder:
    """Nodes and weights so far. With a ``side_file`` the weights are holes in it; only its length is real."""

    side_file: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    side_bytes: int = 0

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its only output."""
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, *shape: int) -> str:
        """Add a float32 initializer of zeros, in the file or in its side file, and return its name."""
        name = f"weight_{len(self.weights)}"
        size = FLOAT_BYTES * prod(shape)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        if self.side_file:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.side_file), ("offset", self.side_bytes), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            self.side_bytes += size
        else:
            tensor.raw_data = bytes(size)
        self.weights.append(tensor)
        return name

    def integers(self, *values: int) -> str:
        """Add an int64 initializer with its values, always in the file, and return its name."""
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), f"weight_{len(self.weights)}"))
        return self.weights[-1].name

    def save(self, path: Path, name: str, shape: tuple[int | str, ...], result: str) -> None:
        """Write the model, whose result has the shape of its input, and its sparse side file."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        path.write_bytes(model.SerializeToString())
        if self.side_file:
            with (path.parent / self.side_file).open("wb") as file:
                file.truncate(self.side_bytes)


def transformer(
    path: Path,
    node_count: int,
    width: int = 18,
    side_file: str = "",
    extent: tuple[int | str, int | str] = (1, SEQUENCE),
) -> int:
    """Write pre-norm layers of attention and a feed-forward net until there are at least ``node_count`` nodes.

    ``extent`` is batch and sequence, as numbers or as names of unbound dimensions.

    Returns:
        The number of nodes.
    """
    builder, value = Builder(side_file), "x"
    while len(builder.nodes) < node_count:
        value = _feed_forward(builder, _attention(builder, value, width), width)
    builder.save(path, "transformer", (*extent, width), value)
    return len(builder.nodes)


def _linear(builder: Builder, value: str, inner: int, outer: int) -> str:
    return builder.add("Add", builder.add("MatMul", value, builder.weight(inner, outer)), builder.weight(outer))


def _norm(builder: Builder, value: str, width: int) -> str:
    return builder.add("LayerNormalization", value, builder.weight(width), builder.weight(width), axis=-1)


def _attention(builder: Builder, value: str, width: int) -> str:
    """Add 25 nodes: three projections, shapes from ``Shape``, two products, an output projection and the residual."""
    normed = _norm(builder, value, width)
    shape = builder.add("Shape", normed)
    split = builder.add("Slice", shape, builder.integers(0), builder.integers(2), builder.integers(0))
    target = builder.add("Concat", split, builder.integers(HEADS), builder.integers(width // HEADS), axis=0)
    query, key, values = (
        builder.add("Transpose", builder.add("Reshape", _linear(builder, normed, width, width), target), perm=order)
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = builder.add("Mul", builder.add("MatMul", query, key), builder.weight())
    mixed = builder.add("MatMul", builder.add("Softmax", scores, axis=-1), values)
    joined = builder.add("Reshape", builder.add("Transpose", mixed, perm=[0, 2, 1, 3]), shape)
    return builder.add("Add", value, _linear(builder, joined, width, width))


def _feed_forward(builder: Builder, value: str, width: int) -> str:
    """Add 11 nodes: two linear layers with a GELU written out between them, and the residual."""
    hidden = _linear(builder, _norm(builder, value, width), width, 4 * width)
    error = builder.add("Erf", builder.add("Div", hidden, builder.weight()))
    gate = builder.add("Mul", hidden, builder.add("Add", error, builder.weight()))
    activated = builder.add("Mul", gate, builder.weight())
    return builder.add("Add", value, _linear(builder, activated, 4 * width, width))


def convolutional(path: Path, node_count: int, width: int = 10) -> int:
    """Write residual blocks of two convolutions until there are at least ``node_count`` nodes.

    Returns:
        The number of nodes.
    """
    builder, value = Builder(), "x"
    while len(builder.nodes) < node_count:
        inner = builder.add("Relu", _normalised_convolution(builder, value, width))
        residual = builder.add("Add", value, _normalised_convolution(builder, inner, width))
        value = builder.add("Relu", residual)
    builder.save(path, "convolutional", (1, width, 13, 17), value)
    return len(builder.nodes)


def _normalised_convolution(builder: Builder, value: str, width: int) -> str:
    weights = (builder.weight(width, width, 3, 3), builder.weight(width))
    product = builder.add("Conv", value, *weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return builder.add("BatchNormalization", product, *(builder.weight(width) for _ in range(4)))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("transformer", "unbound", "convolutional"))
    parser.add_argument("nodes", type=int)
    parser.add_argument("path", type=Path)
    parser.add_argument("--weights-gib", type=int, default=0, help="size of the side file of a transformer's weights")
    given = parser.parse_args(argv)
    if given.kind == "convolutional":
        print(convolutional(given.path, given.nodes))
    elif given.kind == "unbound":
        print(transformer(given.path, given.nodes, extent=("batch", "sequence")))
    elif given.weights_gib:
        width = width_for(given.nodes, given.weights_gib * GIB)
        print(transformer(given.path, given.nodes, width, f"{given.path.name}.data"))
    else:
        print(transformer(given.path, given.nodes))


def width_for(node_count: int, side_bytes: int) -> int:
    """Return the even width at which the matrices of a transformer's layers, 12 squares each, fill ``side_bytes``."""
    layers = ceil(node_count / LAYER_NODES)
    return HEADS * ceil(sqrt(side_bytes / (12 * layers * FLOAT_BYTES)) / HEADS)


if __name__ == "__main__":
    main()
