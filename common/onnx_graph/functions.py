"""How many nodes a model has once its local functions are inlined. Functions that call functions twice double it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx

MOST_NODES = 200_000  # ten times the largest models that exporters write
Key: TypeAlias = tuple[str, str, str]  # domain, name and overload of a function


def require_bounded(model: onnx.ModelProto) -> None:
    """Check that a model can be laid out with its functions inlined.

    Raises:
        ValueError: it has more than ``MOST_NODES`` nodes then, or a function calls itself.
    """
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    calls = {key: [*_called(function.node)] for key, function in functions.items()}
    counts: dict[Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            counts[key] = sum(counts[called] for called in calls[key]) if key in calls else 1
    except CycleError as error:
        raise ValueError(f"function {error.args[1][0][1]} calls itself") from None
    count = sum(counts.get(called, 1) for called in _called(model.graph.node))
    if count > MOST_NODES:
        raise ValueError(f"it would have more than {MOST_NODES} nodes")


def _called(nodes: Iterable[onnx.NodeProto]) -> Iterator[Key]:
    """Yield what each node calls, nodes of bodies included; an operator is no function and counts as one node."""
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _called(body.node)
