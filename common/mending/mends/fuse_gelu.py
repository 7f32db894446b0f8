"""The operators of x · (1 + erf(x / √2)) / 2 become the runtime's Gelu (Hendrycks, Gimpel 2016, arXiv:1606.08415)."""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import CONTRIB, Edit, NoMend, mend_of
from common.mending.view import View, beside, is_standard

TOLERANCE = 1e-3  # of √2, which exporters round to the digits of fp16


@mend_of("Erf")
def fuse_gelu(view: View, erf: onnx.NodeProto) -> Edit | NoMend:
    scaled = view.writers.get(erf.input[0])
    tensor = _operand_scaled_by(view, scaled, 1 / math.sqrt(2))
    plus = view.only_reader(erf.output[0], "Add")
    first = view.only_reader(plus.output[0], "Mul") if plus else None
    if not (scaled and tensor and plus and first and _is_number(view, beside(plus, erf.output[0]), 1.0)):
        return NoMend("what is around it is no Gelu")
    if view.only_reader(scaled.output[0]) is None:
        return NoMend("something else reads a tensor within it, too")
    if view.element_type(tensor) != TensorProto.FLOAT:
        return NoMend("the runtime has Gelu for fp32 alone")
    chain = _halved(view, plus, first, tensor)
    if chain is None:
        return NoMend("what is around it is no Gelu")
    gelu = helper.make_node("Gelu", [tensor], [chain[-1]], f"{erf.name}/Gelu", domain=CONTRIB)
    return Edit([scaled.name, erf.name, plus.name, *chain[:-1]], [gelu])


def _halved(view: View, plus: onnx.NodeProto, first: onnx.NodeProto, tensor: str) -> list[str] | None:
    """Return the names of the nodes that multiply by the tensor and by a half, and what they write; None for others."""
    other = beside(first, plus.output[0])
    half = view.writers.get(other)
    if half is not None and _operand_scaled_by(view, half, 0.5) == tensor and view.only_reader(other) is not None:
        return [half.name, first.name, first.output[0]]
    second = view.only_reader(first.output[0], "Mul")
    if second is None:
        return None
    last = beside(second, first.output[0])
    is_gelu = (other == tensor and _is_number(view, last, 0.5)) or (last == tensor and _is_number(view, other, 0.5))
    return [first.name, second.name, second.output[0]] if is_gelu else None


def _operand_scaled_by(view: View, node: onnx.NodeProto | None, factor: float) -> str | None:
    """Return what a node multiplies by a factor; None if it does something else."""
    if node is None or not is_standard(node, "Mul", "Div"):
        return None
    if node.op_type == "Div":
        return node.input[0] if _is_number(view, node.input[1], 1 / factor) else None
    left, right = node.input
    return left if _is_number(view, right, factor) else right if _is_number(view, left, factor) else None


def _is_number(view: View, tensor: str, number: float) -> bool:
    """Return whether a tensor is one constant, which makes no other tensor larger."""
    held = view.constant(tensor)
    return held is not None and not held.ndim and math.isclose(float(held), number, rel_tol=TOLERANCE)
