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

from common.mending.rewrite import Case, Edit, Mended, NoMend, fresh, rewritten
from common.mending.view import Array, View, attribute


@dataclass(frozen=True, slots=True)
class Labels:
    """The axes of a product of two operands, by what they are in it."""

    first: str
    second: str
    result: str

    @property
    def batch(self) -> str:
        return "".join(label for label in self.result if label in self.first and label in self.second)

    @property
    def rows(self) -> str:
        return "".join(label for label in self.result if label in self.first and label not in self.second)

    @property
    def columns(self) -> str:
        return "".join(label for label in self.result if label in self.second and label not in self.first)

    @property
    def summed(self) -> str:
        return "".join(label for label in self.first if label in self.second and label not in self.result)

    @property
    def is_product(self) -> bool:
        """Whether no label is alone or twice in a term, and rows, columns and sums are there."""
        terms = (self.first, self.second, self.result)
        known = {*self.batch, *self.rows, *self.columns, *self.summed}
        return (
            all(len({*term}) == len(term) and term.isalpha() for term in terms)
            and {*"".join(terms)} == known
            and all((self.rows, self.columns, self.summed))
        )


def expand_einsum(case: Case) -> Mended | NoMend:
    return rewritten(case, ("Einsum",), _expanded)


def _expanded(view: View, node: onnx.NodeProto) -> Edit | NoMend:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    operands, _, result = equation.partition("->")
    terms = operands.split(",")
    if len(terms) != 2 or not result or not (labels := Labels(terms[0], terms[1], result)).is_product:
        return NoMend("it is no product of two operands with rows, columns and a sum")
    sizes = _sizes(view, node, labels)
    if sizes is None:
        return NoMend("its operands have unknown, or different, sizes")
    steps = _Steps(view, node, sizes)
    left = steps.arranged(node.input[0], labels.first, (labels.batch, labels.rows, labels.summed))
    right = steps.arranged(node.input[1], labels.second, (labels.batch, labels.summed, labels.columns))
    product = steps.added("MatMul", [left, right])
    spread = steps.spread(product, labels.batch, (labels.rows, labels.columns))
    return steps.ended(steps.transposed(spread, labels.batch + labels.rows + labels.columns, result))


def _sizes(view: View, node: onnx.NodeProto, labels: Labels) -> dict[str, int] | None:
    """Return the size of each label; None where one is unknown or differs."""
    sizes: dict[str, int] = {}
    for tensor, term in zip(node.input, (labels.first, labels.second), strict=True):
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

    def arranged(self, tensor: str, term: str, parts: tuple[str, str, str]) -> str:
        """Return an operand as a batch of matrices; the batch keeps its axes."""
        batch, *matrix = parts
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
