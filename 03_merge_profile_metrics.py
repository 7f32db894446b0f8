"""Combine measured time and counted work: one row per executed node, placed under the roofline of this host.

Reads   op_latency.csv, latency_summary.json, executed_graph.onnx (01), op_metrics.csv, op_edges.csv (02) and
        host_ceilings.json (00), which is not needed if both ceilings are given.
Writes  op_roofline.csv (key executed_node), node_map.csv (executed node, source node, rule), executed_edges.csv.

ONNX Runtime does not execute the graph of the model file: it fuses nodes and inserts others. Each executed node is
matched to the source nodes that it computes. It is assigned their work, and the traffic across their common border. An
inserted node belongs to the node whose layout it serves. The time between nodes (unprofiled median less the sum of
the corrected node times) is a row of its own, `(gap)`. Every microsecond of the trace is in exactly one row; the stage
fails where less than 99.9 % of the time has an owner. Each node is judged by the peak of its number format.

EXAMPLE of input (op_latency.csv, op_metrics.csv) and output (op_roofline.csv), some columns:

    /relu/Relu_output_0_nchwc,Conv,corrected_median_us=528.3        /conv1/Conv,macs=118013952

    executed_node,source_nodes,flops,bytes,node_latency_us,roof_share,bound
    /relu/Relu_output_0_nchwc,"[""/conv1/Conv"",""/bn1/BatchNormalization"",""/relu/Relu""]",238436352,3852032,528.3,0.7,compute

    python 03_merge_profile_metrics.py                                       # with the ceilings that 00 measured
    python 03_merge_profile_metrics.py --peak-flops 1.0e12 --mem-bw 5.0e10   # with given ceilings
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd

from common import cli
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.frames import fields_of, frame_of, records
from common.attribution.contraction_check import (
    ContractionCheck,
    check_contractions,
    checked_nodes,
    contractions,
    require_agreement,
)
from common.attribution.coverage import gap_notes, require_coverage
from common.attribution.known_work import known_work, model_shapes, work_notes
from common.attribution.ownership import Attribution, attribute
from common.fusion.border import Traffic, executed_traffic
from common.graph import GAP, Graph
from common.onnx_graph.executed import (
    edge_rows,
    executed_sizes,
    load_executed_graph,
    with_traced_shapes,
    work_in_run,
)
from common.roofline import Roofs, missing_peak_notes, place, require_same_host, roofs_of
from common.source_graph import SourceGraph, from_rows
from common.view.node_labels import labels_of, with_labels
from common.view.roofline_text import contraction_report, roofline_report, work_line

SCRIPT = "03_merge_profile_metrics.py"
ROOFLINE = ARTIFACTS["op_roofline"].columns
UNKNOWN_GAP = (
    "no gap between nodes is known: the profile has no unprofiled median; shares refer to the sum of node times"
)
UNCORRECTED = "node times include the unknown time that the profiler adds; rates of short nodes are too low"
Row = dict[str, Any]


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.setting(
        "--peak-flops", type=cli.positive_float, metavar="FLOP/S", help="peak of the host (default: measured)"
    )
    parser.setting(
        "--mem-bw", type=cli.positive_float, metavar="BYTE/S", help="memory bandwidth of the host (default: measured)"
    )
    parser.setting(
        "--ceilings",
        type=cli.path,
        metavar="FILE",
        help="measured ceilings (default: host_ceilings.json in out/, else in the folder of the tables)",
    )
    return parser


def ceilings(stage: cli.StageRun, threads: int) -> Roofs:
    """Return the given ceilings, and for the others those measured on the profiled host at the same threads."""
    settings, tables = stage.settings, stage.tables
    if settings.peak_flops and settings.mem_bw:
        return roofs_of({}, settings.peak_flops, settings.mem_bw)
    path = cli.ceilings_path(settings)
    measured = tables.document("host_ceilings", path)
    cpu_model = tables.provenance("op_latency").host.get("cpu_model")
    require_same_host(path, measured, threads, cpu_model or measured["cpu_model"])
    if not cpu_model:
        stage.note(f"{path}: measured on {measured['cpu_model']}; the processor of the profile is unknown")
    if not measured["stable"]:
        stage.note(f"{path}: unstable ceilings, hence uncertain roof shares; rerun <host_ceilings> on an idle host")
    return roofs_of(measured, settings.peak_flops, settings.mem_bw)


def node_rows(
    latency: Iterable[Row],
    metrics: Mapping[str, Row],
    attribution: Attribution,
    moved: Mapping[str, Traffic],
    ran: Graph,
    roofs: Roofs,
) -> list[Row]:
    """Return the rows of op_roofline without the gap: executed nodes with the work of their source nodes."""
    rows = []
    for timed in latency:
        name = timed["executed_node"]
        sources = [metrics[source] for source in attribution.sources.get(name, ())]
        kind = {"row_kind": "node" if sources else "inserted", "layout_of": attribution.layout_of.get(name, "")}
        as_run = work_in_run(ran, timed).macs
        work = known_work(sources, fields_of(moved[name]), partial(model_work, ran, timed, sources))
        rows.append(node_row(timed | kind | {"executed_macs": as_run}, sources, work, roofs))
    return rows


def model_work(ran: Graph, timed: Row, sources: Sequence[Row]) -> Row:
    """Return the work of an executed node by the shapes that ran, without the channels that its layout pads."""
    return fields_of(work_in_run(ran, timed, model_shapes(timed, sources)))


def node_row(timed: Row, sources: Sequence[Row], work: Row, roofs: Roofs) -> Row:
    """Return the row of one executed node, placed under the roof of its number format."""
    latency_us, dtype = time_in_run_us(timed), next(iter(timed["output_dtypes"]), "")
    roof = roofs.roof(timed["op_type"], dtype)
    return {
        **{column.name: timed[column.name] for column in ROOFLINE if column.name in timed},
        "source_nodes": [row["source_node"] for row in sources],
        "op_types": [row["op_type"] for row in sources],
        "dtype": dtype,
        **work,
        "node_latency_us": latency_us,
        "roof": roof,
        **fields_of(place(roofs.under(roof), work["flops"], work["bytes"], latency_us)),
    }


def time_in_run_us(timed: Row) -> float:
    """Return the time of an executed node in one run: its median, or the mean where a profile has nothing else."""
    median_us, mean_us = timed["corrected_median_us"], timed["corrected_mean_us"]
    return float(mean_us if median_us is None else median_us)


def op_roofline(rows: Sequence[Row], median_us: float | None) -> pd.DataFrame:
    """Return all executed nodes and the gap: the rest of the median (negative where the correction is too small).

    Without the unprofiled median there is no gap, and the shares refer to the sum of the node times.
    """
    nodes_us = sum(row["node_latency_us"] for row in rows)
    gap: Row = dict.fromkeys(("op_type", "domain", "dtype", "layout_of", "roof", "work_source"), "")
    gap |= {"source_nodes": [], "op_types": []}
    gap |= {"executed_node": GAP, "row_kind": "gap", "is_correction_dominated": False}
    gap |= {"raw_total_us": 0.0, "raw_median_us": 0.0}
    gap["node_latency_us"] = (median_us or nodes_us) - nodes_us
    table = pd.DataFrame([*rows, gap] if median_us else rows)
    shares = table["node_latency_us"] / (median_us or nodes_us)
    return table.assign(latency_share=shares, is_above_roof=table["roof_share"].gt(1))


def latency_notes(nodes: Sequence[Row], roofline: pd.DataFrame, median_us: float | None) -> list[str]:
    """Return notes on an implausible gap, or on what an imported profile lacks."""
    if median_us is None:
        return [UNKNOWN_GAP, *([UNCORRECTED] if any(row["correction_us"] is None for row in nodes) else [])]
    return gap_notes(float(roofline["latency_share"].iloc[-1]))


def merge(
    nodes: Sequence[Row],
    latency: Mapping[str, Any],
    metrics: Mapping[str, Row],
    source: SourceGraph,
    executed: Graph,
    roofs: Roofs,
    table: object,
) -> tuple[dict[str, pd.DataFrame], float, ContractionCheck, list[str]]:
    """Combine the profile of the executed nodes with the counts of the source nodes.

    Args:
        nodes: rows of op_latency.
        latency: latency_summary.
        metrics: row of op_metrics by source node.
        source: the model's graph.
        executed: the graph that the runtime saved.
        roofs: ceilings of the host.
        table: where the rows were read from, for errors.

    Returns:
        The tables that the stage writes, by name; the share of the traced time that has an owner; how well the
        contractions of both graphs agree; and notes on the limits of the tables.

    Raises:
        PipelineError: too little of the time has an owner, or the MACs of both graphs disagree.
    """
    median_us, with_macs = latency["p50_us"], contractions(metrics.values())
    sizes = executed_sizes(executed, nodes)
    attribution = attribute(source, executed, with_macs)
    moved = executed_traffic(source, executed, attribution.sources, sizes)
    rows = node_rows(nodes, metrics, attribution, moved, with_traced_shapes(executed, nodes), roofs)
    coverage = require_coverage(table, rows, latency["trace_total_us"])
    roofline = op_roofline(rows, median_us)
    executed_macs = {row["executed_node"]: row["executed_macs"] for row in rows}
    checked = checked_nodes(nodes, metrics, attribution, executed_macs)
    require_agreement(table, checked)
    check, notes = check_contractions([name for name in attribution.removed if name in with_macs], checked)
    tables = {
        "op_roofline": roofline,
        "node_map": frame_of(fields_of(match) for match in attribution.matches),
        "executed_edges": pd.DataFrame(edge_rows(executed, sizes, set(roofline["executed_node"]))),
    }
    notes = [*work_notes(rows), *notes]
    notes += [*missing_peak_notes(roofs, rows), *latency_notes(nodes, roofline, median_us)]
    return tables, coverage, check, notes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        tables = stage.tables
        nodes, latency = records(tables.table("op_latency")), tables.document("latency_summary")
        metrics = {row["source_node"]: row for row in records(tables.table("op_metrics"))}
        source = from_rows(metrics.values(), records(tables.table("op_edges")))
        executed = tables.foreign("executed_graph", partial(load_executed_graph, dimensions=stage.record.dimensions))
        roofs = ceilings(stage, latency["threads"])
        path = tables.path("op_latency")
        merged, coverage, check, notes = merge(nodes, latency, metrics, source, executed, roofs, path)
        stage.note(*notes)
        with stage.writing() as transaction:
            written = {name: transaction.add_table(name, table) for name, table in merged.items()}
        stage.print_notes_as(partial(with_labels, labels=labels_of(written["op_roofline"])))
        peaks, bandwidth, median_us = roofs.peaks_flop_per_s, roofs.memory_bytes_per_s, latency["p50_us"]
        report = roofline_report(written["op_roofline"], peaks, bandwidth, coverage, median_us)
        stage.show("\n".join((report, contraction_report(**asdict(check)), work_line(written["op_roofline"]))))
    return 0


if __name__ == "__main__":
    cli.run(main)
