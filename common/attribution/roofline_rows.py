"""Rows of op_roofline: executed nodes with their work, under the roof of their number format, and the gap between them.

Every microsecond of the trace is in one row. The gap is the unprofiled median latency less the sum of the node times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from common.attribution.known_work import KnownWork, known_work, model_shapes
from common.attribution.ownership import Attribution
from common.attribution.share_reasons import Reason, share_reason
from common.graphs.graph import GAP, Traffic, WorkInRun
from common.messages.errors import PipelineError
from common.messages.host_doubts import EXPECTED_GAP_SHARE
from common.roofline import Roofs, place
from common.table_rows import OpLatencyRow, OpMetricsRow, OpRooflineRow

UNSTATED: frozenset[Reason | None] = frozenset({"other_device", "unstable"})  # reasons to state no share
LEAST_COVERAGE = 0.999
LARGEST_SUM_ERROR = 1e-9  # of a sum of doubles
UNKNOWN_GAP = (
    "no gap between nodes is known: the profile has no unprofiled median; shares refer to the sum of node times"
)
AT_ONCE = "several nodes were executed at once; gains and plans assume one node at a time and do not hold"
UNCORRECTED = "node times include the unknown time that the profiler adds; rates of short nodes are too low"


def roofline_rows(
    nodes: Sequence[OpLatencyRow],
    metrics: Mapping[str, OpMetricsRow],
    attribution: Attribution,
    moved: Mapping[str, Traffic],
    count: Callable[..., WorkInRun],
    roofs: Roofs,
    median_us: float | None,
) -> list[OpRooflineRow]:
    """Return the executed nodes with the work of their source nodes, and the gap as the last row.

    ``count`` counts a node by the shapes that ran, or that the model has in their place. Without the unprofiled median
    there is no gap, and the shares refer to the sum of the node times.
    """
    nodes_us = sum(time_in_run_us(timed) for timed in nodes)
    whole_us = median_us or nodes_us
    rows = []
    for timed in nodes:
        name = timed["executed_node"]
        sources = [metrics[source] for source in attribution.sources.get(name, ())]
        work = known_work(sources, moved[name], partial(count, timed, model_shapes(timed, sources)))
        layout_of = attribution.layout_of.get(name, "")
        rows.append(_node_row(timed, sources, work, count(timed), roofs, layout_of=layout_of, whole_us=whole_us))
    return [*rows, _gap_row(whole_us - nodes_us, whole_us)] if median_us else rows


def us_by_part(rows: Iterable[OpRooflineRow], metrics: Mapping[str, OpMetricsRow]) -> dict[str, float]:
    """Return the time of each part of a generative model: a node belongs where its last source node does."""
    times_us: dict[str, float] = {}
    for row in rows:
        part = metrics[row["source_nodes"][-1]]["model_part"] if row["source_nodes"] else None
        if part:
            times_us[part] = times_us.get(part, 0.0) + row["node_latency_us"]
    return times_us


def _node_row(
    timed: OpLatencyRow,
    sources: Sequence[OpMetricsRow],
    work: KnownWork,
    executed: WorkInRun,
    roofs: Roofs,
    *,
    layout_of: str,
    whole_us: float,
) -> OpRooflineRow:
    """Return the row of one executed node.

    ``sources`` are the source nodes that it computes; a node that the runtime inserted has none, and may serve the
    layout of another one. ``executed`` is the work of its own operator, ``whole_us`` the time that its share refers to.
    """
    latency_us, dtype = time_in_run_us(timed), next(iter(timed["output_dtypes"]), "")
    roof = roofs.roof(timed["op_type"], dtype)
    placed = place(ceilings := roofs.under(roof), work.flops, work.bytes, latency_us)
    reason: Reason | None = "other_device"
    if is_judged := roofs.is_of_profile:
        reason = share_reason(placed, ceilings, roofs, timed, sources, work, executed)
    share = None if reason in UNSTATED else placed.roof_share
    return {
        "executed_node": timed["executed_node"],
        "row_kind": "node" if sources else "inserted",
        "op_type": timed["op_type"],
        "domain": timed["domain"],
        "execution_index": timed["execution_index"],
        "events_per_run_count": timed["events_per_run_count"],
        "source_nodes": [row["source_node"] for row in sources],
        "op_types": [row["op_type"] for row in sources],
        "layout_of": layout_of,
        "dtype": dtype,
        "raw_total_us": timed["raw_total_us"],
        "raw_median_us": timed["raw_median_us"],
        "node_latency_us": latency_us,
        "latency_share": latency_us / whole_us,
        "is_correction_dominated": timed["is_correction_dominated"],
        "macs": work.macs,
        "executed_macs": executed.macs,
        "flops": work.flops,
        "weight_bytes": work.weight_bytes,
        "input_bytes": work.input_bytes,
        "output_bytes": work.output_bytes,
        "bytes": work.bytes,
        "work_source": work.work_source,
        "arithmetic_intensity_flop_per_byte": placed.arithmetic_intensity_flop_per_byte,
        "attained_flop_per_s": placed.attained_flop_per_s,
        "attained_bytes_per_s": placed.attained_bytes_per_s,
        "attainable_flop_per_s": placed.attainable_flop_per_s if is_judged else None,
        "roof": roof,
        "roof_share": share,
        "is_above_roof": share is not None and share > 1,
        "roof_share_reason": reason or "",
        "bound": (placed.bound or "") if is_judged else "",
    }


def _gap_row(gap_us: float, whole_us: float) -> OpRooflineRow:
    """Return the row of the time between nodes, which is negative where the correction is too small."""
    return {
        "executed_node": GAP,
        "row_kind": "gap",
        "op_type": "",
        "domain": "",
        "execution_index": None,
        "events_per_run_count": None,
        "source_nodes": [],
        "op_types": [],
        "layout_of": "",
        "dtype": "",
        "macs": None,
        "executed_macs": None,
        "flops": None,
        "weight_bytes": None,
        "input_bytes": None,
        "output_bytes": None,
        "bytes": None,
        "work_source": "",
        "raw_total_us": 0.0,
        "raw_median_us": 0.0,
        "node_latency_us": gap_us,
        "latency_share": gap_us / whole_us,
        "is_correction_dominated": False,
        "arithmetic_intensity_flop_per_byte": None,
        "attained_flop_per_s": None,
        "attained_bytes_per_s": None,
        "attainable_flop_per_s": None,
        "roof": "",
        "roof_share": None,
        "is_above_roof": False,
        "roof_share_reason": "",
        "bound": "",
    }


def time_in_run_us(timed: OpLatencyRow) -> float:
    """Return the time of an executed node in one run: its median, or the mean where a profile has nothing else."""
    median_us, mean_us = timed["corrected_median_us"], timed["corrected_mean_us"]
    known_us = mean_us if median_us is None else median_us
    if known_us is None:
        raise PipelineError("op_latency.csv", f"has no time for {timed['executed_node']}", "rerun <op_latency>")
    return known_us


def require_coverage(table: object, nodes: Iterable[OpRooflineRow], trace_total_us: float) -> float:
    """Return the share of the traced kernel time in nodes that have source nodes, or serve the layout of one that has.

    A share below ``LEAST_COVERAGE`` is a PipelineError: the tables would not account for the time.
    """
    if not trace_total_us:
        raise PipelineError(table, "holds no time at all", "rerun <op_latency>")
    owned_us = sum(row["raw_total_us"] for row in nodes if row["source_nodes"] or row["layout_of"])
    share = owned_us / trace_total_us
    if share < LEAST_COVERAGE:
        remedy = "attribution fails on this model; profile it with another <optimization>"
        raise PipelineError(table, f"only {share:.2%} of its time has an owner", remedy)
    return share


def require_whole(table: object, rows: Sequence[OpRooflineRow], median_us: float | None) -> None:
    """Check that nodes and gap are the unprofiled median, if it is known; else shares do not add up: PipelineError."""
    total_us = math.fsum(row["node_latency_us"] for row in rows)
    if median_us and not math.isclose(total_us, median_us, rel_tol=LARGEST_SUM_ERROR):
        problem = f"its nodes and the gap are {total_us:g} µs, the unprofiled median is {median_us:g} µs"
        raise PipelineError(table, problem, "rerun <op_latency>")


def gap_notes(nodes: Sequence[OpLatencyRow], rows: Sequence[OpRooflineRow], *, is_parallel: bool = False) -> list[str]:
    """Return notes on a gap that scheduling does not explain, or on what an imported profile lacks.

    Times of nodes that were executed at once (``is_parallel``) may add up to more than the latency.
    """
    if rows[-1]["row_kind"] != "gap":
        return [UNKNOWN_GAP, *([UNCORRECTED] if any(row["correction_us"] is None for row in nodes) else [])]
    gap_share, (low, high) = rows[-1]["latency_share"], EXPECTED_GAP_SHARE
    if low <= gap_share <= high:
        return []
    if is_parallel:
        return [f"{AT_ONCE}: their times add up to {1 - gap_share:.0%} of the latency"]
    remedy = "rerun <op_latency> with more runs on an idle host; a model of many tiny nodes has a real gap"
    return [f"the gap between nodes is {gap_share:+.1%} of the latency, expected {low:+.0%} to {high:+.0%}; {remedy}"]
