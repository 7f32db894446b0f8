"""Graphs as exporters write them, of networks whose plans are hard to bound: decoders, action experts, SAM's encoder.

Every operator has the extents of the published network; weights are zeros in the file or, for the larger ones, holes in
a sparse side file. The graphs are for planning and not for running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION, OPSET = 10, 17
WINDOW, GLOBAL_LAYERS = 14, (2, 5, 8, 11)  # of SAM's ViT-B (Kirillov et al., ICCV 2023, arXiv:2304.02643)


@dataclass
class GraphWriter:
    """Nodes, inputs, outputs and weights so far; the weights are holes in a sparse side file."""

    side_file: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    side_bytes: int = 0

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its only output."""
        return self.add_split(op_type, 1, *inputs, **attributes)[0]

    def add_split(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        name = f"{op_type}_{len(self.nodes)}"
        outputs = [f"{name}_out{index}" for index in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **attributes))
        return outputs

    def weight(self, *shape: int) -> str:
        name = f"weight_{len(self.weights)}"
        size = 4 * prod(shape)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.side_file), ("offset", self.side_bytes), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        self.side_bytes += size
        self.weights.append(tensor)
        return name

    def constant(self, *values: int) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), f"constant_{len(self.weights)}"))
        return self.weights[-1].name

    def number(self, value: float) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), f"number_{len(self.weights)}"))
        return self.weights[-1].name

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def output(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def reshape(self, value: str, *shape: int) -> str:
        return self.add("Reshape", value, self.constant(*shape))

    def linear(self, value: str, inner: int, outer: int, *, has_bias: bool = False) -> str:
        product = self.add("MatMul", value, self.weight(inner, outer))
        return self.add("Add", product, self.weight(outer)) if has_bias else product

    def layer_norm(self, value: str, width: int) -> str:
        return self.add("LayerNormalization", value, self.weight(width), self.weight(width), axis=-1)

    def rms_norm(self, value: str, width: int) -> str:
        """Add a root-mean-square normalization written out."""
        mean = self.add("ReduceMean", self.add("Pow", value, self.number(2.0)), axes=[-1], keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, self.number(1e-6)))
        scaled = self.add("Mul", value, self.add("Div", self.number(1.0), root))
        return self.add("Mul", self.weight(width), scaled)

    def heads(self, value: str, tokens: int, count: int, size: int) -> str:
        return self.add("Transpose", self.reshape(value, 1, tokens, count, size), perm=[0, 2, 1, 3])

    def rotated(self, value: str, size: int, cosine: str, sine: str) -> str:
        """Add a rotary embedding: x · cos + (−x₂, x₁) · sin."""
        axis, step = self.constant(3), self.constant(1)
        first = self.add("Slice", value, self.constant(0), self.constant(size // 2), axis, step)
        second = self.add("Slice", value, self.constant(size // 2), self.constant(size), axis, step)
        turned = self.add("Concat", self.add("Neg", second), first, axis=-1)
        return self.add("Add", self.add("Mul", value, cosine), self.add("Mul", turned, sine))

    def repeated(self, value: str, tokens: int, counts: tuple[int, int], size: int) -> str:
        """Give every query head a key or value head: Unsqueeze, Expand, Reshape."""
        heads, kept = counts
        if heads == kept:
            return value
        wide = self.add("Unsqueeze", value, self.constant(2))
        wide = self.add("Expand", wide, self.constant(1, kept, heads // kept, tokens, size))
        return self.reshape(wide, 1, heads, tokens, size)

    def attended(self, query: str, key: str, value: str, size: int, mask: str = "") -> str:
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.add("Mul", scores, self.number(size**-0.5))
        scores = self.add("Add", scores, mask) if mask else scores
        return self.add("MatMul", self.add("Softmax", scores, axis=-1), value)

    def joined(self, value: str, tokens: int, width: int) -> str:
        return self.reshape(self.add("Transpose", value, perm=[0, 2, 1, 3]), 1, tokens, width)

    def gated(self, value: str, width: int, inner: int) -> str:
        """Add a feed-forward net with a gate of SiLU."""
        gate = self.linear(value, width, inner)
        gate = self.add("Mul", gate, self.add("Sigmoid", gate))
        return self.linear(self.add("Mul", gate, self.linear(value, width, inner)), inner, width)

    def save(self, path: Path) -> None:
        graph = helper.make_graph(self.nodes, path.stem, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        path.write_bytes(model.SerializeToString())
        with (path.parent / self.side_file).open("wb") as file:
            file.truncate(self.side_bytes)


def decoder(to: GraphWriter, layers: int = 24, tokens: int = 1, past: int = 256) -> None:
    """A decoder with grouped queries and rotary embeddings, of Qwen2-0.5B's extents, with its cache."""
    width, counts, size, inner = 896, (14, 2), 64, 4864
    value, mask = to.input("embeddings", 1, tokens, width), to.input("mask", 1, 1, tokens, past + tokens)
    cosine, sine = (to.input(name, 1, 1, tokens, size) for name in ("cosine", "sine"))
    for layer in range(layers):
        normed = to.rms_norm(value, width)
        query = to.heads(to.linear(normed, width, counts[0] * size, has_bias=True), tokens, counts[0], size)
        key = to.heads(to.linear(normed, width, counts[1] * size, has_bias=True), tokens, counts[1], size)
        kept = to.heads(to.linear(normed, width, counts[1] * size, has_bias=True), tokens, counts[1], size)
        query, key = (to.rotated(each, size, cosine, sine) for each in (query, key))
        if past:
            before = (to.input(f"past_{name}_{layer}", 1, counts[1], past, size) for name in ("key", "value"))
            key, kept = (to.add("Concat", old, new, axis=2) for old, new in zip(before, (key, kept), strict=True))
        to.output(key)
        to.output(kept)
        key, kept = (to.repeated(each, past + tokens, counts, size) for each in (key, kept))
        mixed = to.joined(to.attended(query, key, kept, size, mask), tokens, counts[0] * size)
        value = to.add("Add", value, to.linear(mixed, counts[0] * size, width))
        value = to.add("Add", value, to.gated(to.rms_norm(value, width), width, inner))
    to.output(to.linear(to.rms_norm(value, width), width, 32_000))


def action_expert(to: GraphWriter, layers: int = 16, tokens: int = 50, prefix: int = 241) -> None:
    """An action expert that attends to itself and to the prefix of a language model in turns (SmolVLA's extents)."""
    width, counts, size, inner, actions = 720, (15, 5), 64, 2048, 32
    noisy, time = to.input("actions", 1, tokens, actions), to.input("time", 1, tokens, width)
    cosine, sine = (to.input(name, 1, 1, tokens, size) for name in ("cosine", "sine"))
    mask = to.input("mask", 1, 1, tokens, prefix)
    value = to.add("Concat", to.linear(noisy, actions, width, has_bias=True), time, axis=2)
    value = to.linear(value, 2 * width, width, has_bias=True)
    value = to.add("Mul", value, to.add("Sigmoid", value))
    value = to.linear(value, width, width, has_bias=True)
    for layer in range(layers):
        normed, is_crossing = to.rms_norm(value, width), layer % 2
        query = to.heads(to.linear(normed, width, counts[0] * size), tokens, counts[0], size)
        query = to.rotated(query, size, cosine, sine)
        key_tokens, key_width = (prefix, counts[1] * size) if is_crossing else (tokens, width)
        sources = (
            [to.input(f"prefix_{name}_{layer}", 1, prefix, key_width) for name in "kv"] if is_crossing else [normed] * 2
        )
        key, kept = (
            to.heads(to.linear(source, key_width, counts[1] * size), key_tokens, counts[1], size) for source in sources
        )
        key = key if is_crossing else to.rotated(key, size, cosine, sine)
        key, kept = (to.repeated(each, key_tokens, counts, size) for each in (key, kept))
        mixed = to.attended(query, key, kept, size, mask if is_crossing else "")
        value = to.add("Add", value, to.linear(to.joined(mixed, tokens, counts[0] * size), counts[0] * size, width))
        value = to.add("Add", value, to.gated(to.rms_norm(value, width), width, inner))
    to.output(to.linear(to.rms_norm(value, width), width, actions, has_bias=True))


def sam_encoder(to: GraphWriter, layers: int = 12, side: int = 64, width: int = 768, heads: int = 12) -> None:
    """The image encoder of SAM ViT-B: attention in windows with relative positions, global in every third layer."""
    pixels = to.input("image", 1, 3, 16 * side, 16 * side)
    patches = to.add(
        "Conv", pixels, to.weight(width, 3, 16, 16), to.weight(width), kernel_shape=[16, 16], strides=[16, 16]
    )
    value = to.add("Add", to.add("Transpose", patches, perm=[0, 2, 3, 1]), to.weight(1, side, side, width))
    for layer in range(layers):
        normed = to.layer_norm(value, width)
        if layer in GLOBAL_LAYERS:
            mixed = _relative(to, normed, 1, side, width, heads)
        else:
            count = -(-side // WINDOW)
            pad = count * WINDOW - side
            padded = to.add("Pad", normed, to.constant(0, 0, 0, 0, 0, pad, pad, 0))
            parts = to.reshape(padded, 1, count, WINDOW, count, WINDOW, width)
            parts = to.reshape(to.add("Transpose", parts, perm=[0, 1, 3, 2, 4, 5]), count**2, WINDOW, WINDOW, width)
            mixed = _relative(to, parts, count**2, WINDOW, width, heads)
            whole = to.reshape(mixed, 1, count, count, WINDOW, WINDOW, width)
            whole = to.add("Transpose", whole, perm=[0, 1, 3, 2, 4, 5])
            whole = to.reshape(whole, 1, count * WINDOW, count * WINDOW, width)
            ends, axes = to.constant(side, side), to.constant(1, 2)
            mixed = to.add("Slice", whole, to.constant(0, 0), ends, axes)
        value = to.add("Add", value, mixed)
        hidden = to.linear(to.layer_norm(value, width), width, 4 * width, has_bias=True)
        error = to.add("Add", to.add("Erf", to.add("Div", hidden, to.number(2**0.5))), to.number(1.0))
        hidden = to.add("Mul", to.add("Mul", hidden, error), to.number(0.5))
        value = to.add("Add", value, to.linear(hidden, 4 * width, width, has_bias=True))
    value = to.add("Transpose", value, perm=[0, 3, 1, 2])
    value = to.add("Conv", value, to.weight(256, width, 1, 1), kernel_shape=[1, 1])
    value = to.add("Conv", value, to.weight(256, 256, 3, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    to.output(value)


def _relative(to: GraphWriter, value: str, batch: int, side: int, width: int, heads: int) -> str:
    """Add attention over side × side tokens whose scores have a term for rows and one for columns."""
    tokens, size = side * side, width // heads
    packed = to.reshape(to.linear(value, width, 3 * width, has_bias=True), batch, tokens, 3, heads, size)
    packed = to.reshape(to.add("Transpose", packed, perm=[2, 0, 3, 1, 4]), 3, batch * heads, tokens, size)
    query, key, kept = (to.add("Squeeze", each, to.constant(0)) for each in to.add_split("Split", 3, packed, axis=0))
    scaled = to.add("Mul", query, to.number(size**-0.5))
    scores = to.add("MatMul", scaled, to.add("Transpose", key, perm=[0, 2, 1]))
    grid = to.reshape(query, batch * heads, side, side, size)
    rows = to.add("Einsum", grid, to.weight(side, side, size), equation="bhwc,hkc->bhwk")
    columns = to.add("Einsum", grid, to.weight(side, side, size), equation="bhwc,wkc->bhwk")
    scores = to.reshape(scores, batch * heads, side, side, side, side)
    scores = to.add("Add", scores, to.add("Unsqueeze", rows, to.constant(4)))
    scores = to.add("Add", scores, to.add("Unsqueeze", columns, to.constant(3)))
    scores = to.add("Softmax", to.reshape(scores, batch * heads, tokens, tokens), axis=-1)
    mixed = to.reshape(to.add("MatMul", scores, kept), batch, heads, side, side, size)
    mixed = to.reshape(to.add("Transpose", mixed, perm=[0, 2, 3, 1, 4]), batch, side, side, width)
    return to.linear(mixed, width, width, has_bias=True)


ATTENTION_NETWORKS: dict[str, Callable[[GraphWriter], None]] = {
    "decoder-12-prefill": lambda to: decoder(to, layers=12, tokens=64, past=0),
    "decoder-24-prefill": lambda to: decoder(to, layers=24, tokens=128, past=0),
    "decoder-24-step": decoder,
    "action-expert": action_expert,
    "sam-vit-b": sam_encoder,
}


def write(name: str, folder: Path) -> Path:
    """Write a network with its side file, and return its path."""
    writer = GraphWriter(f"{name}.data")
    ATTENTION_NETWORKS[name](writer)
    writer.save(folder / f"{name}.onnx")
    return folder / f"{name}.onnx"
