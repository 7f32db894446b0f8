"""Work and compulsory traffic of every node of an ONNX model, and every tensor between them; weights are never read.

Reads   the model file (its graph only: a 100 MB and a 10 GB model cost the same).
Writes  op_metrics.csv (MACs, FLOPs, bytes, shapes per node), op_edges.csv (every tensor between two nodes).

One multiply-accumulate of a contraction is one MAC and two FLOPs; everything else costs FLOPs per element. Bytes are
compulsory traffic: each distinct operand read once, each output written once; views move nothing. An operator without
a formula and a shape that depends on data are unknown: empty cells, listed in a note. Conventions: docs/MODEL.md.

EXAMPLE of what comes in (a node of the model) and what goes out (op_metrics.csv), some columns:

    /fc/Gemm: Gemm(float32 [1,2048], fc.weight [1000,2048], fc.bias [1000]) -> output [1,1000]

    source_node,op_type,m_count,k_count,n_count,macs,flops,weight_bytes,input_bytes,output_bytes
    /fc/Gemm,Gemm,1,2048,1000,2048000,4097000,8196000,8192,4000

    python 02_shapes_flops_bytes.py --model resnet50-fp32.onnx            # looked up in models/ when it is no path
    python 02_shapes_flops_bytes.py --model bert.onnx --dim batch=1 --dim seq=128
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from common import cli
from common.artifacts.provenance import Provenance, host_identity, tool_versions
from common.artifacts.store import Store
from common.graph import Graph, Node
from common.onnx_graph.load import load_model
from common.onnx_graph.window import window
from common.onnx_graph.work import Work, measure
from common.view.work_text import work_report

SCRIPT = "02_shapes_flops_bytes.py"


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.model_settings()
    return parser


def metrics_row(graph: Graph, node: Node, work: Work) -> dict[str, Any]:
    """op_metrics: one node of the model file."""
    outputs = [graph.tensors[name] for name in node.outputs if name]
    gemm = work.gemm
    return {
        "source_node": node.name,
        "op_type": node.op_type,
        "domain": node.domain,
        "dtype": outputs[0].dtype if outputs else "",
        "input_shapes": [graph.tensors[name].shape if name else None for name in node.inputs],
        "output_shapes": [tensor.shape for tensor in outputs],
        **window(graph, node),
        "batch_count": gemm.batch if gemm else None,
        "m_count": gemm.m if gemm else None,
        "k_count": gemm.k if gemm else None,
        "n_count": gemm.n if gemm else None,
        "macs": work.macs,
        "flops": work.flops,
        "weight_bytes": work.weight_bytes,
        "input_bytes": work.input_bytes,
        "output_bytes": work.output_bytes,
        "bytes": work.bytes,
        "is_counted": work.is_counted,
    }


def tables(graph: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    """op_metrics and op_edges of a graph."""
    works = {node.name: measure(graph, node) for node in graph.nodes}
    metrics = [metrics_row(graph, node, works[node.name]) for node in graph.nodes]
    return pd.DataFrame(metrics), pd.DataFrame(edge_rows(graph, works))


def edge_rows(graph: Graph, works: Mapping[str, Work]) -> list[dict[str, Any]]:
    """op_edges: what the consumer must read of each tensor, and what its producer wrote."""
    rows = []
    for edge in graph.edges():
        tensor = graph.tensors[edge.tensor]
        reads = works[edge.consumer].read_bytes[edge.tensor] if edge.consumer else tensor.size_bytes
        written = works[edge.producer].written_bytes[edge.tensor] if edge.producer else 0
        row = {"tensor": edge.tensor, "producer": edge.producer, "consumer": edge.consumer}
        sizes = {"tensor_bytes": tensor.size_bytes, "read_bytes": reads, "written_bytes": written}
        rows.append({**row, **sizes, "dtype": tensor.dtype, "tensor_kind": tensor.kind})
    return rows


def notes(metrics: pd.DataFrame) -> list[str]:
    """What is not counted, by operator, and why."""
    without = Counter(metrics.loc[~metrics["is_counted"], "op_type"])
    unknown = Counter(metrics.loc[metrics["is_counted"] & metrics["flops"].isna(), "op_type"])
    reasons = (
        ("no work formula for", without, "totals leave them out; add one in common/onnx_graph/work"),
        ("shapes depend on data in", unknown, "totals leave them out"),
    )
    return [
        f"{why} {', '.join(f'{op_type} ({count})' for op_type, count in found.items())}: {remedy}"
        for why, found, remedy in reasons
        if found
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    settings = cli.parse(arguments(), argv)
    path = cli.model_path(settings.model)
    model = load_model(path, dict(settings.dim), cli.configured_bindings(settings, path))
    record = Provenance(SCRIPT, settings.command, settings.record(), host=host_identity(), tools=tool_versions())
    record.model_id, record.model_path, record.dimensions = model.model_id, path.name, dict(model.dimensions)
    metrics, edges = tables(model.graph)
    record.notes += notes(metrics)
    store = Store(settings.out, record)
    with store.writing():
        metrics = store.add_table("op_metrics", metrics)
        store.add_table("op_edges", edges)
    cli.show(settings, work_report(metrics))
    cli.say(settings, *(f"note: {note}" for note in record.notes))
    cli.say(
        settings,
        *(
            f"wrote {store.path(name)} ({len(frame)} rows)"
            for name, frame in (("op_metrics", metrics), ("op_edges", edges))
        ),
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
