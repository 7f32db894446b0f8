"""Count the work and the compulsory traffic of every node of an ONNX model, without reading its weights.

Reads   the graph of the model file; the time does not depend on the size of the weights.
Writes  op_metrics.csv (MACs, FLOPs, bytes and shapes of each node), op_edges.csv (every tensor between two nodes),
        phase_work.csv (of a model with caches: a row per part and phase, at the lengths of --phase or --dim).

One multiply-accumulate of a contraction is one MAC and two FLOPs; all other work is counted as FLOPs per element.
Bytes are compulsory traffic: each distinct operand is read once, each output is written once, views move nothing. Nodes
in the bodies of Loop, Scan and If are counted as often as they run. With unbound dimensions, counts are expressions.
Work is unknown if an operator has no formula, or if its shapes depend on data: the cells are empty, a note lists the
nodes, and an upper bound is given where there is one. Conventions: docs/MODEL.md.

EXAMPLE of input (a node of the model) and output (op_metrics.csv), some columns:

    /fc/Gemm: Gemm(float32 [1,2048], fc.weight [1000,2048], fc.bias [1000]) -> output [1,1000]

    source_node,op_type,m_count,k_count,n_count,macs,flops,weight_bytes,input_bytes,output_bytes
    /fc/Gemm,Gemm,1,2048,1000,2048000,4097000,8196000,8192,4000

    python 02_shapes_flops_bytes.py --model resnet50-fp32.onnx            # a path, or a name in models/
    python 02_shapes_flops_bytes.py --model bert.onnx                     # MACs = 84934656*batch*seq + ...
    python 02_shapes_flops_bytes.py --model bert.onnx --dim batch=1 --dim seq=128
    python 02_shapes_flops_bytes.py --model decoder.onnx --phase prefill:128,512 decode:128,1024,4096
    python 02_shapes_flops_bytes.py --model detector.onnx --input boxes=boxes.npy   # shapes from values of an input
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from common import cli
from common.generation.decoder import Decoder, decoder_of, require_length, require_prompt
from common.generation.phases import bound_point, model_parts, phase_rows, point_at
from common.graphs.expressions import sum_of
from common.graphs.graph import Count, Graph
from common.messages.errors import UnusableValueError
from common.onnx_graph.blocked import padding_notes
from common.onnx_graph.caches import cache_names
from common.onnx_graph.counts import BOUNDED, NodeCount, bound_on_model, count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.onnx_graph.malformed import names_model
from common.onnx_graph.rows import edge_rows, metrics_row
from common.onnx_graph.symbols.settled import settled_by_inputs
from common.runtime.inputs.given import given_arrays, read_given
from common.table_rows import OpMetricsRow, PhaseWorkRow
from common.view.profile.generation_text import phase_notes, phase_report
from common.view.profile.work_text import left_out, symbolic_report, work_report


def arguments() -> cli.Parser:
    parser = cli.Parser("02_shapes_flops_bytes.py", __doc__ or "")
    parser.shared(*cli.MODEL, "--phase", "--cache")
    return parser


def decoder_in(stage: cli.StageRun, path: Path, model: LoadedModel) -> Decoder | None:
    """Return the model as a decoder with free lengths; None where it is none, which --phase refuses."""
    caches, is_asked = dict(stage.settings.cache), bool(stage.settings.phase)
    if not is_asked and not cache_names(model.graph, caches):
        return None
    try:
        free = load_model(path, {}, symbolic=True) if model.dimensions else model
        decoder = decoder_of(free, model.dimensions, caches)
        return decoder if decoder.tokens or is_asked or caches else None  # an image may come back under its name, too
    except UnusableValueError as error:
        if is_asked:
            raise
        stage.note(f"no phases: {error.problem}")
        return None


def phases(decoder: Decoder | None, given: cli.Settings, bound: Mapping[str, int]) -> list[PhaseWorkRow]:
    """Return the work of a decoder in each given phase, and in the phase that its bound dimensions have."""
    if decoder is None:
        return []
    points = [point_at(phase, length) for phase, lengths in given.phase for length in lengths]
    for point in points:
        require_prompt(decoder, point.call.new, "phase")
        require_length(decoder, point.call.total, "phase")
    at_bound = bound_point(decoder, bound)
    return phase_rows(decoder, [*dict.fromkeys([*points, *([at_bound] if at_bound else [])])], bound)


def report(metrics: Sequence[OpMetricsRow], graph: Graph, counts: Sequence[NodeCount], unbound: Sequence[str]) -> str:
    """Return the text that the stage prints: figures by operator type, or expressions over unbound dimensions."""
    of_either = {count.node.name for count in counts if count.is_of_either}
    if not unbound:
        bounds = {name: bound_on_model(graph, counts, name) for name in BOUNDED}
        return work_report(metrics, bounds, of_either=of_either)
    totals = {name: str(known_sum(count.figure(name) for count in counts)) for name in BOUNDED}
    macs: dict[str, list[Count | None]] = {}
    for count in counts:
        macs.setdefault(count.node.op_type, []).append(count.figure("macs"))
    sums = {op_type: known_sum(figures) for op_type, figures in macs.items()}
    by_type = {op_type: str(sum_) for op_type, sum_ in sums.items() if sum_ != 0}
    return symbolic_report(metrics, by_type, totals, of_either=of_either)


def known_sum(figures: Iterable[Count | None]) -> Count:
    return sum_of(figure for figure in figures if figure is not None)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = cli.given_model(stage.settings)
        path, values = given.path, given_arrays(given.files)
        model = load_model(path, given.sizes, given.configured, values=values, symbolic=True)
        read_given(model.graph, given.files)  # a file that does not fit is refused
        stage.set_model(model.model_id, path.name, model.dimensions)
        decoder = decoder_in(stage, path, model)
        parts = model_parts(decoder) if decoder else {}
        with names_model(path):
            counts = {count.node.name: count for count in count_nodes(model.graph, model.bounds)}
            rows = [metrics_row(model, count, parts.get(name, "")) for name, count in counts.items()]
        edges = [*edge_rows(model.graph, counts)]
        of_either = {name for name, count in counts.items() if count.is_of_either}
        settled = settled_by_inputs(model.graph)
        of_phases = phases(decoder, stage.settings, model.dimensions)
        stage.note(*padding_notes(path, model.graph, counts))
        stage.note(*phase_notes(of_phases))
        stage.note(*left_out(rows, model.unbound, settled=settled, of_either=of_either))
        printed = report(rows, model.graph, list(counts.values()), model.unbound) + phase_report(of_phases)
        del model, counts, decoder  # free memory for the tables
        with stage.writing() as transaction:
            transaction.add_rows("op_metrics", rows)
            transaction.add_rows("op_edges", edges)
            transaction.add_rows("phase_work", of_phases)
        stage.show(printed)
    return 0


if __name__ == "__main__":
    cli.run(main)
