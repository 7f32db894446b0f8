"""Bring measured time and counted work together: one row per executed node under the roof of this host.

Reads   op_latency.csv, latency_summary.json, executed_graph.onnx (01), op_metrics.csv, op_edges.csv (02) and
        host_ceilings.json (00), which is not needed when both ceilings are given.
Writes  op_roofline.csv (key executed_node), node_map.csv (executed node, source node, rule), executed_edges.csv.

What runs is not the graph in the file: each executed node is matched to the source nodes it computes, and gets their
work and the traffic across their common border. What the runtime inserted serves the layout of a node downstream. The
time between nodes, unprofiled median less the sum of corrected times, is a row of its own, `(gap)`; every microsecond
of the trace is in exactly one row, and below 99.9 % the stage fails.

EXAMPLE of what comes in (op_latency.csv, op_metrics.csv) and what goes out (op_roofline.csv), some columns:

    /relu/Relu_output_0_nchwc,Conv,corrected_median_us=528.3        /conv1/Conv,macs=118013952

    executed_node,source_nodes,flops,bytes,node_latency_us,roof_share,bound
    /relu/Relu_output_0_nchwc,"[""/conv1/Conv"",""/bn1/BatchNormalization"",""/relu/Relu""]",238436352,3852032,528.3,0.7,compute

    python 03_merge_profile_metrics.py                                       # ceilings as 00 measured them
    python 03_merge_profile_metrics.py --peak-flops 1.0e12 --mem-bw 5.0e10   # or as you know them
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from common import cli
from common.artifacts.provenance import Provenance, host_identity, tool_versions
from common.artifacts.store import Store, records
from common.attribution import attribute, layout_owners, owned_sources
from common.errors import PipelineError
from common.fusion.border import Traffic, traffic
from common.fusion.source_graph import from_rows
from common.graph import Graph
from common.onnx_graph.load import load_executed_graph
from common.onnx_graph.work.measure import total
from common.roofline import Ceilings, place, require_same_host
from common.view.roofline_text import roofline_report

SCRIPT = "03_merge_profile_metrics.py"
GAP = "(gap)"
LEAST_COVERAGE = 0.999
KEPT = (
    "executed_node",
    "op_type",
    "domain",
    "execution_index",
    "is_correction_dominated",
    "raw_total_us",
    "raw_median_us",
)
Row = dict[str, Any]


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.setting("--peak-flops", type=cli.positive_float, metavar="FLOP/S", help="peak of the host")
    parser.setting("--mem-bw", type=cli.positive_float, metavar="BYTE/S", help="memory bandwidth of the host")
    parser.setting("--ceilings", type=Path, metavar="FILE", help="default: host_ceilings.json in out/, else in --out")
    return parser


def ceilings(store: Store, settings: cli.Settings, threads: int) -> Ceilings:
    """The given ceilings; what is not given comes from 00, measured on the profiled host at the same threads."""
    if settings.peak_flops and settings.mem_bw:
        return Ceilings(settings.peak_flops, settings.mem_bw)
    path = cli.ceilings_path(settings)
    measured = store.document("host_ceilings", path)
    require_same_host(path, measured, threads, store.provenance("op_latency").host["cpu_model"])
    if not measured["stable"]:
        store.record.notes.append(f"{path}: unstable ceilings, and roof shares with them; rerun 00 on an idle host")
    peak = settings.peak_flops or measured["peak_flop_per_s"]
    return Ceilings(peak, settings.mem_bw or measured["memory_bytes_per_s"])


def inserted_traffic(executed: Graph, name: str) -> Traffic:
    """What a node that the runtime inserted must move: its operands and its outputs."""
    node = executed.by_name[name]
    read, written = (
        total(executed.tensors[tensor].size_bytes for tensor in ends if tensor) for ends in (node.inputs, node.outputs)
    )
    return Traffic(0, read, written, total((read, written)))


def node_row(
    timed: Row, sources: Sequence[Row], moved: Traffic, layout_of: str, roofs: Ceilings, median_us: float
) -> Row:
    """op_roofline: an executed node with its source nodes' work, or one that the runtime inserted."""
    latency_us = timed["corrected_median_us"]
    flops = total(row["flops"] for row in sources)
    return {
        **{key: timed[key] for key in KEPT},
        "row_kind": "node" if sources else "inserted",
        "source_nodes": [row["source_node"] for row in sources],
        "op_types": [row["op_type"] for row in sources],
        "layout_of": layout_of,
        "dtype": sources[-1]["dtype"] if sources else "",
        "macs": total(row["macs"] for row in sources),
        "flops": flops,
        **asdict(moved),
        "node_latency_us": latency_us,
        "latency_share": latency_us / median_us,
        **asdict(place(roofs, flops, moved.bytes, latency_us)),
    }


