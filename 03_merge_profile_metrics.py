"""Combine measured time and counted work: one row per executed node, placed under the roofline of this host.

Reads   op_latency.csv, latency_summary.json, executed_graph.onnx (01), op_metrics.csv, op_edges.csv (02) and
        host_ceilings.json (00), unless --peak-flops and --mem-bw are given; phase_work.csv (02) of a decoder.
Writes  op_roofline.csv (key executed_node), node_map.csv (executed node, source node, rule), executed_edges.csv.

ONNX Runtime fuses the nodes of the model file, and inserts others. 03 matches each executed node to the source nodes
that it computes. An executed node gets the work of its source nodes, and the traffic across their common border. An
inserted node belongs to the node whose layout it serves. The time between nodes (unprofiled median less the sum of the
corrected node times) is a row of its own, `(gap)`. Every microsecond of the trace is in exactly one row. The stage
fails if less than 99.9 % of the time has an owner. Each node is compared with the peak of its number format.

EXAMPLE of input (op_latency.csv, op_metrics.csv) and output (op_roofline.csv), some columns:

    /relu/Relu_output_0_nchwc,Conv,corrected_median_us=528.3        /conv1/Conv,macs=118013952

    executed_node,source_nodes,flops,bytes,node_latency_us,roof_share,bound
    /relu/Relu_output_0_nchwc,"[""/conv1/Conv"",""/bn1/BatchNormalization"",""/relu/Relu""]",238436352,3852032,528.3,0.7,compute

    python 03_merge_profile_metrics.py                                       # with the ceilings that 00 measured
    python 03_merge_profile_metrics.py --peak-flops 1.0e12 --mem-bw 5.0e10   # with given ceilings
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from common import cli
from common.attribution.contraction_check import compared_contractions, contractions
from common.attribution.known_work import work_notes
from common.attribution.ownership import attribute, node_map_rows
from common.attribution.roofline_rows import gap_notes, require_coverage, require_whole, roofline_rows, us_by_part
from common.fusion.border import executed_traffic
from common.graphs.source_graph import from_rows
from common.onnx_graph.executed import edge_rows, executed_sizes, load_executed_graph, with_traced_shapes, work_in_run
from common.onnx_graph.malformed import names_model
from common.roofline import Roofs, given_roofs, missing_peak_notes, require_same_host, roofs_of
from common.view.node_labels import labels_of, with_labels
from common.view.profile.generation_text import phase_lines
from common.view.roofline.roofline_text import contraction_report, roofline_report, work_line


def arguments() -> cli.Parser:
    parser = cli.Parser("03_merge_profile_metrics.py", __doc__ or "")
    rate = partial(parser.setting, type=cli.positive_float)
    rate("--peak-flops", metavar="FLOP/S", help="peak of the host (default: measured)")
    rate("--mem-bw", metavar="BYTE/S", help="memory bandwidth of the host (default: measured)")
    parser.shared("--ceilings")
    return parser


def ceilings(stage: cli.StageRun, threads: int) -> Roofs:
    """Return the given ceilings, and for the others those measured on the profiled host at the same threads."""
    settings, tables = stage.settings, stage.tables
    if settings.peak_flops and settings.mem_bw:
        return given_roofs(settings.peak_flops, settings.mem_bw)
    path = cli.ceilings_path(settings)
    measured = tables.document("host_ceilings", path)
    profile = tables.provenance("op_latency")
    cpu_model = profile.host.get("cpu_model")
    if profile.imported.get("is_of_device"):
        remedy = "give <peak_flops> and <mem_bw> of the accelerator"
        stage.note(f"{path}: the ceilings of this host judge no node, since the profile is of an accelerator; {remedy}")
        return replace(roofs_of(measured, settings.peak_flops, settings.mem_bw), is_of_profile=False)
    require_same_host(path, measured, threads, cpu_model or measured["cpu_model"])
    if not cpu_model:
        stage.note(f"{path}: measured on {measured['cpu_model']}; the processor of the profile is unknown")
    if not measured["stable"]:
        remedy = "rerun <host_ceilings> on an idle host, or give <peak_flops> and <mem_bw>"
        stage.note(f"{path}: unstable ceilings, so shares of the roof are empty; {remedy}")
    return roofs_of(measured, settings.peak_flops, settings.mem_bw)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        tables = stage.tables
        nodes, latency = tables.rows("op_latency"), tables.document("latency_summary")
        metrics = {row["source_node"]: row for row in tables.rows("op_metrics")}
        source = from_rows(metrics.values(), tables.rows("op_edges"))
        executed = tables.foreign("executed_graph", partial(load_executed_graph, dimensions=stage.record.dimensions))
        roofs, median_us, path = ceilings(stage, latency["threads"]), latency["p50_us"], tables.path("op_latency")
        phase = cli.phase_of(tables)
        sizes = executed_sizes(executed, nodes)
        attribution = attribute(source, executed, contractions(metrics.values()))
        moved, ran = executed_traffic(source, executed, attribution.sources, sizes), with_traced_shapes(executed, nodes)
        with names_model(tables.path("executed_graph")):
            rows = roofline_rows(nodes, metrics, attribution, moved, partial(work_in_run, ran), roofs, median_us)
        require_whole(path, rows, median_us)
        coverage = require_coverage(path, rows, latency["trace_total_us"])
        check, notes = compared_contractions(path, nodes, metrics, attribution, rows)
        stage.note(*work_notes(rows), *notes, *missing_peak_notes(roofs, rows))
        execution = tables.provenance("latency_summary").settings.get("execution", {}).get("value")
        stage.note(*gap_notes(nodes, rows, is_parallel=execution == "parallel"))
        with stage.writing() as transaction:
            transaction.add_rows("op_roofline", rows)
            transaction.add_rows("node_map", node_map_rows(attribution))
            transaction.add_rows("executed_edges", edge_rows(executed, sizes, {row["executed_node"] for row in rows}))
        stage.print_notes_as(partial(with_labels, labels=labels_of(rows)))
        peaks, bandwidth = roofs.peaks_flop_per_s, roofs.memory_bytes_per_s
        report = roofline_report(rows, peaks, bandwidth, coverage, median_us)
        ridge = roofs.under(roofs.roof("MatMul", "float32")).ridge_flop_per_byte
        of_phase = phase_lines(phase, ridge, bandwidth, median_us, us_by_part(rows, metrics))
        stage.show("\n".join((report, contraction_report(**asdict(check)), work_line(rows), *of_phase)))
    return 0


if __name__ == "__main__":
    cli.run(main)
