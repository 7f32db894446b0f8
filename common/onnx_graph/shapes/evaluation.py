"""Evaluate one node by ONNX's reference implementation.

A model computes many shapes alike, and is inferred at several bindings of its dimensions. So nodes are compared without
their names, and results of few numbers are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from common.operators import MACHINE_LEARNING, ONNX

if TYPE_CHECKING:  # only a model that computes shapes should pay for the import
    from onnx.reference import ReferenceEvaluator

Array: TypeAlias = npt.NDArray[Any]  # of any element type
Value: TypeAlias = Array | list[object]  # a sequence is a list
LARGEST_KEPT = 256  # bytes of an operand
MOST_KEPT = 10_000  # results
MOST_EVALUATORS = 1_000
Opsets: TypeAlias = tuple[tuple[str, int], ...]
Results: TypeAlias = tuple[Value | None, ...]
Frozen: TypeAlias = tuple[np.dtype[np.generic], tuple[int, ...], bytes]


def evaluate(node: onnx.NodeProto, operands: Mapping[str, Value], opsets: Mapping[str, int]) -> dict[str, Value]:
    """Return the values of a node's outputs, or none where the reference implementation fails."""
    if node.domain not in (ONNX, "ai.onnx", MACHINE_LEARNING):
        return {}
    imports = tuple(opsets.items())
    if holds_bodies(node) or not all(map(is_small, operands.values())):
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


def _evaluator(node: onnx.NodeProto, operands: Iterable[str], imports: Opsets) -> ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    inputs = [helper.make_value_info(name, onnx.TypeProto()) for name in operands]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports]
    return ReferenceEvaluator(
        helper.make_model(helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets)
    )


def _computed(build: Callable[[], ReferenceEvaluator], operands: Mapping[str, Value]) -> Results:
    """Run the reference implementation. It reports failures by exceptions of any type: there is no result then."""
    try:
        with np.errstate(all="ignore"):
            results = build().run(None, dict(operands))
    except Exception:
        return ()
    arrays = (np.asarray(value) if isinstance(value, np.generic) else value for value in results)
    return tuple(value if isinstance(value, (np.ndarray, list)) else None for value in arrays)
