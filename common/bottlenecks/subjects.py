"""Subjects of the rules: nodes by operator, all nodes, chains, islands, patterns, borders, runs, an NPU's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from common.bottlenecks.chains import element_wise_chains
from common.bottlenecks.executed_nodes import ExecutedGraph, executed_graph, label
from common.bottlenecks.rules import Chain, Facts, Rule, meets, number
from common.bottlenecks.run_facts import npu_node_facts, npu_run_facts, run_facts
from common.graphs.grouping import grouped
from common.graphs.sums import ratio
from common.messages.host_doubts import EXPLAINED_GAP_US
from common.table_rows import LatencySummaryDocument, Tables

SUMMED = (
    *("node_latency_us", "latency_share", "bytes", "flops", "macs", "executed_macs", "roof_us", "pool_wait_us"),
    "corrected_min_us",
)


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """The subject of a rule, with its figures by table."""

    name: str
    facts: Facts
    nodes: tuple[str, ...] = ()  # executed nodes that a remedy would make faster
    staying: tuple[str, ...] = ()  # nodes of a pattern or an island that stay, and that the remedy makes faster


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures that rules are applied to; ``npu_nodes`` are rows with further columns that follow from them."""

    graph: ExecutedGraph
    run: Facts = field(default_factory=dict)
    npu_nodes: Sequence[Mapping[str, object]] = ()
    npu_run: Facts = field(default_factory=dict)


def measured(
    tables: Tables,
    summary: LatencySummaryDocument | None = None,
    npu_summary: Mapping[str, object] | None = None,
    processor_count: int | None = None,
) -> Measured:
    npu_nodes, npu_runs = tables.get("npu_nodes", ()), tables.get("npu_runs", ())
    return Measured(
        executed_graph(tables, summary),
        run_facts(tables, summary, processor_count),
        npu_node_facts(npu_nodes),
        npu_run_facts(npu_runs, npu_nodes, npu_summary or {}) if npu_runs else {},
    )


def subjects(rule: Rule, measured: Measured, without: Set[str] = frozenset()) -> Iterator[RuleSubject]:
    """Yield what a rule is about; nodes ``without`` are left out."""
    graph = measured.graph
    selected = [name for name, node in graph.nodes.items() if name not in without and meets(node.facts, rule.select)]
    match rule.about:
        case "kind":
            yield from _kinds(graph, selected)
        case "chain":
            yield from _chains(graph, selected)
        case "all_nodes" if selected:
            # no more of the time between nodes goes with some of them than the runtime itself explains
            freed_us = len(selected) * min(max(graph.gap_us, 0.0) / len(graph.nodes), EXPLAINED_GAP_US)
            yield _group(graph, selected, "op_roofline", {"freed_gap_us": freed_us} if rule.frees_gap else {})
        case "island":
            yield from _islands(graph, selected, rule)
        case "pattern":
            yield from _matched(graph, rule)
        case "border":
            yield from _borders(graph)
        case "run":
            yield RuleSubject("the runs", measured.run, tuple(graph.nodes))
        case "npu_node":
            yield from (RuleSubject(str(row["npu_node"]), {"npu_nodes": row}) for row in measured.npu_nodes)
        case "npu_run" if measured.npu_run:
            yield RuleSubject("the NPU", measured.npu_run)


def _kinds(graph: ExecutedGraph, nodes: Sequence[str]) -> Iterator[RuleSubject]:
    """Yield the nodes of each operator type together: they have one cause and one remedy."""
    for of_type in grouped((graph.types[name], name) for name in nodes).values():
        group = _group(graph, of_type, "op_roofline", {})
        own = graph.nodes[of_type[0]].facts if len(of_type) == 1 else _shares(group.facts["op_roofline"])
        tables = dict.fromkeys((*group.facts, *own))
        yield RuleSubject(
            group.name, {table: {**own.get(table, {}), **group.facts.get(table, {})} for table in tables}, group.nodes
        )


def _shares(sums: Mapping[str, object]) -> Facts:
    """Return the shares of several nodes by their sums, as those of one node follow from its figures."""
    parts = {"roof_share": ("roof_us", "node_latency_us"), "unpadded_share": ("macs", "executed_macs")}
    known = {name: [number({"op_roofline": sums}, term) for term in terms] for name, terms in parts.items()}
    return {"op_roofline": {name: ratio(part, whole) for name, (part, whole) in known.items()}}


def _chains(graph: ExecutedGraph, selected: Sequence[str]) -> Iterator[RuleSubject]:
    """Yield the chains of equal operators together."""
    every = element_wise_chains(graph, {*selected})
    alike = grouped((" + ".join(graph.types[name] for name in chain.nodes), chain) for chain in every)
    for operators, chains in alike.items():
        nodes = tuple(name for chain in chains for name in chain.nodes)
        sizes = ((chain.between_bytes, chain.merged_bytes, chain.all_bytes) for chain in chains)
        between, merged, moved = map(sum, zip(*sizes, strict=True))
        # what one pass would still move: a tensor between two nodes is written and read
        share = max(0.0, 1 - (2 * between + merged) / moved) if moved else None
        facts = {"between_bytes": between, "merged_bytes": merged, "unfused_share": share}
        yield RuleSubject(operators, _group(graph, nodes, "executed_edges", facts).facts, nodes)


