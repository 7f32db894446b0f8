"""Which executed nodes of two measurements compute the same: by their source nodes, whatever the runtime made of them.

One optimization level fuses what another one runs node by node, and providers name and divide nodes as they like. So
executed nodes that share source nodes form a group, and groups are compared: the smallest sets in which both sides
compute the same source nodes. A node that the runtime inserted belongs to the node whose layout it serves, unless the
other side has it as well.

Nodes of two files that differ in their names only are matched by what they compute: operator, attributes and shapes of
a node and of all that it depends on, or of all that depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from common.table_rows import OpEdgesRow, OpMetricsRow

Key = tuple[str, str]  # kind and name of what a group holds


@dataclass(frozen=True, slots=True)
class Executed:
    """The executed nodes of one side.

    Attributes:
        sources: source nodes by executed node, in the order of execution; empty for an inserted node.
        serves: the executed node that an inserted one serves, where it is known.
        is_mapped: whether the source nodes are known; else each executed node counts as one of its own name.
    """

    sources: Mapping[str, Sequence[str]]
    serves: Mapping[str, str] = field(default_factory=dict)
    is_mapped: bool = True


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
    renamed = renamed or {}
    sources = {name: tuple(renamed.get(source, source) for source in of) for name, of in candidate.sources.items()}
    sets = _Sets()
    shared = {name for name, of in baseline.sources.items() if not of and not sources.get(name, (name,))}
    for side, nodes, serves in (("a", baseline.sources, baseline.serves), ("b", sources, candidate.serves)):
        for name, of in nodes.items():
            sets.find((side, name))
            for source in of:
                sets.join((side, name), ("source", source))
            if not of and name not in shared and serves.get(name) in nodes:
                sets.join((side, name), (side, serves[name]))
    for name in shared:
        sets.join(("a", name), ("b", name))
    return [_group(members) for members in sets.members()]


def _group(members: Iterable[Key]) -> NodeGroup:
    names: dict[str, list[str]] = {"source": [], "a": [], "b": []}
    for kind, name in members:
        names[kind].append(name)
    return NodeGroup(tuple(names["source"]), tuple(names["a"]), tuple(names["b"]))


class _Sets:
    """Disjoint sets that are joined; each keeps the order in which its members came."""

    def __init__(self) -> None:
        self._above: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        self._above.setdefault(key, key)
        while self._above[key] != key:
            self._above[key] = self._above[self._above[key]]
            key = self._above[key]
        return key

    def join(self, one: Key, other: Key) -> None:
        first, second = self.find(one), self.find(other)
        if first != second:
            self._above[second] = first

    def members(self) -> list[list[Key]]:
        members: dict[Key, list[Key]] = {}
        for key in self._above:
            members.setdefault(self.find(key), []).append(key)
        return [*members.values()]


def renamed_sources(
    baseline: Sequence[OpMetricsRow],
    candidate: Sequence[OpMetricsRow],
    baseline_edges: Sequence[OpEdgesRow],
    candidate_edges: Sequence[OpEdgesRow],
) -> dict[str, str]:
    """Return the baseline's name of each source node of the candidate that the baseline does not know by its own."""
    known = {row["source_node"] for row in baseline}
    strangers = [row["source_node"] for row in candidate if row["source_node"] not in known]
    if not strangers:
        return {}
    missing = known - {row["source_node"] for row in candidate}
    before = _fingerprints(baseline, baseline_edges)
    after = _fingerprints(candidate, candidate_edges)
    renamed: dict[str, str] = {}
    for kind in (lambda up, down: (up, down), lambda up, _: up, lambda _, down: down):
        free = [name for name in before if name in missing and name not in renamed.values()]
        theirs = _by_value({name: kind(*before[name]) for name in free})
        ours = _by_value({name: kind(*after[name]) for name in strangers if name not in renamed})
        for value, names in ours.items():
            if len(names) == len(theirs.get(value, ())):
                renamed |= dict(zip(names, theirs[value], strict=True))
    return renamed


def is_same_structure(
    baseline: Sequence[OpMetricsRow],
    candidate: Sequence[OpMetricsRow],
    baseline_edges: Sequence[OpEdgesRow],
    candidate_edges: Sequence[OpEdgesRow],
) -> bool:
    """Whether two graphs differ in nothing but names."""
    before, after = _fingerprints(baseline, baseline_edges), _fingerprints(candidate, candidate_edges)
    return Counter(before.values()) == Counter(after.values())


def _by_value(values: Mapping[str, Hashable]) -> dict[Hashable, list[str]]:
    names: dict[Hashable, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def _fingerprints(metrics: Sequence[OpMetricsRow], edges: Sequence[OpEdgesRow]) -> dict[str, tuple[int, int]]:
    """Return for each node what it and all before it are, and what it and all behind it are, without their names."""
    own = {row["source_node"]: _own(row) for row in metrics}
    before: dict[str, list[str]] = {name: [] for name in own}
    after: dict[str, list[str]] = {name: [] for name in own}
    for edge in edges:
        if edge["producer"] in own and edge["consumer"] in own:
            before[edge["consumer"]].append(edge["producer"])
            after[edge["producer"]].append(edge["consumer"])
    up, down = _closed(own, before), _closed(dict(reversed(own.items())), after)
    return {name: (up[name], down[name]) for name in own}


def _own(row: OpMetricsRow) -> int:
    shapes = (row["input_shapes"], row["output_shapes"], row["attributes"])
    return hash((row["op_type"], row["domain"], row["dtype"], repr(shapes)))


def _closed(own: Mapping[str, int], reached: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return a value of each node and of all that it reaches; the nodes come after what they reach."""
    values: dict[str, int] = {}
    for name, value in own.items():
        values[name] = hash((value, tuple(sorted(values.get(other, 0) for other in reached[name]))))
    return values
