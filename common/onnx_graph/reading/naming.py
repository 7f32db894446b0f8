"""Unique names for the nodes of a model, bodies included, so that all stages and the runtime use the same names.

Node names are optional in ONNX, ONNX Runtime refuses a model with repeated names, and it names the nodes of inlined
local functions in its own way. Therefore nodes are named and functions inlined here, alike for the graph that is
counted and for the graph that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.checker
import onnx.inliner
from google.protobuf.message import EncodeError

from common.graphs.graph import GAP
from common.messages.errors import PipelineError
from common.onnx_graph.attributes import bodies_of
from common.onnx_graph.reading.scan import scan

TRACED_NAME = "traced_name"  # metadata of a node that was renamed: its name in the runtime's trace
MOST_NODES = 200_000  # ten times the largest models that exporters write

FunctionKey: TypeAlias = tuple[str, str, str]  # domain, name and overload of a function

# By owner (an empty name is the main graph), for each of its bodies: saved node name to unique name.
Bodies: TypeAlias = Mapping[str, tuple[Mapping[str, str], ...]]


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model to run in place of the file: serialized, with its weights still in the files that it references."""

    content: bytes
    renamed_count: int


def name_nodes(graph: onnx.GraphProto) -> int:
    """Give every node of a graph and of its bodies a unique name, and return how many were renamed.

    The first node with a name keeps it; nodes of the main graph come before nodes of bodies. An empty or taken name
    (``(gap)`` counts as taken) becomes ``OpType_position``, with the position in the node's own graph. In a body, the
    owner's name and a slash precede it. Underscores are appended while the name is taken.
    """
    taken = {GAP}
    nameless = []
    for position, node, owner in _nodes(graph):
        if node.name and node.name not in taken:
            taken.add(node.name)
        else:
            nameless.append((position, node, owner))
    for position, node, owner in nameless:  # owners come first, so their names are final
        name = f"{owner.name}/{node.op_type}_{position}" if owner else f"{node.op_type}_{position}"
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
    return len(nameless)


def _nodes(graph: onnx.GraphProto) -> Iterator[tuple[int, onnx.NodeProto, onnx.NodeProto | None]]:
    """Yield every node with its position and the owner of its body, one level of nesting after the other."""
    level: list[tuple[onnx.GraphProto, onnx.NodeProto | None]] = [(graph, None)]
    while level:
        deeper: list[tuple[onnx.GraphProto, onnx.NodeProto | None]] = []
        for body, owner in level:
            for position, node in enumerate(body.node):
                yield position, node, owner
                deeper += [(inner, node) for inner in bodies_of(node)]
        level = deeper


def rename_saved(content: bytes) -> tuple[bytes, Bodies]:
    """Give the nodes of a graph that ONNX Runtime saved unique names, as :func:`name_nodes` does.

    The runtime gives fused nodes the same name (such as ``Gelu``) in the main graph and in each body. The tables
    translate names in its trace; there are none where no name changed.
    """
    model = onnx.load_from_string(content)
    saved = [(node, node.name) for _, node, _ in _nodes(model.graph)]
    if not name_nodes(model.graph):
        return content, {}
    for node, name in saved:
        if node.name != name:
            node.metadata_props.add(key=TRACED_NAME, value=name)
    return model.SerializeToString(deterministic=True), _bodies(model.graph)


def traced_bodies(path: Path) -> Bodies:
    """Return the tables that :func:`rename_saved` returned, from the graph at ``path`` that it renamed."""
    return _bodies(scan(path).model.graph)


def _bodies(graph: onnx.GraphProto) -> Bodies:
    tables: dict[str, dict[int, dict[str, str]]] = {}
    body, is_renamed = -1, False
    for position, node, owner in _nodes(graph):
        body += position == 0
        traced = next((entry.value for entry in node.metadata_props if entry.key == TRACED_NAME), node.name)
        is_renamed |= traced != node.name
        tables.setdefault(owner.name if owner else "", {}).setdefault(body, {})[traced] = node.name
    return {name: (*bodies.values(),) for name, bodies in tables.items()} if is_renamed else {}


def expand(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Inline the local functions and name every node; return the model and the number of renamed nodes.

    Too many nodes are a ValueError; ONNX raises errors of other types about functions that are not valid.
    """
    if model.functions:
        require_bounded(model)
        model = onnx.inliner.inline_local_functions(model)
    return model, name_nodes(model.graph)


def named_model(path: Path) -> NamedModel | None:
    """Return the model at ``path``, expanded as for counting; None where the file can run unchanged.

    A file that cannot be used as a model, or is too large to be renamed, is a PipelineError.
    """
    scanned = scan(path).model
    if not scanned.functions and not name_nodes(scanned.graph):
        return None
    try:
        model, renamed_count = expand(onnx.load(path, format="protobuf", load_external_data=False))
        return NamedModel(model.SerializeToString(), renamed_count)
    except (RuntimeError, ValueError, EncodeError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "save it with its weights in a file beside it"
        raise PipelineError(path, f"its nodes cannot be named ({reason})", remedy) from error


def naming_notes(named: NamedModel | None) -> list[str]:
    if named is None or not named.renamed_count:
        return []
    count = named.renamed_count
    nodes = "1 node without a name of its own was" if count == 1 else f"{count} nodes without a name of their own were"
    return [f"{nodes} named, as in op_metrics.csv"]


def require_bounded(model: onnx.ModelProto) -> None:
    """Check that a model can be laid out with its functions inlined; functions that call functions twice double it.

    More than ``MOST_NODES`` nodes, or a function that calls itself, are a ValueError.
    """
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    calls = {key: [*_called(function.node)] for key, function in functions.items()}
    counts: dict[FunctionKey, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            counts[key] = sum(counts[called] for called in calls[key]) if key in calls else 1
    except CycleError as error:
        raise ValueError(f"function {error.args[1][0][1]} calls itself") from None
    count = sum(counts.get(called, 1) for called in _called(model.graph.node))
    if count > MOST_NODES:
        raise ValueError(f"it would have more than {MOST_NODES} nodes")


def _called(nodes: Iterable[onnx.NodeProto]) -> Iterator[FunctionKey]:
    """Yield what each node calls; an operator is no function and counts as one node."""
    return ((node.domain, node.op_type, node.overload) for node in every_node(nodes))


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield every node, those of bodies after their owner."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from every_node(body.node)
