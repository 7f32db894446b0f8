"""State of shape inference: the types, the values and the execution counts of bodies known so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import onnx

from common.graphs.graph import Body, Count, Shape
from common.onnx_graph.shapes.regions import Region
from common.onnx_graph.shapes.types import UNKNOWN, TensorType, ValueType, is_complete, merge
from common.onnx_graph.shapes.values import Values


@dataclass(slots=True)
class InferenceState:
    """Types of all values and execution counts of all bodies; both grow while a model is inferred.

    Inference at a further binding of the dimensions knows the first one. It keeps the result of a node whose
    operands are the same, and what was unknown there need not be known here.
    """

    opsets: Mapping[str, int]
    values: Values
    types: dict[str, ValueType]
    # How often each body runs in one execution of its owner, and at most; None is unknown
    passes: dict[str, tuple[Count | None, Count | None]] = field(default_factory=dict)
    # The shapes of the carried values that change from pass to pass, without the extents that change
    changing: dict[str, Shape] = field(default_factory=dict)
    # How often each body runs, by name; filled when all else is inferred
    bodies: dict[str, Body] = field(default_factory=dict)
    bounded: bool = False  # whether a shape that depends on data is its upper bound instead of unknown
    # Names of the nodes outside bodies whose results ONNX's inference of the whole graph left unknown
    inferred: set[str] = field(default_factory=set)
    first: InferenceState | None = None  # the state at the first binding; None there
    # Names of the values outside bodies that are not as at the first binding, filled in graph order
    changed: set[str] = field(default_factory=set)

    def tensor_type(self, name: str) -> TensorType:
        """Return the known type and shape of a tensor; ``UNKNOWN`` for a value that is not a tensor."""
        known = self.types.get(name, UNKNOWN)
        return known if isinstance(known, TensorType) else UNKNOWN

    def learn(self, name: str, learned: ValueType) -> None:
        if name:
            self.types[name] = merge(self.types.get(name), learned)

    def learn_all(self, learned: Mapping[str, ValueType]) -> None:
        for name, value in learned.items():
            self.learn(name, value)

    def is_known(self, name: str) -> bool:
        return is_complete(self.types.get(name))

    def is_settled(self, node: onnx.NodeProto) -> bool:
        return all(not name or self.is_known(name) or self._suffices(name) for name in node.output)

    def has_unknowns(self, region: Region) -> bool:
        """Return whether a shape that is needed, or the number of passes through a body, depends on data."""
        passes = any(body.execution_count is None for body in self.bodies.values())
        return passes or any(not self.is_known(name) and not self._suffices(name) for name in region.written())

    def completes(self, other: InferenceState) -> bool:
        return any(is_complete(known) and not other.is_known(name) for name, known in self.types.items())

    def different(self, region: Region) -> dict[str, ValueType | None]:
        """Return the types that may be other ones than at the first binding; all of them there."""
        names = self.changed if self.first and not region.bodies else self.types
        return {name: self.types.get(name) for name in names}

    def to_visit(self, region: Region) -> Region:
        """Return a region with the nodes about which more is to be found than their declared types say.

        At a further binding these are the nodes whose results lack a type or had a value at the first one. Of the
        other results, this notes which are not as at the first binding. A value that was not found there counts as
        changed: it may be found here.
        """
        if not self.first:
            return region
        first, writers, constants = self.first, region.writers, self.values.constants
        owned = {name for name, node in writers.items() if node.name in region.bodies} if region.bodies else set[str]()
        incomplete = (name for name in writers if not is_complete(self.types.get(name)))
        unsettled = {name for name in incomplete if not self._suffices(name)} | owned
        sought = {name for name in first.values.known if name in writers and name not in constants} - unsettled
        agreed = {name for name in sought if first.values.known[name] is not None}
        settled = (name for name in chain(region.inputs, writers) if name not in unsettled)
        differing = (name for name in self.values.given if not self._has_same_value(name))
        self.changed.update(sought - agreed, filter(self._has_other_type, settled), differing)
        nodes = {id(node): node for name, node in writers.items() if name in unsettled or name in agreed}
        return replace(region, nodes=[*nodes.values()])

    def repeats(self, node: onnx.NodeProto) -> bool:
        """Return whether a node's operands are as at the first binding, and take over its results if so."""
        if not self.first or node.name not in self.first.inferred or not self.changed.isdisjoint(node.input):
            return False
        self.types.update((name, self.first.types[name]) for name in node.output if name in self.first.types)
        return True

    def compare(self, node: onnx.NodeProto, *, captures: bool = False) -> None:
        """Note which results of a node are not as at the first binding, and take over the values of the others."""
        if self.first:
            known, follows = self.first.values.known, not captures and self.changed.isdisjoint(node.input)
            for name in filter(None, node.output):
                if self._has_other_type(name) or not (follows or self._has_same_value(name)):
                    self.changed.add(name)
                elif name in known:
                    self.values.known.setdefault(name, known[name])

    def _suffices(self, name: str) -> bool:
        other = self.first.types.get(name, UNKNOWN) if self.first else None
        return isinstance(other, TensorType) and _covers(self.tensor_type(name).shape, other.shape)

    def _has_other_type(self, name: str) -> bool:
        """Return whether a type is not as at the first binding; values of one type mostly share one object."""
        here, there = self.types.get(name), self.first.types.get(name) if self.first else None
        return here is not there and here != there

    def _has_same_value(self, name: str) -> bool:
        """Return whether a value that was sought at the first binding was found there and is the same here."""
        if not self.first or name not in self.first.values.known:
            return True
        before = self.first.values.find(name)
        now = None if before is None else self.values.find(name)
        return before is not None and now is not None and before.dtype == now.dtype and np.array_equal(before, now)


def _covers(shape: Shape, other: Shape) -> bool:
    if shape is None or other is None or len(shape) != len(other):
        return other is None
    return all(extent is not None or wanted is None for extent, wanted in zip(shape, other, strict=True))
