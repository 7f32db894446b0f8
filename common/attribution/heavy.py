"""A check on the attribution that shares no rule with it: heavy operators and their MACs.

A heavy operator is a source node with multiply-accumulates. Each must be part of exactly one executed node, and the
MACs of that node, counted from the shapes with which it ran, must be those of the source nodes matched to it. ONNX
Runtime pads channels to the block of its layout; such a node does more, and is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from common.errors import PipelineError

LEAST_SINGLE_SHARE = 0.99
LEAST_AGREEING_SHARE = 0.5
NAMED = 5  # nodes that a note names
BLOCKED = "com.microsoft.nchwc"  # domain of the operators on the runtime's blocked layout
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HeavyNode:
    """An executed node: the MACs of the heavy source nodes matched to it, and its own by the shapes it ran with.

    ``executed_macs`` is None where its operator has no formula or a shape is unknown; ``padding`` says which channels
    its layout holds more of than the source has; ``has_light``: light source nodes are
    matched to it.
    """

    name: str
    source_macs: tuple[int, ...]
    executed_macs: int | None
    padding: str
    time_us: float
    has_light: bool = False


@dataclass(frozen=True, slots=True)
class HeavyCheck:
    """How many heavy source nodes there are, belong to an executed node, have its MACs, or are padded there.

    ``single_share`` is the share of the time in executed nodes with at most one of them.
    """

    heavy_count: int
    matched_count: int
    agreeing_count: int
    padded_count: int
    single_share: float


def check_heavy(unmatched: Collection[str], nodes: Collection[HeavyNode]) -> tuple[HeavyCheck, list[str]]:
    """Compare, and say in notes what does not agree.

    Args:
        unmatched: heavy source nodes that belong to no executed node.
        nodes: every executed node, those without heavy source nodes as well.
    """
    heavy = [node for node in nodes if node.source_macs]
    found: dict[str, list[HeavyNode]] = {"agrees": [], "padded": [], "unknown": [], "differs": []}
    for node in heavy:
        found[_verdict(node)].append(node)
    invented = [node for node in nodes if not node.source_macs and node.executed_macs]
    total_us = sum(node.time_us for node in nodes)
    several = [node for node in heavy if len(node.source_macs) > 1]
    share = 1 - sum(node.time_us for node in several) / total_us if total_us else 1.0
    notes = [
        *_note("heavy source nodes without an executed node", unmatched, "the runtime folded them"),
        *_note("channels padded to the runtime's block", map(_both, found["padded"]), "it computes more than asked"),
        *_note("MACs by executed shapes differ", map(_both, found["differs"]), "the attribution may be wrong there"),
        *_note("MACs by executed shapes unknown", (node.name for node in found["unknown"]), "not checked"),
        *_note("light source nodes run as contractions", _names(invented, True), "as a BatchNormalization may"),
        *_note("heavy executed nodes without source nodes", _names(invented, False), "their work is not attributed"),
    ]
    if share < LEAST_SINGLE_SHARE:
        names = (f"{node.name} ({len(node.source_macs)})" for node in several)
        notes += _note(f"only {share:.1%} of the time has at most one heavy operator", names, "the runtime fused them")
    matched, agreeing, padded = (
        sum(len(node.source_macs) for node in some) for some in (heavy, found["agrees"], found["padded"])
    )
    return HeavyCheck(matched + len(unmatched), matched, agreeing, padded, share), notes


def require_agreement(path: object, nodes: Collection[HeavyNode]) -> float:
    """Share of the matched MACs that the executed shapes confirm, padded ones included; unknown ones are left out.

    Raises:
        PipelineError: it is below ``LEAST_AGREEING_SHARE``: work and time of this model are not of the same nodes.
    """
    macs = dict.fromkeys(("agrees", "padded", "unknown", "differs"), 0)
    for node in nodes:
        macs[_verdict(node)] += sum(node.source_macs)
    confirmed, differing = macs["agrees"] + macs["padded"], macs["differs"]
    share = confirmed / (confirmed + differing) if differing else 1.0
    if share < LEAST_AGREEING_SHARE:
        problem = f"the shapes that ran confirm only {share:.0%} of the matched MACs"
        raise PipelineError(path, problem, "attribution fails on this model; 01 with another --optimization may do")
    return share


def _verdict(node: HeavyNode) -> str:
    if node.executed_macs is None:
        return "unknown"
    if node.executed_macs == sum(node.source_macs):
        return "agrees"
    return "padded" if node.padding and node.executed_macs > sum(node.source_macs) else "differs"


def _both(node: HeavyNode) -> str:
    channels = f"{node.padding}; " if node.padding else ""
    return f"{node.name} ({channels}{sum(node.source_macs):,} MACs, executed {node.executed_macs:,})"


def _names(nodes: Iterable[HeavyNode], has_light: bool) -> list[str]:
    return [node.name for node in nodes if node.has_light is has_light]


def macs_in_run(source: Row, passes: int) -> int | None:
    """MACs of a source node (row of op_metrics) in one run; None is unknown.

    Where only data tell how often it runs, it counts as often as the trace saw its executed node: ``passes``.
    """
    gemm = [source[name] for name in ("batch_count", "m_count", "k_count", "n_count")]
    macs: int | None = source["macs"]
    return macs if macs is not None or None in gemm else prod(gemm) * passes


def heavy_node(timed: Row, sources: Sequence[Row]) -> HeavyNode:
    """What the check must know of an executed node.

    Args:
        timed: its row of op_latency, with its ``executed_macs``.
        sources: the rows of op_metrics of the source nodes matched to it.
    """
    macs = {row["source_node"]: macs_in_run(row, timed["events_per_run_count"]) for row in sources}
    heavy = [row for row in sources if macs[row["source_node"]]]
    return HeavyNode(
        name=timed["executed_node"],
        source_macs=tuple(filter(None, macs.values())),
        executed_macs=timed["executed_macs"],
        padding=_padding(heavy[0], timed) if heavy and timed["domain"] == BLOCKED else "",
        time_us=timed["raw_total_us"],
        has_light=len(sources) > len(heavy),
    )


def _padding(source: Row, timed: Row) -> str:
    """Channels (axis 1) that a blocked layout has more of than the source: ``output channels 10 -> 16``."""
    found = []
    for side in ("input", "output"):
        few, many = (_channels(row[f"{side}_shapes"]) for row in (source, timed))
        if few and many and many > few:
            found.append(f"{side} channels {few} -> {many}")
    return ", ".join(found)


def _channels(shapes: Sequence[Any]) -> int | None:
    """Of the first operand or result."""
    return shapes[0][1] if shapes and shapes[0] and len(shapes[0]) > 2 else None


def _note(problem: str, names: Iterable[str], meaning: str) -> list[str]:
    """One line that names the first few; none where there are none."""
    named = [*names]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return [f"{problem}: {', '.join(named[:NAMED])}{more}; {meaning}"] if named else []
