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

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from common import cli
from common.attribution.contraction_check import (
    ContractionCheck,
    check_contractions,
    checked_nodes,
    contractions,
    require_agreement,
)
from common.attribution.known_work import known_work, model_shapes, work_notes
from common.attribution.ownership import Attribution, attribute
from common.attribution.roofline_rows import gap_notes, gap_row, node_row, require_coverage, time_in_run_us
from common.fusion.border import Traffic, executed_traffic
from common.graph import Graph
from common.onnx_graph.executed import (
    edge_rows,
    executed_sizes,
    load_executed_graph,
    with_traced_shapes,
    work_in_run,
)
from common.roofline import Roofs, given_roofs, missing_peak_notes, require_same_host, roofs_of
from common.source_graph import from_rows
from common.view.node_labels import labels_of, with_labels
from common.view.roofline.roofline_text import contraction_report, roofline_report, work_line

if TYPE_CHECKING:
    from common.table_rows import NodeMapRow, OpLatencyRow, OpMetricsRow, OpRooflineRow

SCRIPT = "03_merge_profile_metrics.py"


def arguments() -> cli.Parser:
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
        return given_roofs(settings.peak_flops, settings.mem_bw)
    path = cli.ceilings_path(settings)
    measured = tables.document("host_ceilings", path)
    cpu_model = tables.provenance("op_latency").host.get("cpu_model")
    require_same_host(path, measured, threads, cpu_model or measured["cpu_model"])
    if not cpu_model:
        stage.note(f"{path}: measured on {measured['cpu_model']}; the processor of the profile is unknown")
    if not measured["stable"]:
        stage.note(f"{path}: unstable ceilings, hence uncertain roof shares; rerun <host_ceilings> on an idle host")
    return roofs_of(measured, settings.peak_flops, settings.mem_bw)


def roofline_rows(
    nodes: Sequence[OpLatencyRow],
    metrics: Mapping[str, OpMetricsRow],
    attribution: Attribution,
    moved: Mapping[str, Traffic],
    ran: Graph,
    roofs: Roofs,
    median_us: float | None,
) -> list[OpRooflineRow]:
    """Return the executed nodes with the work of their source nodes, and the gap as the last row.

    Without the unprofiled median there is no gap, and the shares refer to the sum of the node times.
    """
    nodes_us = sum(time_in_run_us(timed) for timed in nodes)
    whole_us = median_us or nodes_us
    rows = []
    for timed in nodes:
        name = timed["executed_node"]
        sources = [metrics[source] for source in attribution.sources.get(name, ())]
        executed_macs, layout_of = work_in_run(ran, timed).macs, attribution.layout_of.get(name, "")
        without_padding = partial(work_in_run, ran, timed, model_shapes(timed, sources))
        work = known_work(sources, moved[name], without_padding)
        rows.append(
            node_row(timed, sources, work, roofs, executed_macs=executed_macs, layout_of=layout_of, whole_us=whole_us)
        )
    return [*rows, gap_row(whole_us - nodes_us, whole_us)] if median_us else rows


def node_map(attribution: Attribution) -> list[NodeMapRow]:
    return [
        {"executed_node": match.executed_node, "source_node": match.source_node, "rule": match.rule}
        for match in attribution.matches
    ]


def compared_contractions(
    table: object,
    nodes: Sequence[OpLatencyRow],
    metrics: Mapping[str, OpMetricsRow],
    attribution: Attribution,
    roofline: Sequence[OpRooflineRow],
) -> tuple[ContractionCheck, list[str]]:
    """Compare the MACs of the contractions of both graphs, and refuse too many that disagree; notes name them."""
    executed_macs = {row["executed_node"]: row["executed_macs"] for row in roofline}
    checked = checked_nodes(nodes, metrics, attribution, executed_macs)
    require_agreement(table, checked)
    with_macs = contractions(metrics.values())
    return check_contractions([name for name in attribution.removed if name in with_macs], checked)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        tables = stage.tables
        nodes, latency = tables.rows("op_latency"), tables.document("latency_summary")
        metrics = {row["source_node"]: row for row in tables.rows("op_metrics")}
        source = from_rows(metrics.values(), tables.rows("op_edges"))
        executed = tables.foreign("executed_graph", partial(load_executed_graph, dimensions=stage.record.dimensions))
        roofs, median_us, path = ceilings(stage, latency["threads"]), latency["p50_us"], tables.path("op_latency")
        sizes = executed_sizes(executed, nodes)
        attribution = attribute(source, executed, contractions(metrics.values()))
        moved, ran = executed_traffic(source, executed, attribution.sources, sizes), with_traced_shapes(executed, nodes)
        rows = roofline_rows(nodes, metrics, attribution, moved, ran, roofs, median_us)
        coverage = require_coverage(path, rows, latency["trace_total_us"])
        check, notes = compared_contractions(path, nodes, metrics, attribution, rows)
        stage.note(*work_notes(rows), *notes, *missing_peak_notes(roofs, rows), *gap_notes(nodes, rows))
        with stage.writing() as transaction:
            roofline = transaction.add_rows("op_roofline", rows)
            transaction.add_rows("node_map", node_map(attribution))
            transaction.add_rows("executed_edges", edge_rows(executed, sizes, {row["executed_node"] for row in rows}))
        stage.print_notes_as(partial(with_labels, labels=labels_of(roofline)))
        peaks, bandwidth = roofs.peaks_flop_per_s, roofs.memory_bytes_per_s
        report = roofline_report(roofline, peaks, bandwidth, coverage, median_us)
        stage.show("\n".join((report, contraction_report(**asdict(check)), work_line(roofline))))
    return 0


if __name__ == "__main__":
    cli.run(main)
