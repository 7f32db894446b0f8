"""An Einsum of two operands becomes Transpose and MatMul, which the runtime fuses with what is around them.

Labels of both operands and of the result are a batch, labels of both operands alone are summed, and the other ones are
rows or columns of a product (Kolda, Bader 2009, SIAM Review 51(3), 2.4, matricization).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import Array, View, attribute


@dataclass(frozen=True, slots=True)
class Labels:
    """The axes of a product of two operands, by what they are in it."""

    batch: str
    rows: str
    columns: str
    summed: str


def _labels(terms: Sequence[str], result: str) -> Labels | None:
    """Return the labels; None if one is alone or twice in a term, or rows, columns or sums are not there."""
    left, right, kept = {*terms[0]}, {*terms[1]}, {*result}
    batch, rows, columns = (
        "".join(label for label in result if label in group) for group in (left & right, left - right, right - left)
    )
    summed = "".join(label for label in terms[0] if label in right - kept)
    is_product = left | right | kept == {*batch, *rows, *columns, *summed} and all((rows, columns, summed))
    is_plain = all(len({*term}) == len(term) and term.isalpha() for term in (*terms, result))
    return Labels(batch, rows, columns, summed) if is_product and is_plain else None


@mend_of("Einsum")
def expand_einsum(view: View, node: onnx.NodeProto) -> Edit | NoMend:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    operands, _, result = equation.partition("->")
    terms = operands.split(",")
    if len(terms) != 2 or (labels := _labels(terms, result)) is None:
        return NoMend("it is no product of two operands with rows, columns and a sum")
    sizes = _sizes(view, node, terms)
    if sizes is None:
        return NoMend("its operands have unknown, or different, sizes")
    steps = _Steps(view, node, sizes)
    left = steps.arranged(node.input[0], terms[0], labels.batch, (labels.rows, labels.summed))
    right = steps.arranged(node.input[1], terms[1], labels.batch, (labels.summed, labels.columns))
    product = steps.added("MatMul", [left, right])
    spread = steps.spread(product, labels.batch, (labels.rows, labels.columns))
    return steps.ended(steps.transposed(spread, labels.batch + labels.rows + labels.columns, result))


def _sizes(view: View, node: onnx.NodeProto, terms: Sequence[str]) -> dict[str, int] | None:
    """Return the size of each label; None where one is unknown or differs."""
    sizes: dict[str, int] = {}
    for tensor, term in zip(node.input, terms, strict=True):
        shape = view.shape(tensor)
        if shape is None or len(shape) != len(term):
            return None
        for label, size in zip(term, shape, strict=True):
            if size is None or sizes.setdefault(label, size) != size:
                return None
    return sizes


class _Steps:
    """The nodes that replace an Einsum, one after another, and their constants."""

    def __init__(self, view: View, node: onnx.NodeProto, sizes: dict[str, int]) -> None:
        self.view, self.node, self.sizes = view, node, sizes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def added(self, op_type: str, operands: Sequence[str], **attributes: Any) -> str:
        name = f"{self.node.name}/{op_type}_{len(self.nodes)}"
        result = fresh(self.view, f"{name}_result")
        self.nodes.append(helper.make_node(op_type, operands, [result], name, **attributes))
        return result

    def arranged(self, tensor: str, term: str, batch: str, matrix: Sequence[str]) -> str:
        """Return an operand as a batch of matrices; the batch keeps its axes."""
        tensor = self.transposed(tensor, term, batch + "".join(matrix))
        if all(len(part) == 1 for part in matrix):
            return tensor
        extents = [int(np.prod([self.sizes[label] for label in part])) for part in matrix]
        return self._reshaped(tensor, [*(self.sizes[label] for label in batch), *extents])

    def transposed(self, tensor: str, before: str, after: str) -> str:
        if before == after:
            return tensor
        return self.added("Transpose", [tensor], perm=[before.index(label) for label in after])

    def spread(self, tensor: str, batch: str, matrix: Sequence[str]) -> str:
        """Return a batch of matrices with an axis per label."""
        if all(len(part) == 1 for part in matrix):
            return tensor
        return self._reshaped(tensor, [self.sizes[label] for label in batch + "".join(matrix)])

    def _reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        name = fresh(self.view, f"{self.node.name}/shape_{len(self.nodes)}")
        self.weights[name] = np.array(shape, np.int64)
        return self.added("Reshape", [tensor, name])

    def ended(self, tensor: str) -> Edit:
        """Return the edit; the last node writes what the Einsum wrote."""
        last = next(node for node in reversed(self.nodes) if node.output[0] == tensor)
        last.output[0] = self.node.output[0]
        return Edit([self.node.name], self.nodes, self.weights)