def _group(graph: ExecutedGraph, nodes: Sequence[str], table: str, more: Mapping[str, object]) -> RuleSubject:
    rows = {source: [graph.nodes[name].facts[source] for name in nodes] for source in ("op_roofline", "op_latency")}
    sums = {
        source: {
            key: sum(values)
            for key in SUMMED
            if (values := [value for row in of_source if isinstance(value := row.get(key), int | float)])
        }
        for source, of_source in rows.items()
    }
    counted = {"node_count": len(nodes), "node_count_share": len(nodes) / len(graph.nodes), **more}
    of_session = {"latency_summary": graph.nodes[nodes[0]].facts["latency_summary"]}
    return RuleSubject(label(nodes), {**sums, **of_session, table: {**sums.get(table, {}), **counted}}, tuple(nodes))


def _islands(graph: ExecutedGraph, conversions: Sequence[str], rule: Rule) -> Iterator[RuleSubject]:
    """Yield the parts of the graph that conversions cut off, except the largest; equal parts are one subject.

    The nodes of a subject are the conversions around it; the enclosed ones stay. The part that is left out is one that
    the remedy does not make faster, if there is any.
    """

    def order(part: Sequence[str]) -> tuple[bool, float, str]:
        time_us = sum(graph.nodes[name].row["node_latency_us"] for name in part)
        return bool(_staying(graph, rule, part)), -time_us, part[0]

    parts = sorted(_parts(graph, set(conversions)), key=order)[1:]
    alike = grouped((frozenset(Counter(graph.types[name] for name in part).items()), part) for part in parts)
    for islands in alike.values():
        inside = {name for part in islands for name in part}
        around = [name for name in conversions if inside & {*graph.readers[name], *graph.writers[name]}]
        if around:
            op_types = Counter(graph.types[name] for part in islands for name in part)
            enclosed = {"enclosed_count": len(inside), "enclosed_types": dict(op_types.most_common())}
            group = _group(graph, around, "executed_edges", enclosed)
            yield replace(group, staying=_staying(graph, rule, sorted(inside)))


def _parts(graph: ExecutedGraph, cut: set[str]) -> Iterator[list[str]]:
    seen = set(cut)
    for start in graph.nodes:
        if start in seen:
            continue
        part, waiting = [], [start]
        seen.add(start)
        while waiting:
            part.append(node := waiting.pop())
            near = {*graph.readers[node], *graph.writers[node]} - seen
            seen |= near
            waiting += sorted(near)
        yield part


def _matched(graph: ExecutedGraph, rule: Rule) -> Iterator[RuleSubject]:
    """Yield the matches of a pattern, those of equal operators together; its nodes are those that would go."""
    matched: dict[str, list[tuple[str, ...]]] = {}
    taken: set[str] = set()
    for chain in rule.chains:
        for path in matches(graph, chain, is_open=rule.is_open):
            if taken.isdisjoint(path) and meets(_first(graph, path[0]), rule.select):
                taken |= set(path)
                matched.setdefault(" + ".join(graph.types[name] for name in path), []).append(path)
    for operators, paths in matched.items():
        kept = None if rule.stays is None else {path[rule.stays] for path in paths}
        going = [name for path in paths for name in path if not kept or name not in kept]
        group = _group(graph, going, "executed_edges", {"match_count": len(paths)})
        yield RuleSubject(operators, group.facts, group.nodes, _staying(graph, rule, sorted(kept or ())))


def _staying(graph: ExecutedGraph, rule: Rule, nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the nodes that a rule makes faster where they stay."""
    return tuple(name for name in nodes if number(graph.nodes[name].facts, rule.stays_kept) is not None)


def matches(graph: ExecutedGraph, chain: Chain, *, is_open: bool) -> Iterator[tuple[str, ...]]:
    """Yield the nodes of each match, in the order of the chain.

    Each node reads the one before it. Only later nodes of the chain may read the results of a node of the chain. Any
    node may read those of the last one. A later node reads nothing else that another node computes, unless ``is_open``.
    """
    for name in graph.nodes:
        for path in _paths(graph, (name,), chain):
            if _is_closed(graph, path, is_open=is_open):
                yield path
                break


def _paths(graph: ExecutedGraph, path: tuple[str, ...], chain: Chain) -> Iterator[tuple[str, ...]]:
    if graph.types[path[-1]] not in chain[len(path) - 1]:
        return
    if len(path) == len(chain):
        yield path
        return
    for reader in dict.fromkeys(graph.readers[path[-1]]):
        yield from _paths(graph, (*path, reader), chain)


def _is_closed(graph: ExecutedGraph, path: Sequence[str], *, is_open: bool) -> bool:
    inside = set(path)
    return (
        len(inside) == len(path)
        and all(inside.issuperset(graph.readers[node]) and node not in graph.returning for node in path[:-1])
        and (is_open or all(inside.issuperset(graph.writers[node]) for node in path[1:]))
    )


def _first(graph: ExecutedGraph, name: str) -> Facts:
    facts = graph.nodes[name].facts
    read = {"operand_node_count": len(set(graph.writers[name]))}
    return {**facts, "executed_edges": {**facts["executed_edges"], **read}}


def _borders(graph: ExecutedGraph) -> Iterator[RuleSubject]:
    providers = {name: node.timed["provider"] if node.timed else "" for name, node in graph.nodes.items()}
    sized = (((providers[producer], providers[consumer]), size) for producer, consumer, size in graph.tensors)
    crossing = grouped((pair, size) for pair, size in sized if pair[0] != pair[1])
    for (before, after), sizes in crossing.items():
        known = [size for size in sizes if size is not None]
        facts = {"tensor_count": len(sizes), "tensor_bytes": sum(known) if known else None}
        yield RuleSubject(f"{before} to {after}", {"executed_edges": facts})
