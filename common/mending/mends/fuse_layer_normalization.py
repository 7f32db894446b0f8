"""The operators of a layer normalization over the last axis become one (Ba, Kiros, Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import Case, Edit, Mended, NoMend, opset_of, rewritten
from common.mending.view import View, attribute, is_standard, operand

LEAST_OPSET = 17  # the first with LayerNormalization (ONNX, docs/Changelog.md)


def fuse_layer_normalization(case: Case) -> Mended | NoMend:
    if opset_of(case.model) < LEAST_OPSET:
        return NoMend(f"LayerNormalization needs opset {LEAST_OPSET}")
    return rewritten(case, ("Sqrt",), _fused)


def _fused(view: View, root: onnx.NodeProto) -> Edit | NoMend:
    nothing = NoMend("what is around it is no layer normalization over the last axis")
    plus = _writer(view, root.input[0], "Add")
    variance = _writer(view, _beside_number(view, plus)[0], "ReduceMean")
    square = _writer(view, variance.input[0] if variance else "", "Pow", "Mul")
    deviation = _writer(view, square.input[0] if square else "", "Sub")
    mean = _writer(view, deviation.input[1] if deviation else "", "ReduceMean")
    ratio = view.only_reader(root.output[0])
    if plus is None or variance is None or square is None or deviation is None or mean is None or ratio is None:
        return nothing
    tensor, centred = deviation.input[0], deviation.output[0]
    is_norm = (
        mean.input[0] == tensor
        and _is_squared(view, square, centred)
        and is_standard(ratio, "Div")
        and [*ratio.input] == [centred, root.output[0]]
        and _is_over_last(view, mean, tensor)
        and _is_over_last(view, variance, tensor)
    )
    scaled, gamma = _affine(view, ratio, "Mul")
    shifted, beta = _affine(view, scaled, "Add")
    if not is_norm or scaled is None or shifted is None:
        return nothing
    inner = [mean, deviation, square, variance, plus, root, ratio, scaled]
    if not _is_closed(view, [*inner, shifted]):
        return NoMend("something else reads a tensor within it, too")
    if view.element_type(tensor) != TensorProto.FLOAT or not _are_of_last_axis(view, tensor, (gamma, beta)):
        return NoMend("its scale or its bias is not one number for each element of the last axis, in fp32")
    epsilon = _beside_number(view, plus)[1]
    norm = helper.make_node(
        "LayerNormalization", [tensor, gamma, beta], [*shifted.output], shifted.name, axis=-1, epsilon=epsilon
    )
    return Edit([node.name for node in (*inner, shifted)], [norm])


def _writer(view: View, tensor: str, *op_types: str) -> onnx.NodeProto | None:
    node = view.writers.get(tensor)
    return node if node is not None and is_standard(node, *op_types) else None


def _beside_number(view: View, node: onnx.NodeProto | None) -> tuple[str, float]:
    """Return both operands of a sum with a number; an empty name where it is none."""
    for place in range(2 if node is not None else 0):
        held = view.constant(node.input[place]) if node is not None else None
        if node is not None and held is not None and held.size == 1:
            return node.input[1 - place], float(held.reshape(-1)[0])
    return "", 0.0


def _is_squared(view: View, node: onnx.NodeProto, tensor: str) -> bool:
    if node.op_type == "Mul":
        return [*node.input] == [tensor, tensor]
    power = view.constant(node.input[1])
    return power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2


def _is_over_last(view: View, node: onnx.NodeProto, tensor: str) -> bool:
    shape, axes = view.shape(tensor), attribute(node, "axes")
    if axes is None and operand(node, 1):
        held = view.constant(operand(node, 1))
        axes = None if held is None else held.reshape(-1).tolist()
    is_kept = attribute(node, "keepdims", 1) == 1
    return bool(shape) and is_kept and axes is not None and [*axes] in ([-1], [len(shape or ()) - 1])


def _affine(view: View, before: onnx.NodeProto | None, op_type: str) -> tuple[onnx.NodeProto | None, str]:
    """Return the product or the sum with a constant that alone reads a node, and the constant."""
    node = None if before is None else view.only_reader(before.output[0])
    if before is None or node is None or not is_standard(node, op_type):
        return None, ""
    other = next((name for name in node.input if name != before.output[0]), "")
    return (node, other) if view.constant(other) is not None else (None, "")


def _is_closed(view: View, nodes: list[onnx.NodeProto]) -> bool:
    """Return whether no other node reads their results, but for those of the last one."""
    inside = {node.name for node in nodes}
    written = [name for node in nodes[:-1] for name in node.output]
    readers = [reader.name for name in written for reader in view.readers.get(name, ())]
    return inside.issuperset(readers) and view.returned.isdisjoint(written)


def _are_of_last_axis(view: View, tensor: str, parameters: tuple[str, str]) -> bool:
    size = (view.shape(tensor) or (None,))[-1]
    return size is not None and all(view.shape(name) == (size,) for name in parameters)
