"""The executed graph of a foreign profile: its layers, joined by the tensors of the model that cross their borders.

A layer that was inserted for another one is put on the first tensor that this one reads, behind those inserted before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from common.foreign_traces.layers import Layer
from common.foreign_traces.owners import Owners, Ownership, read_tensors, resolved
from common.graphs.graph import Graph, Node, Tensor
from common.messages.errors import PipelineError
from common.messages.names import listed


@dataclass(slots=True)
class _Border:
    """The tensors that cross the border of a layer, in graph order; keys only."""

    reads: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)


def layer_graph(path: Path, graph: Graph, layers: Sequence[Layer], ownership: Ownership, domain: str) -> Graph:
    """Return the graph of the layers, each behind what it reads; refuse layers that wait for each other."""
    borders = _borders(graph, ownership.owner)
    tensors = {name: graph.tensors[name] for border in borders.values() for name in (*border.reads, *border.writes)}
    served = _served(layers, borders, ownership.served)
    for layer in layers:
        if layer.name not in borders:
            tensors |= _insert(layer, borders, served[layer.name], tensors)
    nodes = [
        Node(layer.name, layer.layer_type, domain, tuple(borders[layer.name].reads), tuple(borders[layer.name].writes))
        for layer in layers
    ]
    made = {name for node in nodes for name in node.outputs}
    return Graph(_ordered(path, nodes), tensors, tuple(name for name in graph.outputs if name in made))


def _borders(graph: Graph, owner: Owners) -> dict[str, _Border]:
    borders: dict[str, _Border] = {}
    returned = {resolved(graph, name) for name in graph.outputs}
    for node in graph.nodes:
        if node.name not in owner:
            continue
        border = borders.setdefault(owner[node.name], _Border())
        for name in read_tensors(graph, node):
            writer = graph.producer.get(name, "")
            if not writer and graph.tensors[name].kind == "input":
                border.reads[name] = None
            elif writer in owner and owner[writer] != owner[node.name]:
                border.reads[name] = None
                borders.setdefault(owner[writer], _Border()).writes[name] = None
        border.writes.update(dict.fromkeys(name for name in node.outputs if name in returned))
    for node in graph.nodes:  # a layer whose results nobody reads
        if node.name in owner and not borders[owner[node.name]].writes:
            borders[owner[node.name]].writes.update(dict.fromkeys(filter(None, node.outputs)))
    return borders


def _served(layers: Sequence[Layer], borders: Mapping[str, _Border], known: Mapping[str, str]) -> dict[str, str]:
    """Return the layer that each inserted one serves: the known one, else the next one, else the last."""
    served, following = dict[str, str](), ""
    for layer in reversed(layers):
        if layer.name in borders:
            following = layer.name
        else:
            target = known.get(layer.name, "")
            served[layer.name] = target if target in borders else following
    last = next((layer.name for layer in reversed(layers) if layer.name in borders), "")
    return {name: target or last for name, target in served.items()}


def _insert(layer: Layer, borders: dict[str, _Border], served: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a layer in front of the one that it serves, or behind it where that reads nothing; return the new tensor."""
    target = borders[served]
    read = next(iter(target.reads), None) or next(iter(target.writes))
    copy = f"{read} ({layer.name})"
    if read in target.reads:
        target.reads = {copy if name == read else name: None for name in target.reads}
    borders[layer.name] = _Border({read: None}, {copy: None})
    return {copy: replace(tensors[read], name=copy, kind="activation")}


def _ordered(path: Path, nodes: Iterable[Node]) -> tuple[Node, ...]:
    by_name = {node.name: node for node in nodes}
    writers = {name: node.name for node in by_name.values() for name in node.outputs}
    needs = {
        node.name: [writers[name] for name in node.inputs if name in writers and writers[name] != node.name]
        for node in by_name.values()
    }
    try:
        return tuple(by_name[name] for name in TopologicalSorter(needs).static_order())
    except CycleError as error:
        problem = f"has layers that wait for each other: {listed(dict.fromkeys(error.args[1]), 4)}"
        raise PipelineError(path, problem, "give the model that was recorded") from error
