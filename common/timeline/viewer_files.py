"""The files that other viewers open: a timeline of the runs, of the plan or of a load test, and the times of nodes."""

from __future__ import annotations

from collections.abc import Mapping

from common.onnx_graph.reading.outline import Outline, annotated
from common.table_rows import Tables
from common.timeline.annotations import model_texts, node_texts
from common.timeline.chrome_trace import ChromeTrace, trace_json
from common.timeline.flamegraph import folded_stacks
from common.timeline.from_tables import Timeline
from common.timeline.load_tracks import LoadTimeline
from common.timeline.npu_trace import npu_process
from common.timeline.plan_trace import plan_trace

Files = dict[str, str | bytes]  # by artifact


def run_file(runs: Timeline, npu: Tables, load: LoadTimeline | None, model: str) -> Files:
    """Return the timeline of the runs, with those of an NPU and a load test, each on a clock of its own."""
    of_npu = npu_process(npu)
    trace = runs.trace(*([of_npu] if of_npu else []), *(load.processes if load else ()))
    return {"trace": trace_json(trace, {"model": model, "clock": "run_latency.csv"})}


def load_file(load: LoadTimeline, model: str) -> Files:
    return {"trace": trace_json(ChromeTrace(load.processes), {"model": model, "clock": "load_requests.csv"})}


def plan_file(tables: Tables, model: str, answer: str, verdicts: Mapping[str, str]) -> Files:
    """Return the timeline of the plan; nothing without one.

    Args:
        answer: whether the plan pays, or why nobody can say, in one sentence.
        verdicts: what a copy of the plan's figures says beside them.
    """
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
