"""Two transposes that undo each other go, with element-wise operators between them computing in the other layout."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from common.mending.rewrite import Case, Edit, Mended, NoMend, rewritten
from common.mending.view import STANDARD, View, attribute, is_standard

UNARY = frozenset(
    [
        "Abs",
        "Cast",
        "Ceil",
        "Clip",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Log",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tanh",
    ]
)
BINARY = frozenset(["Add", "Div", "Mul", "Pow", "Sub"])


def cancel_transposes(case: Case) -> Mended | NoMend:
    return rewritten(case, ("Transpose",), _cancelled)


def _cancelled(view: View, first: onnx.NodeProto) -> Edit | NoMend:
    between: list[onnx.NodeProto] = []
    node = view.only_reader(first.output[0])
    while node is not None and _keeps_layout(view, node):
        between.append(node)
        node = view.only_reader(node.output[0])
    if node is None or not is_standard(node, "Transpose"):
        return NoMend("no other transpose follows it, with nothing but element-wise operators between them")
    before, after = attribute(first, "perm"), attribute(node, "perm")
    if not before or not after or [before[axis] for axis in after] != [*range(len(before))]:
        return NoMend("the transpose after it does not undo it")
    removed = [one.name for one in (first, *between, node)]
    resized = [one.output[0] for one in between]
    return Edit(removed, _joined(between, first, node), resized=resized)


def _keeps_layout(view: View, node: onnx.NodeProto) -> bool:
    """Return whether a node computes each element from one element and numbers."""
    if node.domain not in STANDARD:
        return False
    if node.op_type in BINARY:
        return any(
            (held := view.constant(name)) is not None and held.size == 1 and held.ndim <= 1 for name in node.input
        )
    return node.op_type in UNARY


def _joined(between: Sequence[onnx.NodeProto], first: onnx.NodeProto, last: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes between two transposes, which read what the first reads and write what the last writes."""
    if not between:
        return [helper.make_node("Identity", [first.input[0]], [last.output[0]], first.name)]
    copies = [onnx.NodeProto() for _ in between]
    for copy, node in zip(copies, between, strict=True):
        copy.CopyFrom(node)
    names = [first.input[0] if name == first.output[0] else name for name in copies[0].input]
    del copies[0].input[:]
    copies[0].input.extend(names)
    copies[-1].output[0] = last.output[0]
    return copies
