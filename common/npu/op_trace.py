"""Reader of ``qnn_op_trace.json``, in which ONNX Runtime's QNN provider says what each QNN node was made of.

The provider writes it into the working directory with ``enable_framework_op_trace=1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.npu.source_file import listed_mappings, read_json

WHAT = "qnn_op_trace.json, which ONNX Runtime's QNN provider writes"
MOST_BYTES = 50_000_000  # of SqueezeNet: 34 kB


@dataclass(frozen=True, slots=True)
class TracedNode:
    qnn_op_type: str
    source_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpTrace:
    """QNN nodes by name, and the chips that they were compiled for."""

    nodes: Mapping[str, TracedNode]
    soc_models: tuple[int, ...]


def read_op_trace(path: Path) -> OpTrace:
    content = read_json(path, MOST_BYTES, WHAT)
    nodes = {}
    for graph in listed_mappings(path, content, "subgraph_traces", WHAT):
        for mapping in listed_mappings(path, graph, "op_mappings", WHAT):
            sources = listed_mappings(path, mapping, "sources", WHAT)
            names = tuple(str(source.get("name", "")) for source in sources if source.get("type") == "OP")
            nodes[str(mapping.get("dst_name", ""))] = TracedNode(str(mapping.get("dst_qnn_op_type", "")), names)
    return OpTrace(nodes, tuple(_soc_models(content)))


def _soc_models(content: Mapping[str, object]) -> list[int]:
    traces = content.get("soc_traces")
    listed = traces if isinstance(traces, list) else []
    targets = [trace.get("compilation_target") for trace in listed if isinstance(trace, dict)]
    models = [target.get("soc_model") for target in targets if isinstance(target, dict)]
    return [model for model in models if isinstance(model, int)]
