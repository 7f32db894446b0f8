"""The files that other viewers open: a timeline of the runs, of the plan or of a load test, and the times of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.onnx_graph.reading.outline import Outline, annotated
from common.table_rows import OffloadComparisonRow, OffloadScheduleRow, ReplicaPlansRow, ReplicaScheduleRow, Tables
from common.timeline.annotations import model_texts, node_texts
from common.timeline.chrome_trace import ChromeTrace, Process, Slice, known_facts, trace_json
from common.timeline.flamegraph import folded_stacks
from common.timeline.from_tables import Timeline
from common.timeline.load_tracks import LoadTimeline
from common.timeline.npu_trace import npu_process

Files = dict[str, str | bytes]  # by artifact
TITLES = {"before": "before: the host alone", "after": "after: host, link and engines of the plan"}
# Lanes in their order; that of an engine has its name.
LANES = {
    **{"host": "host", "h2d": "link to the card", "convert-in": "number format in", "engines": "engines"},
    **{"convert-out": "number format out", "d2h": "link to the host"},
}
# What a slice says of a candidate, by the column of fpga_candidates that says it.
CANDIDATE_FACTS = (
    *("pattern", "kernel", "source_nodes", "macs", "flops", "bytes", "host_latency_us", "board_bound"),
    *("kernel_latency_pessimistic_us", "kernel_latency_likely_us", "kernel_latency_optimistic_us"),
)


def run_file(runs: Timeline, npu: Tables, load: LoadTimeline | None, model: str) -> Files:
    """Return the timeline of the runs, with those of an NPU and a load test, each on a clock of its own."""
    of_npu = npu_process(npu)
    trace = runs.trace(*([of_npu] if of_npu else []), *(load.processes if load else ()))
    return {"trace": trace_json(trace, {"model": model, "clock": "run_latency.csv"})}


def load_file(load: LoadTimeline, model: str) -> Files:
    return {"trace": trace_json(ChromeTrace(load.processes), {"model": model, "clock": "load_requests.csv"})}


def plan_file(tables: Tables, model: str, answer: str, verdicts: Mapping[str, str]) -> Files:
    """Return the timeline of the plan; nothing without one. ``verdicts`` are said beside a copy of its figures."""
    if not tables.get("offload_schedule"):
        return {}
    return {"plan_trace": trace_json(plan_trace(tables, answer), {"model": model, "case": "likely", **verdicts})}


def node_files(tables: Tables, graph: Outline | None, model: str) -> Files:
    """Return what shows the times of nodes; nothing without times, and no graph of a model that is not there."""
    metrics, roofline = tables.get("op_metrics", ()), tables.get("op_roofline", ())
    if not roofline:
        return {}
    stacks = folded_stacks(roofline, metrics, graph.scopes if graph else {}, model)
    if graph is None:
        return {"flamegraph": stacks}
    texts = node_texts(roofline, metrics, tables.get("ops_profile", ()))
    return {"flamegraph": stacks, "annotated": annotated(graph, texts, model_texts(roofline))}


def plan_trace(tables: Tables, verdict: str = "") -> ChromeTrace:
    """Return the trace of a plan in its likely case.

    offload_schedule says what each lane does when. Where they are, fpga_candidates says what each item computes,
    offload_comparison has the interval of the latency for the title, and the first frames of replica_schedule on the
    arrays of replica_plans are a process of their own. The title ends with the verdict.
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
        names = [f"{'frames' if ' to ' in row['call_frames'] else 'frame'} {row['call_frames']}" for row in frames]
        parts = [_on_lane(row, name, {}) for row, name in zip(frames, names, strict=True)]
        processes.append(Process(_stream_title(tables["replica_plans"]), parts))
    return ChromeTrace(processes)


def _stream_title(replicas: Sequence[ReplicaPlansRow]) -> str:
    best = next(row for row in replicas if row["is_quickest"])
    least, most = best["pessimistic_inferences_per_s"], best["optimistic_inferences_per_s"]
    rate = f"{best['likely_inferences_per_s']:.0f} frames/s are likely ({least:.0f} to {most:.0f})"
    return f"stream: {rate} on {best['accelerator_count']} x {best['engine']}, {best['division']} divided"


def _interval(row: OffloadComparisonRow) -> str:
    """Return when the plan ends in the likely case, and in the cases of most and of least gain."""
    cases_us = row["plan_latency_likely_us"], row["plan_latency_optimistic_us"], row["plan_latency_pessimistic_us"]
    likely, most, least = (None if case_us is None else f"{case_us * 1e-3:.3g} ms" for case_us in cases_us)
    return f", {likely} is likely ({most} with most gain, {least} with least)" if None not in cases_us else ""


def _place(row: OffloadScheduleRow) -> tuple[int, str, float]:
    order, lane = [*LANES], row["lane"]
    return order.index(lane if lane in LANES else "engines"), lane, row["interval_start_us"]


def _slice(row: OffloadScheduleRow, facts: Mapping[str, object]) -> Slice:
    what = f"{row['item']} {facts['pattern']}" if facts.get("pattern") else row["item"]
    return _on_lane(row, what if row["activity"] in ("host", "kernel") else f"{row['activity']} {what}", facts)


def _on_lane(row: OffloadScheduleRow | ReplicaScheduleRow, name: str, facts: Mapping[str, object]) -> Slice:
    start_us, lane = row["interval_start_us"], row["lane"]
    duration_us = row["interval_finish_us"] - start_us
    return Slice(name, LANES.get(lane, lane), start_us, duration_us, {"activity": row["activity"], **facts})
