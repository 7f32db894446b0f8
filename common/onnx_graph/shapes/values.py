"""Values that are known without running the model: small constants, given inputs, and values computed from them.

Models compute shapes by nodes (Shape, Gather, Mul, Concat, ...). Such a node is evaluated on demand, by ONNX's
reference implementation, and only if its operands are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from common.graphs.operators import SHAPE_CONSTANTS
from common.onnx_graph.shapes.budget import LARGEST_OPERAND, NEVER_EVALUATED, EvaluationBudget
from common.onnx_graph.shapes.evaluation import evaluate
from common.onnx_graph.shapes.regions import Region
from common.onnx_graph.shapes.types import Array, TensorType, Value, ValueType


@dataclass(slots=True)
class Values:
    """Known values by tensor name; ``find`` returns None for a value that only a run of the model gives."""

    types: Mapping[str, ValueType]  # known type and shape of every value; grows while the model is inferred
    opsets: Mapping[str, int]
    given: Mapping[str, Array]
    # Values found so far; None for a value that cannot be found
    known: dict[str, Value | None] = field(default_factory=dict)
    # Values of the constants found so far, which hold at any sizes
    constants: dict[str, Array | None] = field(default_factory=dict)
    budget: EvaluationBudget = field(default_factory=EvaluationBudget)  # what may still be computed
    _writers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    _initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    _read: dict[str, list[str]] = field(default_factory=dict)

    def add_region(self, region: Region) -> None:
        self._initializers.update(region.initializers)
        self._writers.update(region.writers)

    def find(self, name: str) -> Array | None:
        """Return the value of a tensor, or None. Chains of nodes may be long, so this does not recurse."""
        waiting, entered = [] if name in self.known else [name], set[str]()
        while waiting:
            current = waiting[-1]
            needed = [operand for operand in self._needed(current) if operand not in self.known]
            if current not in self.known and needed and current not in entered and not self._is_hopeless(current):
                entered.add(current)
                waiting += needed
            else:  # a name that still needs others after it was entered cannot be evaluated, or depends on itself
                waiting.pop()
                self.known.setdefault(current, None if needed else self._value(current))
        value = self.known[name]
        return value if isinstance(value, np.ndarray) else None

    def _needed(self, name: str) -> list[str]:
        node = self._writers.get(name)
        if node is None or name in self._initializers or node.op_type in SHAPE_CONSTANTS:
            return []
        return self._read_by(name)

    def _read_by(self, name: str) -> list[str]:
        if name not in self._read:
            self._read[name] = read_by(self._writers[name])
        return self._read[name]

    def _is_hopeless(self, name: str) -> bool:
        """Return whether an operand has no value or is too large to be evaluated."""
        node = self._writers[name]
        if _is_never_evaluated(node):
            return True
        return any(
            (operand in self.known and self.known[operand] is None) or self._is_large(operand)
            for operand in self._read_by(name)
        )

    def _is_large(self, name: str) -> bool:
        known = self.types.get(name)
        return isinstance(known, TensorType) and (known.element_count or 0) > LARGEST_OPERAND

    def _value(self, name: str) -> Value | None:
        if name in self.given:
            return self.given[name]
        node = self._writers.get(name)
        if (stored := self._initializers.get(name) or _constant(node)) is not None:
            if name not in self.constants:
                self.constants[name] = stored_value(stored)
            return self.constants[name]
        if node is None or _is_never_evaluated(node) or self._is_large(name):
            return None
        if node.op_type in ("Shape", "Size") and not node.domain:
            return self._extent(node)
        operands = {operand: self.known.get(operand) for operand in self._read_by(name)}
        if any(value is None for value in operands.values()):
            return None
        known = {key: value for key, value in operands.items() if value is not None}
        return evaluate(node, known, self.opsets, self.budget).get(name)

    def _extent(self, node: onnx.NodeProto) -> Array | None:
        operand = self.types.get(node.input[0])
        if not isinstance(operand, TensorType) or operand.element_count is None:
            return None
        dims = np.array(operand.shape, np.int64)
        if node.op_type == "Size":
            return np.array(dims.prod(), np.int64)
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        return dims[bounds.get("start", 0) : bounds.get("end", len(dims))]


def _is_never_evaluated(node: onnx.NodeProto) -> bool:
    return node.op_type in NEVER_EVALUATED and not node.domain


def _constant(node: onnx.NodeProto | None) -> onnx.TensorProto | None:
    if node is None or node.op_type != "Constant" or node.domain:
        return None
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)


def stored_value(tensor: onnx.TensorProto) -> Array | None:
    return numpy_helper.to_array(tensor) if has_value(tensor) else None


def has_value(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor's value is at hand, which is not so where the scan left its payload in the file."""
    if uses_external_data(tensor):
        return False
    is_stored = (field.name.endswith("_data") and field.name != "external_data" for field, _ in tensor.ListFields())
    return 0 in tensor.dims or any(is_stored)


def read_by(node: onnx.NodeProto) -> list[str]:
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names += _captured(attribute.g)
    return list(dict.fromkeys(names))


def _captured(graph: onnx.GraphProto) -> list[str]:
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {name for node in graph.node for name in node.output}
    used = [name for node in graph.node for name in read_by(node)] + [value.name for value in graph.output]
    return [name for name in used if name not in defined]
