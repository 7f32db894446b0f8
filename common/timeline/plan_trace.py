"""One inference before and after offloading as a trace: the host, the link and the engines as the plan uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.table_rows import OffloadComparisonRow, OffloadScheduleRow, ReplicaPlansRow, ReplicaScheduleRow, Tables
from common.timeline.chrome_trace import ChromeTrace, Process, Slice, known_facts

TITLES = {"before": "before: the host alone", "after": "after: host, link and engines of the plan"}
# Lanes in their order; the engines are between the two directions of the link.
LANES = {"host": "host", "h2d": "link to the card", "convert-in": "number format in"}
LAST_LANES = {"convert-out": "number format out", "d2h": "link to the host"}
# What a slice says of a candidate, by the column of fpga_candidates that says it.
CANDIDATE_FACTS = (
    *("pattern", "kernel", "source_nodes", "macs", "flops", "bytes", "host_latency_us", "board_bound"),
    *("kernel_latency_pessimistic_us", "kernel_latency_likely_us", "kernel_latency_optimistic_us"),
)


def plan_trace(tables: Tables, verdict: str = "") -> ChromeTrace:
    """Return the trace of a plan in its likely case.

    Args:
        tables: offload_schedule says what each lane does when. Where they are, fpga_candidates says what each item
            computes, offload_comparison has the interval of the latency for the title, and the first frames of
            replica_schedule on the arrays of replica_plans are a process of their own.
        verdict: whether the plan pays, or why nobody can say; the title ends with it.
    """
    schedule, frames = tables["offload_schedule"], tables.get("replica_schedule", ())
    compared = tables.get("offload_comparison", ())
    interval = next((_interval(row) for row in compared if row["alternative"] == "plan"), "")
    said = f"; {verdict}" if verdict else ""
    facts = {row["candidate"]: known_facts(row, CANDIDATE_FACTS) for row in tables.get("fpga_candidates", ())}
    processes = []
    for scenario, title in TITLES.items():
        rows = sorted((row for row in schedule if row["scenario"] == scenario), key=_place)
        about = f"{interval}{said}" if scenario == "after" else ""
        processes.append(Process(title + about, [_slice(row, facts.get(row["item"], {})) for row in rows]))
    if frames:
        processes.append(Process(_stream_title(tables["replica_plans"]), [_frame_slice(row) for row in frames]))
    return ChromeTrace(processes)


def _stream_title(replicas: Sequence[ReplicaPlansRow]) -> str:
    best = next(row for row in replicas if row["is_quickest"])
    least, likely, most = (
        f"{per_s:.0f}"
        for per_s in (
            best["pessimistic_inferences_per_s"],
            best["likely_inferences_per_s"],
            best["optimistic_inferences_per_s"],
        )
    )
    count, engine = best["accelerator_count"], best["engine"]
    return f"stream: {likely} frames/s are likely ({least} to {most}) on {count} x {engine}, {best['division']} divided"


def _frame_slice(row: ReplicaScheduleRow) -> Slice:
    duration_us = row["interval_finish_us"] - row["interval_start_us"]
    lane: str = row["lane"]
    track = {**LANES, **LAST_LANES}.get(lane, lane)
    name = f"frames {row['call_frames']}" if " to " in row["call_frames"] else f"frame {row['call_frames']}"
    return Slice(name, track, row["interval_start_us"], duration_us, {"activity": row["activity"]})


def _interval(row: OffloadComparisonRow) -> str:
    """Return when the plan ends in the likely case, and in the cases of most and of least gain."""
    cases_us = row["plan_latency_likely_us"], row["plan_latency_optimistic_us"], row["plan_latency_pessimistic_us"]
    likely, most, least = (None if case_us is None else f"{case_us * 1e-3:.3g} ms" for case_us in cases_us)
    return f", {likely} is likely ({most} with most gain, {least} with least)" if None not in cases_us else ""


def _place(row: OffloadScheduleRow) -> tuple[int, str, float]:
    order = [*LANES, "", *LAST_LANES]
    lane = row["lane"] if row["lane"] in order else ""
    return order.index(lane), row["lane"], row["interval_start_us"]


def _slice(row: OffloadScheduleRow, facts: Mapping[str, object]) -> Slice:
    duration_us = row["interval_finish_us"] - row["interval_start_us"]
    pattern = facts.get("pattern")
    what = f"{row['item']} {pattern}" if pattern else row["item"]
    name = what if row["activity"] in ("host", "kernel") else f"{row['activity']} {what}"
    lane: str = row["lane"]
    track = {**LANES, **LAST_LANES}.get(lane, lane)
    return Slice(name, track, row["interval_start_us"], duration_us, {"activity": row["activity"], **facts})
