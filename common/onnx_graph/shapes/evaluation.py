"""Evaluate one node by ONNX's reference implementation.

A model computes many shapes alike, and is inferred at several bindings of its dimensions. So nodes are compared without
their names, and results of few numbers are kept. What may be evaluated at all is the subject of ``budget``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import helper

from common.graphs.operators import MACHINE_LEARNING, ONNX
from common.onnx_graph.shapes.budget import EvaluationBudget
from common.onnx_graph.shapes.types import Array, Value

if TYPE_CHECKING:  # only a model that computes shapes should pay for the import
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

LARGEST_KEPT = 256  # bytes of an operand
MOST_KEPT = 10_000  # results
MOST_EVALUATORS = 1_000
Opsets: TypeAlias = tuple[tuple[str, int], ...]
Results: TypeAlias = tuple[Value | None, ...]
Frozen: TypeAlias = tuple[np.dtype[np.generic], tuple[int, ...], bytes]


def evaluate(
    node: onnx.NodeProto, operands: Mapping[str, Value], opsets: Mapping[str, int], budget: EvaluationBudget
) -> dict[str, Value]:
    """Return the values of a node's outputs; none where it exceeds the budget, or the implementation fails."""
    if node.domain not in (ONNX, "ai.onnx", MACHINE_LEARNING):
        return {}
    if not budget.allows(node, [operands.get(name) for name in node.input if name], opsets):
        return {}
    imports = tuple(opsets.items())
    if holds_bodies(node):
        results = _computed(lambda: _evaluator(node, operands, imports, budget), operands)
    elif not all(map(is_small, operands.values())):
        results = _computed(lambda: _evaluator(node, operands, imports), operands)
    else:
        results = _kept(nameless(node), tuple(frozen(operands.get(name)) for name in node.input), imports)
    named = zip((name for name in node.output if name), results, strict=False)
    return {name: value for name, value in named if value is not None}


def holds_bodies(node: onnx.NodeProto) -> bool:
    """Return whether a node has bodies, which read values by their names."""
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def nameless(node: onnx.NodeProto) -> bytes:
    """Return a node without bodies as bytes, its values named by their places: ``x0``, ``y0``."""
    alike = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
    alike.input.extend(name and f"x{index}" for index, name in enumerate(node.input))
    alike.output.extend(name and f"y{index}" for index, name in enumerate(node.output))
    return bytes(alike.SerializeToString())


def is_small(value: Value) -> bool:
    return isinstance(value, np.ndarray) and not value.dtype.hasobject and value.nbytes <= LARGEST_KEPT


def frozen(value: Value | None) -> Frozen | None:
    return None if not isinstance(value, np.ndarray) else (value.dtype, value.shape, value.tobytes())


def thawed(key: Frozen) -> Array:
    dtype, shape, content = key
    return np.frombuffer(content, dtype).reshape(shape)


@lru_cache(MOST_KEPT)
def _kept(content: bytes, operands: tuple[Frozen | None, ...], imports: Opsets) -> Results:
    values = {f"x{index}": thawed(key) for index, key in enumerate(operands) if key}
    return _computed(lambda: _kept_evaluator(content, imports), values)


@lru_cache(MOST_EVALUATORS)
def _kept_evaluator(content: bytes, imports: Opsets) -> ReferenceEvaluator:
    """Return the evaluator of all nodes of the same attributes: it takes longer to build than to run."""
    node = onnx.NodeProto.FromString(content)
    return _evaluator(node, filter(None, node.input), imports)


def forget() -> None:
    """Free the memory of all results and evaluators that were kept."""
    _kept.cache_clear()
    _kept_evaluator.cache_clear()


def _evaluator(
    node: onnx.NodeProto, operands: Iterable[str], imports: Opsets, of_bodies: EvaluationBudget | None = None
) -> ReferenceEvaluator:
    """Return an evaluator of one node; the nodes of its bodies spend ``of_bodies``."""
    from onnx.reference import ReferenceEvaluator

    evaluator = _bounded(ReferenceEvaluator, of_bodies) if of_bodies else ReferenceEvaluator
    inputs = [helper.make_value_info(name, onnx.TypeProto()) for name in operands]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports]
    return evaluator(helper.make_model(helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets))


def _bounded(evaluator: type[ReferenceEvaluator], budget: EvaluationBudget) -> type[ReferenceEvaluator]:
    """Return an evaluator that asks before each node of a body; it builds the evaluators of inner bodies, too."""

    class Bounded(evaluator):  # type: ignore[valid-type, misc]
        def _init(self) -> None:
            super()._init()
            self.rt_nodes_ = [_BoundedNode(node, budget, self.opsets) for node in self.rt_nodes_]  # type: ignore[has-type]

    return Bounded


class _BoundedNode:
    """A node of the reference implementation that runs only if the budget allows it.

    To the implementation a Loop without a condition is one whose condition is false; ONNX runs it to its trip count.
    """

    def __init__(self, node: OpRun, budget: EvaluationBudget, opsets: Mapping[str, int]) -> None:
        self._node, self._budget, self._opsets = node, budget, opsets

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    def run(self, *operands: Value | None, **context: object) -> Sequence[Value]:
        node = self._node.onnx_node
        given = [value for name, value in zip(node.input, operands, strict=False) if name]
        if not self._budget.allows(node, given, self._opsets):
            raise RuntimeError(f"{node.op_type} takes more operations than are left")
        if node.op_type == "Loop" and operands[1] is None:
            operands = operands[0], np.array(True), *operands[2:]
        results: Sequence[Value] = self._node.run(*operands, **context)  # type: ignore[no-untyped-call]
        return results


def _computed(build: Callable[[], ReferenceEvaluator], operands: Mapping[str, Value]) -> Results:
    """Run the reference implementation. It reports failures by exceptions of any type: there is no result then."""
    try:
        with np.errstate(all="ignore"):
            results = build().run(None, dict(operands))
    except Exception:
        return ()
    arrays = (np.asarray(value) if isinstance(value, np.generic) else value for value in results)
    return tuple(value if isinstance(value, (np.ndarray, list)) else None for value in arrays)
