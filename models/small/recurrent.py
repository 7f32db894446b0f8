"""Small recurrent nets over a sequence, both directions at once, as ``torch.onnx`` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from models.graph_builder import FLOAT, Dim, GraphBuilder
from models.transformers.parts import OPSET, size_of, unsqueeze

FEATURES, HIDDEN, LABELS = 13, 7, 5
DIRECTIONS = 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def build_tiny_lstm(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """Two LSTM layers of 7, both directions, zero states made at run time: (seq, batch, 13) to (seq, batch, 5)."""
    return _build("LSTM", seed, batch, seq, layers=2)


def build_tiny_gru(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """One GRU layer of 7, both directions, reset gate after the product: (seq, batch, 13) to (seq, batch, 5)."""
    return _build("GRU", seed, batch, seq, linear_before_reset=1)


def build_tiny_rnn(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """One plain recurrent layer of 7, both directions: (seq, batch, 13) to (seq, batch, 5)."""
    return _build("RNN", seed, batch, seq)


def _build(op_type: str, seed: int, batch: Dim, seq: Dim, *, layers: int = 1, **attributes: Any) -> onnx.ModelProto:
    builder = GraphBuilder(f"tiny-{op_type.lower()}", seed=seed)
    x, width = "input", FEATURES
    for layer in range(layers):
        x = _layer(builder, op_type, x, width, f"{op_type.lower()}{layer}", attributes)
        width = DIRECTIONS * HIDDEN
    weight = builder.he_normal("head.weight", (LABELS, width))
    transposed = builder.node("Transpose", [weight], "head", perm=[1, 0])
    builder.node("MatMul", [x, transposed], "head", output="output")
    inputs, outputs = {"input": (FLOAT, (seq, batch, FEATURES))}, {"output": (FLOAT, (seq, batch, LABELS))}
    return builder.model(inputs, outputs, opset=OPSET)


def _layer(builder: GraphBuilder, op_type: str, x: str, width: int, path: str, attributes: dict[str, Any]) -> str:
    """One recurrent node; its output (seq, directions, batch, hidden) is put into one row per frame."""
    rows, bound = GATES[op_type] * HIDDEN, HIDDEN**-0.5
    shapes = {"W": (DIRECTIONS, rows, width), "R": (DIRECTIONS, rows, HIDDEN), "B": (DIRECTIONS, 2 * rows)}
    weights = [
        builder.weight(f"{path}.{name}", builder.random.uniform(-bound, bound, shape).astype(np.float32))
        for name, shape in shapes.items()
    ]
    # No sequence lengths. The LSTM takes a hidden and a cell state, the others one.
    states = [_zero_state(builder, path)] * (2 if op_type == "LSTM" else 1)
    y = builder.node(
        op_type, [x, *weights, "", *states], path, direction="bidirectional", hidden_size=HIDDEN, **attributes
    )
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    shape = builder.constant(path, [0, 0, -1])
    return builder.node("Reshape", [y, shape], path)


def _zero_state(builder: GraphBuilder, path: str) -> str:
    """Zeros of (directions, batch, hidden), the batch read from the input."""
    zero = builder.constant(path, np.zeros((1, 1, 1)), np.float32)
    count = unsqueeze(builder, size_of(builder, "input", 1, path), path)
    sizes = [builder.constant(path, [DIRECTIONS]), count, builder.constant(path, [HIDDEN])]
    return builder.node("Expand", [zero, builder.node("Concat", sizes, path, axis=0)], path)
