"""State of shape inference: the types, the values and the execution counts of bodies known so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from common.graph import Body, Count, Shape
from common.onnx_graph.regions import Region
from common.onnx_graph.types import UNKNOWN, TensorType, ValueType, merge
from common.onnx_graph.values import Values


@dataclass(slots=True)
class InferenceState:
    """Types of all values and execution counts of all bodies; both grow while a model is inferred.

    Attributes:
        opsets: operator set versions by domain.
        values: values that are known without running the model.
        types: known type and shape of each value, by name.
        passes: how often each body runs in one execution of its owner, and at most; None is unknown.
        changing: the shapes of the carried values that change from pass to pass, without the extents that change.
        bodies: how often each body runs, by name; filled when all else is inferred.
        needed: types at another binding of the dimensions: what is unknown there need not be known here. None without.
        bounded: whether a shape that depends on data takes its upper bound instead of staying unknown.
    """

    opsets: Mapping[str, int]
    values: Values
    types: dict[str, ValueType]
    passes: dict[str, tuple[Count | None, Count | None]] = field(default_factory=dict)
    changing: dict[str, Shape] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
    needed: Mapping[str, ValueType] | None = None
    bounded: bool = False

    def tensor_type(self, name: str) -> TensorType:
        """Return the known type and shape of a tensor; ``UNKNOWN`` for a value that is not a tensor."""
        known = self.types.get(name, UNKNOWN)
        return known if isinstance(known, TensorType) else UNKNOWN

    def learn(self, name: str, learned: ValueType) -> None:
        """Add to what is known of a value."""
        if name:
            self.types[name] = merge(self.types.get(name), learned)

    def learn_all(self, learned: Mapping[str, ValueType]) -> None:
        """Add to what is known of several values."""
        for name, value in learned.items():
            self.learn(name, value)

    def is_known(self, name: str) -> bool:
        """Return whether type and shape of a value are known completely."""
        known = self.types.get(name)
        return known is not None and (not isinstance(known, TensorType) or known.is_known)

    def is_settled(self, node: onnx.NodeProto) -> bool:
        """Return whether all that is needed is known of each output of a node."""
        return all(not name or self.is_known(name) or self._suffices(name, self.needed) for name in node.output)

    def has_unknowns(self, region: Region, needed: Mapping[str, ValueType] | None) -> bool:
        """Return whether a shape that is needed, or the number of passes through a body, depends on data."""
        passes = any(body.execution_count is None for body in self.bodies.values())
        return passes or any(not self.is_known(name) and not self._suffices(name, needed) for name in region.written())

    def _suffices(self, name: str, needed: Mapping[str, ValueType] | None) -> bool:
        """Return whether as much is known of a tensor as is needed."""
        if needed is None:
            return False
        other = needed.get(name, UNKNOWN)
        return isinstance(other, TensorType) and _covers(self.tensor_type(name).shape, other.shape)


def _covers(shape: Shape, other: Shape) -> bool:
    """Return whether a shape has an extent wherever the other one has."""
    if shape is None or other is None or len(shape) != len(other):
        return other is None
    return all(extent is not None or wanted is None for extent, wanted in zip(shape, other, strict=True))
