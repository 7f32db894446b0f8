"""Execution providers: whether the one that was asked for ran the nodes."""

from __future__ import annotations

from common.errors import PipelineError
from common.profiling.trace import Trace


def require_provider(trace: Trace, provider: str) -> None:
    """Refuse a trace in which other providers than the one asked for ran nodes.

    Raises:
        PipelineError: naming the nodes.
    """
    others = [node for node in trace.nodes.values() if node.provider != provider]
    if others:
        named = ", ".join(f"{node.name} ({node.op_type} on {node.provider})" for node in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise PipelineError(f"--provider {provider}", f"did not take {named}{more}", "profile on the CPU")
