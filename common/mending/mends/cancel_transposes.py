"""Two transposes that undo each other go, with element-wise operators between them computing in the other layout."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import onnx
from onnx import helper

from common.mending.rewrite import Edit, NoMend, mend_of
from common.mending.view import ACTIVATIONS, STANDARD, View, attribute, is_standard

ARITHMETIC = frozenset(["Abs", "Ceil", "Erf", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sqrt"])
UNARY = ACTIVATIONS | ARITHMETIC | {"Cast", "Gelu", "Identity", "Softplus", "Softsign"}
BINARY = frozenset(["Add", "Div", "Mul", "Pow", "Sub"])


@mend_of("Transpose")
def cancel_transposes(view: View, first: onnx.NodeProto) -> Edit | NoMend:
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
        return any(view.shape(name) in ((), (1,)) and name in view.constants for name in node.input)
    return node.op_type in UNARY


def _joined(between: Sequence[onnx.NodeProto], first: onnx.NodeProto, last: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes between two transposes, which read what the first reads and write what the last writes."""
    if not between:
        return [helper.make_node("Identity", [first.input[0]], [last.output[0]], first.name)]
    copies = [deepcopy(node) for node in between]
    copies[0].input[:] = [first.input[0] if name == first.output[0] else name for name in copies[0].input]
    copies[-1].output[0] = last.output[0]
    return copies
