"""The nodes that the findings of a rule are about, and the gain that mending them is predicted to have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.graphs.sums import total
from common.mending.registry import MENDS
from common.messages.errors import UnusableValueError
from common.messages.names import listed, quoted
from common.table_rows import BottlenecksRow, NodeMapRow

MOST_TRIED = 3  # rules, where none is named
MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Predicted:
    """What mending all findings of a rule gains, in µs; None is unknown."""

    gain_us: float | None
    low_us: float | None
    high_us: float | None
    doubts: tuple[str, ...] = ()  # why the measurement behind it decides nothing


def rules_to_try(found: Sequence[BottlenecksRow], asked: Sequence[str]) -> list[str]:
    """Return the rules that were asked for, or the first ones with a rewrite, those of the largest gain first.

    Raises:
        UnusableValueError: a rule that was asked for has no rewrite, or found nothing.
    """
    mendable = list(dict.fromkeys(rule for row in found for rule in found_by(row) if rule in MENDS))
    for rule in asked:
        if rule not in MENDS:
            remedy = f"these have one: {listed(sorted(MENDS), MOST_NAMED)}"
            raise UnusableValueError("rule", f"{quoted(rule)} has no rewrite", remedy)
        if rule not in mendable:
            others = listed(mendable, MOST_NAMED) if mendable else "none"
            raise UnusableValueError(
                "rule", f"{quoted(rule)} found nothing in this measurement", f"findings with a rewrite: {others}"
            )
    return list(dict.fromkeys(asked)) or mendable[:MOST_TRIED]


def found_by(row: BottlenecksRow) -> list[str]:
    """Return the rules that found what a row is about, the one with most to gain first."""
    return [row["finding"], *row["also_found_by"]]


def nodes_of(found: Iterable[BottlenecksRow], node_map: Iterable[NodeMapRow], every: Iterable[str]) -> frozenset[str]:
    """Return the nodes of the model that findings are about.

    A node that the runtime inserted computes none of them. Its cause may be anywhere, so then all nodes are returned.
    """
    sources: dict[str, set[str]] = {}
    for row in node_map:
        sources.setdefault(row["executed_node"], set()).add(row["source_node"])
    executed = {name for row in found for name in row["executed_nodes"]}
    if any(not sources.get(name) for name in executed):
        return frozenset(every)
    return frozenset(source for name in executed for source in sources[name])


def predicted(found: Sequence[BottlenecksRow], median_us: float | None) -> Predicted:
    """Add the gains of the findings of one rule, which are about different nodes; no gain exceeds the latency."""
    gains = ([row["gain_us"], row["gain_low_us"], row["gain_high_us"]] for row in found)
    most_us = math.inf if median_us is None else median_us
    sums = (total(column) for column in zip(*gains, strict=True))
    gain_us, low_us, high_us = (None if gain is None else min(gain, most_us) for gain in sums)
    return Predicted(gain_us, low_us, high_us, tuple(dict.fromkeys(doubt for row in found for doubt in row["doubts"])))
