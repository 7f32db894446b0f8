"""The executed graph of a provider that turns each subgraph into one node; the runtime cannot save such a graph.

The runtime saves the graph that the provider was given, after the optimizations that depend on no provider. Each part
that the provider took is then fused into one node, with the name that the trace has for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
from onnx import helper

from common.messages.errors import PipelineError
from common.profiling.trace.reader import NodeTrace, Trace
from common.runtime.providers.provider_check import AssignedNode
from common.runtime.providers.provider_table import compiles
from common.runtime.sessions.session import GIVEN_GRAPH

NUMBER = re.compile(r"(\d+)$")  # the runtime numbers the parts of one session at the end of their names


def complete_executed_graph(executed: Path, assigned: Sequence[AssignedNode], provider: str, trace: Trace) -> None:
    """Write the executed graph of a compiling provider, without weights; any other one the runtime has already saved.

    It goes where :func:`create_session` was asked to save it; the graph that the provider was given is beside it. The
    assigned nodes are all nodes of that graph. PipelineError: the parts are not those of the saved graph, or not as
    many as the trace has nodes.
    """
    if not compiles(provider) or not trace.nodes:
        return
    model = onnx.load(executed.with_name(GIVEN_GRAPH), load_external_data=False)
    parts = _parts(model.graph, assigned)
    fused = sorted(trace.nodes.values(), key=_number)
    if len(fused) != len(parts):
        problem = f"has {len(fused)} nodes, the provider took {len(parts)} parts of the graph"
        raise PipelineError("the trace", problem, "profile on the CPU")
    weights = {tensor.name for tensor in model.graph.initializer}
    nodes = [_fused(part, traced, parts, model.graph, weights) for part, traced in zip(parts, fused, strict=True)]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    onnx.save(model, executed)


def _number(node: NodeTrace) -> int:
    match = NUMBER.search(node.name)
    return int(match[1]) if match else 0


def _parts(graph: onnx.GraphProto, assigned: Sequence[AssignedNode]) -> list[list[onnx.NodeProto]]:
    """Return the nodes of each part, in the order of the parts; a single part holds all nodes of the graph."""
    expected = Counter(node.name for node in assigned)
    if Counter(node.name for node in graph.node) != expected:
        raise PipelineError("the executed graph", "is not the one that the provider took", "profile on the CPU")
    part_of = {node.name: node.subgraph for node in assigned}
    numbers = sorted({node.subgraph for node in assigned})
    if len(numbers) > 1 and any(count > 1 for count in expected.values()):
        raise PipelineError("the executed graph", "has nodes of one name in several parts", "name the model's nodes")
    return [[node for node in graph.node if part_of[node.name] == number] for number in numbers]


def _fused(
    part: Sequence[onnx.NodeProto],
    trace: NodeTrace,
    parts: Sequence[Sequence[onnx.NodeProto]],
    graph: onnx.GraphProto,
    weights: set[str],
) -> onnx.NodeProto:
    """Make one node that reads the part's external inputs and writes the outputs that are read outside the part."""
    made = {name for node in part for name in node.output if name}
    read = [name for node in part for name in node.input if name not in made | weights and name]
    elsewhere = {name for other in parts if other is not part for node in other for name in node.input}
    elsewhere |= {output.name for output in graph.output}
    written = [name for node in part for name in node.output if name in elsewhere]
    return helper.make_node(trace.op_type, [*dict.fromkeys(read)], written, trace.name)


def write_static(given: Path, target: Path, feeds: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write the given graph with the input shapes of the feeds; its weights stay in their file beside it."""
    model = onnx.load(given, load_external_data=False)
    del model.graph.value_info[:]
    for value in model.graph.input:
        if value.name in feeds:
            shape = helper.make_tensor_value_info("", 1, feeds[value.name].shape).type.tensor_type.shape
            value.type.tensor_type.shape.CopyFrom(shape)
    onnx.save(model, target)
