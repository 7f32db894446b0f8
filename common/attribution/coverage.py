"""Checks that the attribution accounts for the time: the share that has an owner, and the gap between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.errors import PipelineError
from common.host_doubts import EXPECTED_GAP_SHARE

LEAST_COVERAGE = 0.999


def require_coverage(table: object, nodes: Iterable[Mapping[str, Any]], trace_total_us: float) -> float:
    """Return the share of the traced kernel time in nodes that have source nodes, or serve the layout of one that has.

    Args:
        table: what the times were read from, for errors.
        nodes: ``raw_total_us``, ``source_nodes`` and ``layout_of`` of each executed node.
        trace_total_us: time of all node events of the trace.

    Raises:
        PipelineError: the share is below ``LEAST_COVERAGE``: the tables would not account for the time.
    """
    if not trace_total_us:
        raise PipelineError(table, "holds no time at all", "rerun <op_latency>")
    owned_us = sum(row["raw_total_us"] for row in nodes if row["source_nodes"] or row["layout_of"])
    share: float = owned_us / trace_total_us
    if share < LEAST_COVERAGE:
        remedy = "attribution fails on this model; profile it with another <optimization>"
        raise PipelineError(table, f"only {share:.2%} of its time has an owner", remedy)
    return share


def gap_notes(gap_share: float) -> list[str]:
    """Return a note on a gap between nodes that scheduling does not explain: something was measured wrongly."""
    low, high = EXPECTED_GAP_SHARE
    if low <= gap_share <= high:
        return []
    remedy = "rerun <op_latency> with more runs on an idle host; a model of many tiny nodes has a real gap"
    return [f"the gap between nodes is {gap_share:+.1%} of the latency, expected {low:+.0%} to {high:+.0%}; {remedy}"]
