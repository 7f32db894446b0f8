"""Check that the requested execution provider takes the nodes, before any run and after all of them.

``get_providers()`` lists what was requested. Evidence is the runtime's own assignment of the graph, and the provider
that the trace names for each node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from common.messages.errors import PipelineError
from common.messages.names import listed
from common.runtime.providers.provider_table import find_provider

LISTED = 100  # nodes that an error names: enough for a usual model
# Shape arithmetic that a provider with `leaves_shapes` may leave on the CPU: integers, at most as many elements as ONNX
# Runtime's own bound (kSmallInitializerThreshold in its fallback_cpu_capability.cc).
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
    """A node and the provider that the runtime gave it to; ``subgraph`` counts the parts of the divided graph."""

    name: str
    op_type: str
    provider: str
    subgraph: int


def assigned_nodes(session: Any) -> list[AssignedNode]:
    """List the nodes of a session with their providers; the session must record its assignment."""
    return [
        AssignedNode(str(node.name), str(node.op_type), str(part.ep_name), index)
        for index, part in enumerate(session.get_provider_graph_assignment_info())
        for node in part.get_nodes()
    ]


def require_assignment(session: Any, provider: str) -> None:
    """Refuse a session, before it runs, in which another provider was given nodes, or whose library did not load."""
    row = find_provider(provider)
    if provider not in session.get_providers():
        needs = f"it needs {row.needs}" if row else "see its documentation for what it needs"
        raise PipelineError(f"<provider> {provider}", "its library does not load, and the CPU would run all", needs)
    nodes = [node for node in assigned_nodes(session) if node.provider != provider]
    may_stay = SHAPE_OPERATORS if row and row.leaves_shapes else frozenset()
    refuse(provider, ((node.name, node.op_type, node.provider) for node in nodes if node.op_type not in may_stay))


def refuse(provider: str, left: Iterable[tuple[str, str, str]]) -> None:
    """Refuse nodes that another provider has: name, operator and provider of each."""
    texts = [f"{name or 'an unnamed node'} ({op_type} on {other})" for name, op_type, other in left]
    if texts:
        problem = f"did not take {listed(texts, LISTED)}"
        raise PipelineError(f"<provider> {provider}", problem, "profile on the CPU")
