"""A check on the attribution that shares no rule with it: contractions and their multiply-accumulates (MACs).

A contraction is a node with MACs: a convolution or a matrix product. Each one in the model must be part of exactly one
executed node. The MACs of that node, counted from the shapes with which it ran, must be those of the source nodes
matched to it. ONNX Runtime pads channels to whole blocks of its layout; such a node computes more, and is named. Where
data decide the shape of a contraction, only the shapes that ran give its MACs, and there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from common.attribution.ownership import Attribution
from common.graphs.operators import CONTRACTIONS, CONTROL_FLOW, NCHWC
from common.graphs.sums import product
from common.messages.errors import PipelineError
from common.messages.names import listed
from common.table_rows import OpLatencyRow, OpMetricsRow, OpRooflineRow, Shape

LEAST_SINGLE_SHARE = 0.99
LEAST_AGREEING_SHARE = 0.5
MOST_NAMED = 5  # nodes that a note names


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """An executed node, with the MACs of its source nodes and its own."""

    name: str
    # MACs of each contraction that is matched to it and whose MACs follow from the model's shapes
    source_macs: tuple[int, ...]
    # MACs of its own operator with the shapes it ran with; None where the operator has no formula or a shape is unknown
    executed_macs: int | None
    padding: str  # the channels that its layout adds to those of the source, in words; empty where it adds none
    time_us: float
    has_other_sources: bool = False
    open_count: int = 0  # contractions matched to it whose MACs depend on data

    @property
    def contraction_count(self) -> int:
        return len(self.source_macs) + self.open_count

    @property
    def verdict(self) -> str:
        if self.executed_macs is None:
            return "unknown"
        if self.open_count:
            return "open"
        if self.executed_macs == sum(self.source_macs):
            return "agrees"
        return "padded" if self.padding and self.executed_macs > sum(self.source_macs) else "differs"


@dataclass(frozen=True, slots=True)
class ContractionCheck:
    """Counts of the contractions of the model: all, matched, with equal MACs, with padded channels, and open ones.

    The MACs of an open contraction depend on data: they follow only from the shapes that ran. ``single_share`` is the
    share of the time in executed nodes with at most one contraction.
    """

    contraction_count: int
    matched_count: int
    agreeing_count: int
    padded_count: int
    open_count: int
    single_share: float


def contractions(metrics: Iterable[OpMetricsRow]) -> frozenset[str]:
    """Return the source nodes that have MACs, or may have some that depend on data."""
    return frozenset(row["source_node"] for row in metrics if macs_in_run(row, 1) or _is_open(row, 1))


def _is_open(source: OpMetricsRow, passes: int | None) -> bool:
    return source["op_type"] in CONTRACTIONS and macs_in_run(source, passes) is None


def compared_contractions(
    table: object,
    nodes: Iterable[OpLatencyRow],
    metrics: Mapping[str, OpMetricsRow],
    attribution: Attribution,
    roofline: Iterable[OpRooflineRow],
) -> tuple[ContractionCheck, list[str]]:
    """Compare the MACs of the contractions of both graphs, and refuse too many that disagree; notes name them."""
    executed_macs = {row["executed_node"]: row["executed_macs"] for row in roofline}
    checked = []
    for timed in nodes:
        name = timed["executed_node"]
        sources = [metrics[source] for source in attribution.sources.get(name, ())]
        checked.append(checked_node(timed, executed_macs[name], sources))
    require_agreement(table, checked)
    with_macs = contractions(metrics.values())
    return check_contractions([name for name in attribution.removed if name in with_macs], checked)


def checked_node(timed: OpLatencyRow, executed_macs: int | None, sources: Sequence[OpMetricsRow]) -> CheckedNode:
    passes = timed["events_per_run_count"]
    macs = {row["source_node"]: macs_in_run(row, passes) for row in sources}
    with_macs = [row for row in sources if macs[row["source_node"]]]
    open_count = sum(_is_open(row, passes) for row in sources)
    if executed_macs and not with_macs and None in macs.values():
        open_count = max(open_count, 1)  # an LSTM, say
    return CheckedNode(
        name=timed["executed_node"],
        source_macs=tuple(filter(None, macs.values())),
        executed_macs=executed_macs,
        padding=_padding(with_macs[0], timed) if with_macs and timed["domain"] == NCHWC else "",
        time_us=timed["raw_total_us"],
        has_other_sources=len(sources) > len(with_macs) + open_count,
        open_count=open_count,
    )


def macs_in_run(source: OpMetricsRow, passes: int | None) -> int | None:
    """Return the MACs of a source node in one run; None is unknown.

    Where only data determine how often the node runs, ``passes`` says how often its executed node ran.
    """
    if source["op_type"] in CONTROL_FLOW:
        return 0  # the nodes of its bodies have rows
    if source["macs"] is not None:
        return source["macs"]
    return product((source["batch_count"], source["m_count"], source["k_count"], source["n_count"], passes))


def check_contractions(
    unmatched: Collection[str], nodes: Collection[CheckedNode]
) -> tuple[ContractionCheck, list[str]]:
    """Compare the MACs of source and executed nodes; notes say what does not agree."""
    by_verdict: dict[str, list[CheckedNode]] = {name: [] for name in ("agrees", "padded", "open", "unknown", "differs")}
    for node in nodes:
        if node.contraction_count:
            by_verdict[node.verdict].append(node)
    counts = {name: sum(node.contraction_count for node in found) for name, found in by_verdict.items()}
    total_us = sum(node.time_us for node in nodes)
    fused = [node for node in nodes if node.contraction_count > 1]
    check = ContractionCheck(
        contraction_count=sum(counts.values()) + len(unmatched),
        matched_count=sum(counts.values()),
        agreeing_count=counts["agrees"],
        padded_count=counts["padded"],
        open_count=counts["open"],
        single_share=1 - sum(node.time_us for node in fused) / total_us if total_us else 1.0,
    )
    without_macs = [node for node in nodes if not node.contraction_count and node.executed_macs]
    padded, differing = ([_compared(node) for node in by_verdict[verdict]] for verdict in ("padded", "differs"))
    unknown = [node.name for node in by_verdict["unknown"]]
    converted = [node.name for node in without_macs if node.has_other_sources]
    unowned = [node.name for node in without_macs if not node.has_other_sources]
    notes = [
        *_note("contractions without an executed node", unmatched, "the runtime folded them"),
        *_note("channels padded to the runtime's block", padded, "it computes more than the model asks for"),
        *_note("MACs by executed shapes differ", differing, "the attribution may be wrong there"),
        *_note("MACs by executed shapes unknown", unknown, "not checked"),
        *_note("nodes without MACs run as contractions", converted, "as a BatchNormalization may"),
        *_note("executed contractions without source nodes", unowned, "their work is not attributed"),
    ]
    if check.single_share < LEAST_SINGLE_SHARE:
        problem = f"only {check.single_share:.1%} of the time is in nodes with at most one contraction"
        named = [f"{node.name} ({node.contraction_count})" for node in fused]
        notes += _note(problem, named, "the runtime fused several")
    return check, notes


def require_agreement(table: object, nodes: Collection[CheckedNode]) -> float:
    """Return the share of the matched MACs that the executed shapes confirm, padded ones included.

    MACs of open nodes, and of nodes whose executed shapes are unknown, do not count. A share below
    ``LEAST_AGREEING_SHARE`` is a PipelineError: work and time are not those of the same nodes.
    """
    confirmed = sum(sum(node.source_macs) for node in nodes if node.verdict in ("agrees", "padded"))
    differing = sum(sum(node.source_macs) for node in nodes if node.verdict == "differs")
    share = confirmed / (confirmed + differing) if differing else 1.0
    if share < LEAST_AGREEING_SHARE:
        problem = f"the shapes that ran confirm only {share:.0%} of the matched MACs"
        raise PipelineError(table, problem, "attribution fails on this model; profile it with another <optimization>")
    return share


def _compared(node: CheckedNode) -> str:
    channels = f"{node.padding}; " if node.padding else ""
    return f"{node.name} ({channels}{sum(node.source_macs):,} MACs, executed {node.executed_macs:,})"


def _padding(source: OpMetricsRow, timed: OpLatencyRow) -> str:
    """Say which channels (axis 1) a blocked layout adds to the source: ``output channels 10 -> 16``."""
    sides = (
        ("input", _channels(source["input_shapes"]), _channels(timed["input_shapes"])),
        ("output", _channels(source["output_shapes"]), _channels(timed["output_shapes"])),
    )
    padded = [(side, before, after) for side, before, after in sides if before and after and after > before]
    return ", ".join(f"{side} channels {before} -> {after}" for side, before, after in padded)


def _channels(shapes: Sequence[Shape | None]) -> int | None:
    first = shapes[0] if shapes else None
    channels = first[1] if first and len(first) > 2 else None
    return channels if isinstance(channels, int) else None


def _note(problem: str, names: Iterable[str], meaning: str) -> list[str]:
    named = listed(names, MOST_NAMED)
    return [f"{problem}: {named}; {meaning}"] if named else []
