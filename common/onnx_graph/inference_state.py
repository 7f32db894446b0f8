"""State of shape inference: the types, the values and the execution counts of bodies known so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        bounded: whether a shape that depends on data takes its upper bound instead of staying unknown.
    """

    opsets: Mapping[str, int]
    values: Values
    types: dict[str, ValueType]
    passes: dict[str, tuple[Count | None, Count | None]] = field(default_factory=dict)
    changing: dict[str, Shape] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
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

    def has_unknowns(self, region: Region) -> bool:
        """Return whether a shape, or the number of passes through a body, depends on data."""
        passes = any(body.execution_count is None for body in self.bodies.values())
        written = (name for part in region.walk() for node in part.nodes for name in node.output if name)
        return passes or any(not self.is_known(name) for name in written)
