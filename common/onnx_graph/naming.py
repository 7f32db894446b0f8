"""One name for each node of a model, bodies included, so that every stage and the runtime mean the same node by it.

ONNX leaves node names optional, and ONNX Runtime refuses a model whose names repeat. It also expands local functions
under names of its own. So both are done here, in the same way for the graph that is counted and for the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.checker
import onnx.inliner
from google.protobuf.message import EncodeError

from common.errors import PipelineError
from common.graph import GAP
from common.onnx_graph.scan import scan

SUBGRAPHS = frozenset({onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS})


# By the name of an owner, empty for the main graph: for each of its bodies, the saved name of a node and its own.
Bodies: TypeAlias = Mapping[str, tuple[Mapping[str, str], ...]]


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model to run in place of the file: serialized, its weights still in the files that it names."""

    content: bytes
    renamed_count: int


def name_nodes(graph: onnx.GraphProto) -> int:
    """Give every node of a graph and of all bodies in it a name that no other node of the model has.

    The first node that carries a name keeps it, those of the main graph before those of a body. An empty or taken name
    (``(gap)`` is)
    becomes ``OpType_position`` (its place in its own graph), in a body after its owner's name and a slash, with
    underscores behind it where that is taken.

    Returns:
        How many nodes were renamed.
    """
    taken = {GAP}
    nameless = []
    for position, node, owner in _nodes(graph):
        if node.name and node.name not in taken:
            taken.add(node.name)
        else:
            nameless.append((position, node, owner))
    for position, node, owner in nameless:  # owners come first: theirs are final
        name = f"{owner.name}/{node.op_type}_{position}" if owner else f"{node.op_type}_{position}"
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
    return len(nameless)


def _nodes(graph: onnx.GraphProto) -> Iterator[tuple[int, onnx.NodeProto, onnx.NodeProto | None]]:
    """Every node with its place in its graph and its body's owner: one level of nesting after the other."""
    level: list[tuple[onnx.GraphProto, onnx.NodeProto | None]] = [(graph, None)]
    while level:
        deeper: list[tuple[onnx.GraphProto, onnx.NodeProto | None]] = []
        for body, owner in level:
            for position, node in enumerate(body.node):
                yield position, node, owner
                for attribute in node.attribute:
                    if attribute.type in SUBGRAPHS:
                        deeper += [(inner, node) for inner in (attribute.g, *attribute.graphs) if inner.node]
        level = deeper


def rename_saved(content: bytes) -> tuple[bytes, Bodies]:
    """Give the nodes of a graph that ONNX Runtime saved names of their own, as :func:`name_nodes` does.

    The runtime calls what it fuses the same in the main graph and in each body (``Gelu``, say).

    Returns:
        The model, and the tables by which its trace can be read; those are empty where no name had to change.
    """
    model = onnx.load_from_string(content)
    nodes = [*_nodes(model.graph)]
    saved = [node.name for _, node, _ in nodes]
    if not name_nodes(model.graph):
        return content, {}
    tables: dict[str, dict[int, dict[str, str]]] = {}
    body = -1
    for (position, node, owner), name in zip(nodes, saved, strict=True):
        body += position == 0
        tables.setdefault(owner.name if owner else "", {}).setdefault(body, {})[name] = node.name
    return model.SerializeToString(deterministic=True), {name: (*found.values(),) for name, found in tables.items()}


def expand(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """The model with its local functions inlined and every node named, and how many nodes were renamed for that."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    return model, name_nodes(model.graph)


def named_model(path: Path) -> NamedModel | None:
    """The model at ``path``, expanded as the one that is counted; None where the file can run as it stands.

    Raises:
        PipelineError: the file is no usable model, or too large to be renamed.
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
    """What was done to the names of the model's nodes."""
    if named is None or not named.renamed_count:
        return []
    return [f"{named.renamed_count} nodes without a name of their own were named, as in op_metrics.csv"]
