"""Count the work and the compulsory traffic of every node of an ONNX model, without reading its weights.

Reads   the graph of the model file; the time does not depend on the size of the weights.
Writes  op_metrics.csv (MACs, FLOPs, bytes and shapes of each node), op_edges.csv (every tensor between two nodes).

One multiply-accumulate of a contraction is one MAC and two FLOPs; all other work is counted as FLOPs per element.
Bytes are compulsory traffic: each distinct operand is read once, each output is written once, views move nothing. Nodes
in the bodies of Loop, Scan and If are counted as often as they run. With unbound dimensions, counts are expressions.
The work of an operator without a formula, and of shapes that depend on data, is unknown: the cells are empty, a note
lists the nodes, and an upper bound is given where there is one. Conventions: docs/MODEL.md.

EXAMPLE of input (a node of the model) and output (op_metrics.csv), some columns:

    /fc/Gemm: Gemm(float32 [1,2048], fc.weight [1000,2048], fc.bias [1000]) -> output [1,1000]

    source_node,op_type,m_count,k_count,n_count,macs,flops,weight_bytes,input_bytes,output_bytes
    /fc/Gemm,Gemm,1,2048,1000,2048000,4097000,8196000,8192,4000

    python 02_shapes_flops_bytes.py --model resnet50-fp32.onnx            # a path, or a name in models/
    python 02_shapes_flops_bytes.py --model bert.onnx                     # MACs = 84934656*batch*seq + ...
    python 02_shapes_flops_bytes.py --model bert.onnx --dim batch=1 --dim seq=128
    python 02_shapes_flops_bytes.py --model detector.onnx --input boxes=boxes.npy   # shapes that depend on values
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from common import cli
from common.expressions import sum_of
from common.graph import Count, Graph
from common.onnx_graph.blocked import padding_notes
from common.onnx_graph.counts import BOUNDED, NodeCount, bound_on_model, count_nodes
from common.onnx_graph.load import load_model
from common.onnx_graph.malformed import names_model
from common.onnx_graph.rows import edge_rows, metrics_row
from common.onnx_graph.symbols.settled import settled_by_inputs
from common.runtime.inputs.given import given_arrays, read_given
from common.view.profile.work_text import left_out, symbolic_report, work_report

if TYPE_CHECKING:
    from common.table_rows import OpMetricsRow

SCRIPT = "02_shapes_flops_bytes.py"


def arguments() -> cli.Parser:
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.shared(*cli.MODEL)
    return parser


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
        with names_model(path):
            counts = {count.node.name: count for count in count_nodes(model.graph, model.bounds)}
            rows = [metrics_row(model, count) for count in counts.values()]
        edges = [*edge_rows(model.graph, counts)]
        of_either = {name for name, count in counts.items() if count.is_of_either}
        settled = settled_by_inputs(model.graph)
        stage.note(*padding_notes(path, model.graph, counts))
        stage.note(*left_out(rows, model.unbound, settled=settled, of_either=of_either))
        printed = report(rows, model.graph, list(counts.values()), model.unbound)
        del model, counts  # free memory for the tables
        with stage.writing() as transaction:
            transaction.add_rows("op_metrics", rows)
            transaction.add_rows("op_edges", edges)
        stage.show(printed)
    return 0


if __name__ == "__main__":
    cli.run(main)
