"""Find the longest chain of dependent nodes, the slack of the others, and what a faster operator would change.

Reads   op_roofline.csv, executed_edges.csv; phase_work.csv of a decoder.
Writes  critical_path.csv (the nodes of the longest chain), op_schedule.csv (start, finish and slack of every node).

Four figures of the graph that ONNX Runtime executed:

    span         length of the longest chain: no executor can be faster with these node times
    work         sum of all node times
    parallelism  work / span: the largest speedup from running independent nodes at the same time
    makespan     work + gap (the time between nodes): the latency of ONNX Runtime's default executor

The default executor is sequential, so every node delays the result, whatever its slack. For this executor, read the
makespan that --what-if prints. Slack and span matter for a parallel executor, and for a device that works beside the
host.

EXAMPLE of input (op_roofline.csv, executed_edges.csv) and output (op_schedule.csv), some columns:

    executed_node,op_type,node_latency_us     tensor,producer,consumer
    conv_a,Conv,30.0                          a,conv_a,add_d
    conv_b,Conv,20.0                          b,conv_b,add_d
    add_d,Add,5.0

    executed_node,earliest_start_us,latest_start_us,slack_us,is_critical,sequential_start_us
    conv_a,0.0,0.0,0.0,True,0.0
    conv_b,0.0,10.0,10.0,False,30.0
    add_d,30.0,30.0,0.0,True,50.0

    python 04_critical_path.py --model resnet50-fp32.onnx       # refuses tables of another model
    python 04_critical_path.py --what-if Conv=4 --what-if /fc/Gemm=10
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict

from common import cli
from common.artifacts.folder import Folder
from common.dag import Dag, build_dag, longest_path, schedule, to_us, what_if
from common.messages.errors import UpstreamError
from common.table_rows import CriticalPathRow, OpRooflineRow, OpScheduleRow
from common.view.node_labels import labels_of
from common.view.profile.generation_text import phase_heading
from common.view.profile.path_text import PathTotals, path_report


def arguments() -> cli.Parser:
    parser = cli.Parser("04_critical_path.py", __doc__ or "")
    parser.setting("--model", metavar="FILE", help="refuse tables of another model than this file (or name in models/)")
    text = "make a node, or every node of an operator type, K times faster"
    parser.setting("--what-if", type=cli.factor, action="append", default=[], metavar="NAME=K", help=text)
    return parser


def require_model(tables: Folder, text: str) -> None:
    """Refuse tables of another model; the message names both."""
    from common.onnx_graph.reading.scan import scan  # onnx takes as long to import as this stage takes to run

    path, profiled = cli.model_path(text), tables.provenance("op_roofline")
    if scan(path).model_id != profiled.model_id:
        problem = f"of the model {profiled.model_path or 'that no record names'}, not of {path}"
        raise UpstreamError(tables.path("op_roofline"), problem, f"run 01_profile_onnx.py --model {text} and the rest")


def executed(roofline: Sequence[OpRooflineRow]) -> tuple[list[OpRooflineRow], float | None]:
    """Return the executed nodes in execution order, and the time between them (None without a gap row)."""
    nodes = [row for row in roofline if row["row_kind"] != "gap"]
    gap_us = next((row["node_latency_us"] for row in roofline if row["row_kind"] == "gap"), None)
    return sorted(nodes, key=lambda row: row["execution_index"] or 0), gap_us


def schedule_rows(nodes: Sequence[OpRooflineRow], dag: Dag, path: Set[str]) -> list[OpScheduleRow]:
    times = schedule(dag)
    return [
        {
            "executed_node": (name := row["executed_node"]),
            "op_type": row["op_type"],
            "execution_index": row["execution_index"],
            "node_latency_us": row["node_latency_us"],
            "earliest_start_us": times[name].earliest_start_us,
            "earliest_finish_us": times[name].earliest_finish_us,
            "latest_start_us": times[name].latest_start_us,
            "slack_us": times[name].slack_us,
            "is_critical": name in path,
            "sequential_start_us": times[name].sequential_start_us,
            "sequential_finish_us": times[name].sequential_finish_us,
        }
        for row in nodes
    ]


def path_rows(nodes: Mapping[str, OpRooflineRow], dag: Dag, path: Sequence[str]) -> list[CriticalPathRow]:
    return [
        {
            "position_index": position,
            "executed_node": name,
            "op_type": nodes[name]["op_type"],
            "node_latency_us": (latency_us := nodes[name]["node_latency_us"]),
            "cumulative_us": to_us(dag.finish_ps[name]),
            "span_share": latency_us / dag.span_us if dag.span_us else None,
        }
        for position, name in enumerate(path)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        tables = stage.tables
        roofline, edges = tables.rows("op_roofline"), tables.rows("executed_edges")
        heading = phase_heading(cli.phase_of(tables))
        if stage.settings.model:
            require_model(tables, stage.settings.model)
        nodes, gap_us = executed(roofline)
        if gap_us is None:
            remedy = "run <op_roofline> for the gap, unless the profile is imported"
            stage.note(f"no gap row: the makespan is the work alone; {remedy}")
        by_name = {row["executed_node"]: row for row in nodes}
        latency_us = {name: row["node_latency_us"] for name, row in by_name.items()}
        op_types = {name: row["op_type"] for name, row in by_name.items()}
        sources = {"nodes_from": tables.path("op_roofline"), "edges_from": tables.path("executed_edges")}
        dag = build_dag(latency_us, ((row["producer"], row["consumer"]) for row in edges), **sources)
        path = longest_path(dag)
        cases = [what_if(dag, op_types, name, factor, gap_us or 0.0) for name, factor in stage.settings.what_if]
        with stage.writing() as transaction:
            transaction.add_rows("critical_path", chain := path_rows(by_name, dag, path))
            transaction.add_rows("op_schedule", schedule_rows(nodes, dag, {*path}))
        totals = PathTotals(dag.span_us, dag.work_us, dag.parallelism, gap_us, len(nodes))
        unranked = [row["executed_node"] for row in nodes if row["is_correction_dominated"]]
        text = path_report(totals, chain, unranked, [asdict(case) for case in cases], labels_of(roofline))
        stage.show(heading + text)
    return 0


if __name__ == "__main__":
    cli.run(main)
