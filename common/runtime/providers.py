"""Execution providers: whether the one that was asked for takes the nodes, before any run and after all of them.

What ``get_providers()`` lists is what was asked for. Evidence is the runtime's own assignment of the graph, and the
provider that the trace names beside each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import PipelineError
from common.runtime.provider_table import find_provider

LISTED = 100  # nodes that an error names: enough for all that a usual model leaves
# Of what a provider of `leaves_shapes` may leave on the CPU: integers, no more elements than ONNX Runtime's own bound
# (kSmallInitializerThreshold of its fallback_cpu_capability.cc).
SHAPE_ELEMENTS = 100
SHAPE_DTYPES = frozenset({"int32", "int64", "bool"})
# fmt: off
SHAPE_OPERATORS = frozenset({
    "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal",
    "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min",
    "Mod", "Mul", "Not", "Or", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "Reshape",
    "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Sub", "Unsqueeze", "Where",
})
# fmt: on


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node of the graph that the runtime divided among providers; ``subgraph`` numbers the parts as they came."""

    name: str
    op_type: str
    provider: str
    subgraph: int


def assigned_nodes(session: Any) -> list[AssignedNode]:
    """Which provider the runtime gave each node to, of a session that records it."""
    return [
        AssignedNode(str(node.name), str(node.op_type), str(part.ep_name), index)
        for index, part in enumerate(session.get_provider_graph_assignment_info())
        for node in part.get_nodes()
    ]


def assignment(session: Any) -> Mapping[str, str]:
    """The provider of each node, by its name."""
    return {node.name: node.provider for node in assigned_nodes(session)}


def require_assignment(session: Any, provider: str) -> None:
    """Refuse a session in which another provider was given nodes, before it has run.

    Raises:
        PipelineError: naming the nodes, or saying that the provider's library did not load.
    """
    row = find_provider(provider)
    if provider not in session.get_providers():
        needs = f"it needs {row.needs}" if row else "see its documentation for what it needs"
        raise PipelineError(f"--provider {provider}", "its library does not load, and the CPU would run all", needs)
    nodes = [node for node in assigned_nodes(session) if node.provider != provider]
    may_stay = SHAPE_OPERATORS if row and row.leaves_shapes else frozenset()
    refuse(provider, ((node.name, node.op_type, node.provider) for node in nodes if node.op_type not in may_stay))


def refuse(provider: str, left: Iterable[tuple[str, str, str]]) -> None:
    """Raise where nodes, each with its operator and the provider that has it, are left."""
    texts = [f"{name or 'an unnamed node'} ({op_type} on {other})" for name, op_type, other in left]
    if texts:
        more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
        problem = f"did not take {', '.join(texts[:LISTED])}{more}"
        raise PipelineError(f"--provider {provider}", problem, "profile on the CPU")
