"""Which executed nodes of two measurements compute the same: by their source nodes, whatever the runtime made of them.

One optimization level fuses what another one runs node by node, and providers name and divide nodes as they like. So
executed nodes that share source nodes form a group, and groups are compared: the smallest sets in which both sides
compute the same source nodes. A node that the runtime inserted belongs to the node whose layout it serves, unless the
other side has it as well.

Nodes of two files that differ in their names only are matched by what they compute: operator, attributes and shapes of
a node and of all that it depends on, or of all that depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from common.table_rows import OpEdgesRow, OpMetricsRow

Fingerprints = Mapping[str, tuple[int, int]]  # by source node


@dataclass(frozen=True, slots=True)
class Executed:
    """The executed nodes of one side."""

    # Source nodes by executed node, in the order of execution; empty for an inserted node
    sources: Mapping[str, Sequence[str]]
    # The executed node that an inserted one serves, where it is known
    serves: Mapping[str, str] = field(default_factory=dict)
    is_mapped: bool = True  # whether the source nodes are known; else each executed node counts as one of its own name


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Executed nodes of both sides that compute the same source nodes; one side may have none."""

    source_nodes: tuple[str, ...]
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]


def aligned(baseline: Executed, candidate: Executed, renamed: Mapping[str, str] | None = None) -> list[NodeGroup]:
    """Return the groups of both sides in the order of the baseline; what only the candidate has comes last.

    Args:
        renamed: the baseline's name of each source node of the candidate that has another one there.
    """
    import networkx as nx

    renamed = renamed or {}
    sources = {name: tuple(renamed.get(source, source) for source in of) for name, of in candidate.sources.items()}
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    shared = {name for name, of in baseline.sources.items() if not of and not sources.get(name, (name,))}
    for side, nodes, serves in (("a", baseline.sources, baseline.serves), ("b", sources, candidate.serves)):
        for name, of in nodes.items():
            graph.add_node((side, name))
            graph.add_edges_from(((side, name), ("source", source)) for source in of)
            if not of and name not in shared and serves.get(name) in nodes:
                graph.add_edge((side, name), (side, serves[name]))
    graph.add_edges_from((("a", name), ("b", name)) for name in shared)
    place = {key: index for index, key in enumerate(graph)}
    return [_group(sorted(members, key=place.__getitem__)) for members in nx.connected_components(graph)]


def _group(members: Sequence[tuple[str, str]]) -> NodeGroup:
    of = {wanted: tuple(name for kind, name in members if kind == wanted) for wanted in ("source", "a", "b")}
    return NodeGroup(of["source"], of["a"], of["b"])


def renamed_sources(baseline: Fingerprints, candidate: Fingerprints) -> dict[str, str]:
    """Return the baseline's name of each source node of the candidate that the baseline does not know by its own."""
    renamed: dict[str, str] = {}
    for kind in (lambda up, down: (up, down), lambda up, _: up, lambda _, down: down):
        free = [name for name in baseline if name not in candidate and name not in renamed.values()]
        strangers = [name for name in candidate if name not in baseline and name not in renamed]
        theirs = _by_value({name: kind(*baseline[name]) for name in free})
        ours = _by_value({name: kind(*candidate[name]) for name in strangers})
        for value, names in ours.items():
            if len(names) == len(theirs.get(value, ())):
                renamed |= dict(zip(names, theirs[value], strict=True))
    return renamed


def _by_value(values: Mapping[str, Hashable]) -> dict[Hashable, list[str]]:
    names: dict[Hashable, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def fingerprints(metrics: Sequence[OpMetricsRow], edges: Sequence[OpEdgesRow]) -> dict[str, tuple[int, int]]:
    """Return for each node what it and all before it are, and what it and all behind it are, without their names."""
    own = {}
    for row in metrics:
        shapes = repr((row["input_shapes"], row["output_shapes"], row["attributes"]))
        own[row["source_node"]] = hash((row["op_type"], row["domain"], row["dtype"], shapes))
    before: dict[str, list[str]] = {name: [] for name in own}
    after: dict[str, list[str]] = {name: [] for name in own}
    for edge in edges:
        if edge["producer"] in own and edge["consumer"] in own:
            before[edge["consumer"]].append(edge["producer"])
            after[edge["producer"]].append(edge["consumer"])
    up, down = _closed(own, before), _closed(dict(reversed(own.items())), after)
    return {name: (up[name], down[name]) for name in own}


def _closed(own: Mapping[str, int], reached: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return a value of each node and of all that it reaches; the nodes come after what they reach."""
    values: dict[str, int] = {}
    for name, value in own.items():
        values[name] = hash((value, tuple(sorted(values.get(other, 0) for other in reached[name]))))
    return values
