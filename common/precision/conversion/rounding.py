"""Operands of contractions rounded to a shorter floating-point format, by a pair of casts in front of each."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper


def rounded_operands(model: onnx.ModelProto, nodes: Sequence[str], element_type: int) -> onnx.ModelProto:
    """Round the operands of some nodes, including weights and biases, and return the model.

    Products and their sums stay in float32, as in engines with a wide accumulator.

    Args:
        nodes: names; their operands are floats, or absent.
        element_type: of ``TensorProto``, such as BFLOAT16. The runtime rounds to the nearest, ties to even.
    """
    chosen, rounded = {*nodes}, dict[str, str]()
    placed: list[onnx.NodeProto] = []
    for node in [*model.graph.node]:
        for place, name in enumerate(node.input if node.name in chosen else ()):
            if name and name not in rounded:
                rounded[name] = f"{name}/rounded"
                placed += _casts(name, rounded[name], element_type)
            node.input[place] = rounded.get(name, name)
        placed.append(node)
    model.graph.ClearField("node")
    model.graph.node.extend(placed)
    return model


def _casts(name: str, rounded: str, element_type: int) -> list[onnx.NodeProto]:
    short = f"{name}/short"
    return [
        helper.make_node("Cast", [name], [short], f"{name}/shorten", to=element_type),
        helper.make_node("Cast", [short], [rounded], f"{name}/widen", to=TensorProto.FLOAT),
    ]
