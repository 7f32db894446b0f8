"""The operators of a layer normalization over the last axis become one (Ba, Kiros, Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import Case, Edit, Mended, NoMend, opset_of, rewritten
from common.mending.view import View, attribute, beside, operand

LEAST_OPSET = 17  # the first with LayerNormalization (ONNX, docs/Changelog.md)


def fuse_layer_normalization(case: Case) -> Mended | NoMend:
    if opset_of(case.model) < LEAST_OPSET:
        return NoMend(f"LayerNormalization needs opset {LEAST_OPSET}")
    return rewritten(case, ("Sqrt",), _fused)


def _fused(view: View, root: onnx.NodeProto) -> Edit | NoMend:
    plus = view.writer(root.input[0], "Add")
    rest, epsilon = _beside_number(view, plus)
    variance = view.writer(rest, "ReduceMean")
    square = view.writer(operand(variance, 0), "Pow", "Mul")
    deviation = view.writer(operand(square, 0), "Sub")
    mean = view.writer(operand(deviation, 1), "ReduceMean")
    ratio = view.only_reader(root.output[0], "Div")
    scaled, gamma = _affine(view, ratio, "Mul")
    shifted, beta = _affine(view, scaled, "Add")
    inner = [mean, deviation, square, variance, plus, root, ratio, scaled, shifted]
    nodes = [node for node in inner if node is not None]
    tensor, centred = operand(deviation, 0), operand(square, 0)
    if (
        len(nodes) < len(inner)
        or operand(mean, 0) != tensor
        or not _is_squared(view, square, centred)
        or [operand(ratio, 0), operand(ratio, 1)] != [centred, root.output[0]]
        or not all(_is_over_last(view, node, tensor) for node in nodes if node.op_type == "ReduceMean")
    ):
        return NoMend("what is around it is no layer normalization over the last axis")
    if not _is_closed(view, nodes):
        return NoMend("something else reads a tensor within it, too")
    size = (view.shape(tensor) or (None,))[-1]
    is_by_element = size is not None and all(view.shape(name) == (size,) for name in (gamma, beta))
    if view.element_type(tensor) != TensorProto.FLOAT or not is_by_element:
        return NoMend("its scale or its bias is not one number for each element of the last axis, in fp32")
    *_, last = nodes
    norm = helper.make_node(
        "LayerNormalization", [tensor, gamma, beta], [*last.output], last.name, axis=-1, epsilon=epsilon
    )
    return Edit([node.name for node in nodes], [norm])


def _beside_number(view: View, node: onnx.NodeProto | None) -> tuple[str, float]:
    """Return both operands of a sum with a number; an empty name where it is none."""
    for place in (0, 1):
        if (number := view.number(operand(node, place))) is not None:
            return operand(node, 1 - place), number
    return "", 0.0


def _is_squared(view: View, node: onnx.NodeProto | None, tensor: str) -> bool:
    other = operand(node, 1)
    return other == tensor if node is not None and node.op_type == "Mul" else view.number(other) == 2


def _is_over_last(view: View, node: onnx.NodeProto, tensor: str) -> bool:
    shape, held = view.shape(tensor), view.constant(operand(node, 1))
    axes = attribute(node, "axes", None if held is None else held.reshape(-1).tolist())
    is_last = bool(shape) and axes is not None and [*axes] in ([-1], [len(shape or ()) - 1])
    return is_last and attribute(node, "keepdims", 1) == 1


def _affine(view: View, before: onnx.NodeProto | None, op_type: str) -> tuple[onnx.NodeProto | None, str]:
    """Return the product or the sum with a constant that alone reads a node, and the constant."""
    result = before.output[0] if before is not None else ""
    node = view.only_reader(result, op_type)
    other = beside(node, result)
    return (node, other) if view.constant(other) is not None else (None, "")


def _is_closed(view: View, nodes: list[onnx.NodeProto]) -> bool:
    """Return whether no other node reads their results, but for those of the last one."""
    inside = {node.name for node in nodes}
    written = [name for node in nodes[:-1] for name in node.output]
    readers = [reader.name for name in written for reader in view.readers.get(name, ())]
    return inside.issuperset(readers) and view.returned.isdisjoint(written)
