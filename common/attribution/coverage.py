"""Whether the attribution accounts for the time: shares that have an owner, and the gap between nodes."""

from __future__ import annotations

from common.errors import PipelineError

LEAST_COVERAGE = 0.999
EXPECTED_GAP_SHARE = (-0.03, 0.08)


def require_coverage(path: object, owned_us: float, trace_total_us: float) -> float:
    """Share of the traced kernel time in nodes with source nodes, or with an owner of the layout they serve.

    Raises:
        PipelineError: it is below ``LEAST_COVERAGE``: the tables would not account for the time.
    """
    if not trace_total_us:
        raise PipelineError(path, "holds no time at all", "run 01_profile_onnx.py again")
    share = owned_us / trace_total_us
    if share < LEAST_COVERAGE:
        raise PipelineError(path, f"only {share:.2%} of its time has an owner", "attribution fails on this model")
    return share


def gap_notes(gap_share: float) -> list[str]:
    """A gap between nodes that scheduling does not explain says that something was measured wrongly."""
    low, high = EXPECTED_GAP_SHARE
    if low <= gap_share <= high:
        return []
    remedy = "rerun 01_profile_onnx.py with more --runs on an idle host; many tiny nodes have a real gap"
    return [f"the gap between nodes is {gap_share:+.1%} of the latency, expected {low:+.0%} to {high:+.0%}; {remedy}"]