def op_roofline(found: list[Row], median_us: float) -> pd.DataFrame:
    """All executed nodes, and the gap: the time that none accounts for (negative if the correction is too small)."""
    gap_us = median_us - sum(row["node_latency_us"] for row in found)
    empty: Row = dict.fromkeys(("op_type", "domain", "dtype", "layout_of"), "") | {"source_nodes": [], "op_types": []}
    times = {"raw_total_us": 0.0, "raw_median_us": 0.0, "node_latency_us": gap_us, "latency_share": gap_us / median_us}
    gap = {"executed_node": GAP, "row_kind": "gap", "is_correction_dominated": False, **empty, **times}
    table = pd.DataFrame([*found, gap])
    return table.assign(is_above_roof=table["roof_share"].gt(1))


def executed_edges(executed: Graph, timed: Set[str]) -> pd.DataFrame:
    """Every tensor between two nodes that ran, and the graph's own inputs and outputs."""
    ends = timed | {""}
    edges = [edge for edge in executed.edges() if edge.producer in ends and edge.consumer in ends]
    sizes = [executed.tensors[edge.tensor].size_bytes for edge in edges]
    columns = ["tensor", "producer", "consumer"]
    return pd.DataFrame([asdict(edge) for edge in edges], columns=columns).assign(
        tensor_bytes=pd.array(sizes, dtype="Int64")
    )


def require_coverage(found: Sequence[Row], trace_total_us: float, path: Path) -> float:
    """Share of the trace's kernel time in rows with source nodes, or with an owner of the layout they serve."""
    covered = (
        sum(float(row["raw_total_us"]) for row in found if row["source_nodes"] or row["layout_of"]) / trace_total_us
    )
    if covered < LEAST_COVERAGE:
        raise PipelineError(
            path, f"only {covered:.2%} of its time has an owner", "report this model: attribution fails on it"
        )
    return covered


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    settings = cli.parse(arguments(), argv)
    record = Provenance(SCRIPT, settings.command, settings.record(), host=host_identity(), tools=tool_versions())
    store = Store(settings.out, record)
    nodes, latency = records(store.table("op_latency")), store.document("latency_summary")
    metrics = {row["source_node"]: row for row in records(store.table("op_metrics"))}
    source = from_rows(metrics.values(), records(store.table("op_edges")))
    executed = load_executed_graph(store.file("executed_graph"), record.dimensions)
    roofs, median_us = ceilings(store, settings, latency["threads"]), latency["p50_us"]
    graph = Graph(tuple(source.nodes.values()), {}, tuple(source.returned))
    matches = attribute(graph, executed, {name for name, row in metrics.items() if row["macs"]}, source.constants)
    owned = owned_sources(matches)
    layouts = layout_owners(executed, owned.keys())
    found = []
    for timed in nodes:
        name, sources = timed["executed_node"], owned.get(timed["executed_node"], [])
        moved = traffic(source, sources) if sources else inserted_traffic(executed, name)
        work = [metrics[source_name] for source_name in sources]
        found.append(node_row(timed, work, moved, layouts.get(name, ""), roofs, median_us))
    coverage = require_coverage(found, latency["trace_total_us"], store.path("op_latency"))
    with store.writing():
        roofline = store.add_table("op_roofline", op_roofline(found, median_us))
        store.add_table("node_map", pd.DataFrame([asdict(match) for match in matches]))
        store.add_table("executed_edges", executed_edges(executed, {row["executed_node"] for row in nodes}))
    cli.show(settings, roofline_report(roofline, roofs.peak_flop_per_s, roofs.memory_bytes_per_s, coverage, median_us))
    cli.say(settings, *(f"note: {note}" for note in record.notes))
    cli.say(settings, *(f"wrote {store.path(name)}" for name in ("op_roofline", "node_map", "executed_edges")))
    return 0


if __name__ == "__main__":
    cli.run(main)
