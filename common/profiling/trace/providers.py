"""Execution providers that a trace names: evidence of where each node ran."""

from __future__ import annotations

from math import prod

from common.profiling.trace.reader import NodeTrace, Trace
from common.runtime.providers.provider_check import SHAPE_DTYPES, SHAPE_ELEMENTS, SHAPE_OPERATORS, refuse
from common.runtime.providers.provider_table import CPU, find_provider


def require_provider(trace: Trace, provider: str) -> None:
    """Refuse a trace in which other providers than the requested one ran nodes.

    Raises:
        PipelineError: naming the nodes.
    """
    left = {node.name for node in left_on_cpu(trace, provider)}
    others = (node for node in trace.nodes.values() if node.provider != provider and node.name not in left)
    refuse(provider, ((node.name, node.op_type, node.provider) for node in others))


def left_on_cpu(trace: Trace, provider: str) -> list[NodeTrace]:
    """List the shape arithmetic that the runtime keeps on the CPU for a provider by design."""
    row = find_provider(provider)
    if row is None or not row.leaves_shapes:
        return []
    return [node for node in trace.nodes.values() if node.provider == CPU and _is_shape_arithmetic(node)]


def _is_shape_arithmetic(node: NodeTrace) -> bool:
    few = all(prod(shape) <= SHAPE_ELEMENTS for shape in node.output_shapes)
    return few and node.op_type in SHAPE_OPERATORS and set(node.output_dtypes) <= SHAPE_DTYPES
