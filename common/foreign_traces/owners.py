"""The layer of a foreign profile that computes each node of the model, and how well both match.

A layer has the nodes that it names, or whose output it names. The first layer that names a node has it. A contraction
that no layer names goes with the first layer downstream, with all between: programs name a fused pattern after its last
node. Programs fuse the nodes after a contraction into it. So any other node goes with the layer of its operands that
runs last. A node that follows no layer goes with the first layer that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from common.foreign_traces.layers import Layer, LayerProfile, usual_us
from common.foreign_traces.matching import Matched, ModelNames, contraction_share, time_share
from common.graphs.graph import Graph, Node, operands
from common.graphs.operators import CONTRACTIONS
from common.messages.errors import PipelineError
from common.messages.names import listed, shown

MOST_NAMED = 5
LEAST_NAMELESS_SHARE = 0.01  # of the time; less is not worth a note
Owners = Mapping[str, str]  # layer by source node


@dataclass(frozen=True, slots=True)
class Ownership:
    """The layer of each node that a run computes, and notes on what the profile does not give."""

    owner: Owners
    served: Mapping[str, str]  # the layer that each serving layer serves; empty where the model does not know it
    matched: Matched
    notes: list[str]


def owners(path: Path, graph: Graph, profile: LayerProfile) -> Ownership:
    """Return the layer of each node that a run computes, and how well the profile and the model match.

    A profile that names no node of the model, or has a tensor of another shape, is refused.
    """
    names, layers = ModelNames(graph), {layer.name for layer in profile.layers}
    named = _named(names, profile.layers)
    if not named:
        problem = f"names no node of the model (its layers: {listed((layer.name for layer in profile.layers), 3)})"
        raise PipelineError(path, problem, "give the model that was recorded")
    _require_shapes(path, graph, profile)
    served = {layer.name: names.served(layer, layers, named) for layer in profile.layers if layer.serves}
    merged = frozenset(names.nodes(profile.merged))
    owner = _owner(graph, profile, named, merged)
    known = {**named, **{name: owner[name] for name in merged if name in owner}}
    of_contractions = contraction_share(graph, known, {} if profile.names_contractions else owner)
    time = time_share(profile.layers, {*named.values()}, served)
    matched = Matched(time, of_contractions, profile.operation_share)
    contractions = [node.name for node in graph.nodes if node.op_type in CONTRACTIONS]
    with_others = {named[name] for name in contractions if name in named}
    shared = [name for name in contractions if name not in known and owner.get(name) in with_others]
    by_name = {node for layer in profile.layers for node in names.nodes((*layer.sources, *layer.ends_with))}
    between = [name for name in contractions if name in named and name not in by_name]
    return Ownership(owner, served, matched, [*_notes(between, shared, profile.layers, owner)])


def _owner(graph: Graph, profile: LayerProfile, named: Owners, merged: Set[str]) -> dict[str, str]:
    """Return the layer of each node; nodes that a layer names come first, then the nodes around them."""
    owner = dict(named)
    for layer in profile.layers:
        owner.update(dict.fromkeys((name for name in layer.fills if name not in owner), layer.name))
    place, idle = {layer.name: index for index, layer in enumerate(profile.layers)}, _idle(graph)
    _name_contractions(graph, place, owner)
    free = [node for node in graph.nodes if node.name not in owner and node.name not in idle]

    def give_downstream(nodes: Iterable[Node]) -> None:
        for node in nodes:
            before = [owner[writer] for writer in _writers(graph, node) if writer in owner]
            if before and node.name not in owner:
                owner[node.name] = max(before, key=place.__getitem__)

    give_downstream(node for node in free if node.name not in merged)
    for node in (node for node in reversed(free) if node.name not in owner):
        if after := [owner[name] for name in graph.readers(node) if name in owner]:
            owner[node.name] = min(after, key=place.__getitem__)
    give_downstream(free)
    return owner


def _notes(between: Sequence[str], shared: Sequence[str], layers: Sequence[Layer], owner: Owners) -> Iterator[str]:
    if between:
        verb = "contraction matches" if len(between) == 1 else "contractions match"
        problem = f"{len(between)} {verb} only by being before the last node of a subgraph"
        remedy = "the profile names no others of it, so a model with more nodes there matches as well"
        yield f"{problem} ({listed(between, MOST_NAMED)}): {remedy}; give <executed_graph>"
    if shared:
        problem = f"no layer names {len(shared)} contractions, whose work counts for a layer that has others"
        yield f"{problem}: {listed(shared, MOST_NAMED)}"
    with_nodes = {*owner.values()}
    times = {layer.name: usual_us(layer) for layer in layers}
    nameless = [layer.name for layer in layers if layer.name not in with_nodes and not layer.serves]
    share = sum(times[name] for name in nameless) / (sum(times.values()) or 1.0)
    if share >= LEAST_NAMELESS_SHARE:
        slowest = sorted(nameless, key=lambda name: -times[name])
        problem = f"{share:.1%} of the time is in layers that name no node of the model"
        yield f"{problem}, and counts beside the layers that follow them: {listed(slowest, MOST_NAMED)}"


def _require_shapes(path: Path, graph: Graph, profile: LayerProfile) -> None:
    for name, recorded in profile.shapes.items():
        bound = graph.tensors[name].shape if name in graph.tensors else None
        pairs = zip(bound or (), recorded, strict=False)
        has_other_size = any(isinstance(size, int) and size != extent for size, extent in pairs)
        if bound is not None and len(bound) == len(recorded) and has_other_size:
            problem = f"was recorded with {shown(name)} of shape {[*recorded]}, the model has {[*bound]}"
            raise PipelineError(path, problem, "give the recorded sizes with <dim>")


def _named(names: ModelNames, layers: Sequence[Layer]) -> dict[str, str]:
    owner: dict[str, str] = {}
    for layer in layers:
        for node in names.nodes(layer.sources):
            owner.setdefault(node, layer.name)
    ends = [(layer.name, [*names.nodes(layer.ends_with)]) for layer in layers]
    for name, nodes in ends:
        owner.update(dict.fromkeys((node for node in nodes if node not in owner), name))
    for name, nodes in ends:
        _claim_before(names.graph, owner, name, nodes)
    return owner


def _name_contractions(graph: Graph, place: Mapping[str, int], owner: dict[str, str]) -> None:
    """Give each contraction without a layer, and what is between, to the first layer downstream."""
    target = dict(owner)
    for node in reversed(graph.nodes):
        after = [target[name] for name in graph.readers(node) if name in target]
        if node.name not in target and after:
            target[node.name] = min(after, key=place.__getitem__)
    for node in graph.nodes:
        if node.name in target and node.name not in owner and node.op_type in CONTRACTIONS:
            waiting = [node]
            while waiting:
                owner[(between := waiting.pop()).name] = target[node.name]
                readers = (graph.by_name[name] for name in graph.readers(between) if name not in owner)
                waiting += [reader for reader in readers if target.get(reader.name) == target[node.name]]


def _claim_before(graph: Graph, owner: dict[str, str], layer: str, ends: Iterable[str]) -> None:
    waiting = [node for node in ends if owner[node] == layer]
    while waiting:
        for writer in _writers(graph, graph.by_name[waiting.pop()]):
            if writer not in owner:
                owner[writer] = layer
                waiting.append(writer)


def _idle(graph: Graph) -> set[str]:
    """Return the nodes that read neither an input of the model nor what follows from one: no run changes them."""
    changing = {name for name, tensor in graph.tensors.items() if tensor.kind == "input"}
    idle = set()
    for node in graph.nodes:
        if any(name in changing for name in read_tensors(graph, node)):
            changing.update(node.outputs)
        else:
            idle.add(node.name)
    return idle


def resolved(graph: Graph, tensor: str) -> str:
    while tensor in graph.aliases:
        tensor = graph.aliases[tensor]
    return tensor


def read_tensors(graph: Graph, node: Node) -> list[str]:
    """Return the tensors that a node reads, each once, under the names that they have outside of bodies."""
    return [name for name in dict.fromkeys(resolved(graph, name) for name in operands(node)) if name]


def _writers(graph: Graph, node: Node) -> list[str]:
    return [graph.producer[name] for name in read_tensors(graph, node) if name in graph.producer]
