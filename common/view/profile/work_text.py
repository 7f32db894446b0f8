"""Work and traffic by operator type as text, with totals, and notes on what the totals leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal

from common.graphs.operators import MACHINE_LEARNING, MICROSOFT, ONNX
from common.graphs.sums import ratio
from common.messages.names import printable
from common.table_rows import OpMetricsRow
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import percent, quantity

Figure = Literal["macs", "flops", "weight_bytes", "bytes"]
FIGURES: tuple[Figure, ...] = ("macs", "flops", "weight_bytes", "bytes")
EXPRESSIONS: Mapping[str, Literal["macs_expression", "flops_expression", "bytes_expression"]] = {
    "macs": "macs_expression",
    "flops": "flops_expression",
    "bytes": "bytes_expression",
}
KNOWN_DOMAINS = (ONNX, MACHINE_LEARNING, MICROSOFT)
SPOKEN = {"macs": "MACs", "flops": "FLOPs", "bytes": "moved"}
SYMBOLIC = table_of_cells("op_type", "nodes", "MACs", left=(0, 2))


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """Sums over some nodes, in the order of ``FIGURES``; a figure that is unknown for all of them is None."""

    name: str
    node_count: int
    macs: int | None
    flops: int | None
    weight_bytes: int | None
    moved_bytes: int | None

    @classmethod
    def of(cls, name: str, rows: Sequence[OpMetricsRow]) -> WorkTotals:
        """Add up the known figures of some nodes."""
        return cls(name, len(rows), *(_known_sum(rows, figure) for figure in FIGURES))


def _known_sum(rows: Iterable[OpMetricsRow], figure: Figure) -> int | None:
    known = [value for row in rows if (value := row[figure]) is not None]
    return sum(known) if known else None


def symbolic_report(
    metrics: Sequence[OpMetricsRow],
    macs: Mapping[str, str],
    totals: Mapping[str, str],
    *,
    of_either: Set[str] = frozenset(),
) -> str:
    """Return MACs by operator type as expressions over the unbound dimensions, and the totals.

    ``macs`` are for types that have any. ``of_either`` are nodes of branches of equal cost, which is that of their If.
    """
    node_counts = Counter(row["op_type"] for row in metrics)
    counted = [row for row in metrics if row["source_node"] not in of_either]
    unknown = {name: _unknown_count(counted, name) for name in totals}
    lines = [
        f"{name} = {printable(text)}{f', and {unknown[name]} unknown' if unknown[name] else ''}"
        for name, text in totals.items()
        if text != "0" or not unknown[name]
    ]
    return "\n".join([SYMBOLIC.text((name, str(node_counts[name]), text) for name, text in macs.items()), *lines])


def _unknown_count(rows: Iterable[OpMetricsRow], name: str) -> int:
    """Return how many nodes have neither a number nor an expression for a figure."""
    figure: Figure = "macs" if name == "macs" else "flops" if name == "flops" else "bytes"
    return sum(row[figure] is None and not row[EXPRESSIONS[name]] for row in rows)


def work_report(
    metrics: Sequence[OpMetricsRow], bounds: Mapping[str, float | None], *, of_either: Set[str] = frozenset()
) -> str:
    """Return counts, MACs, FLOPs and bytes by operator type, the largest first; sums leave out unknowns.

    ``bounds`` are the most that each total can be, where there is a bound; ``of_either`` as above.
    """
    counted = [row for row in metrics if row["source_node"] not in of_either]
    unknown: dict[str, int] = {name: sum(row[name] is None for row in counted) for name in FIGURES}
    ordered = sorted(metrics, key=itemgetter("op_type"))
    types = [WorkTotals.of(op_type, [*rows]) for op_type, rows in groupby(ordered, itemgetter("op_type"))]
    types.sort(key=lambda totals: (_or_less(totals.macs), _or_less(totals.flops), totals.node_count), reverse=True)
    sums = {name: _known_sum(metrics, name) for name in FIGURES}
    known = (None if unknown[name] and not value else value for name, value in sums.items())  # empty, never zero
    total = WorkTotals("total", len(metrics), *known)
    columns: Table[WorkTotals] = Table(
        TableColumn("op_type", lambda totals: totals.name),
        TableColumn("nodes", lambda totals: str(totals.node_count)),
        TableColumn("MACs", lambda totals: quantity(totals.macs, "")),
        TableColumn("FLOPs", lambda totals: quantity(totals.flops, "")),
        TableColumn("share", lambda totals: percent(ratio(totals.flops, total.flops))),
        TableColumn("weights", lambda totals: quantity(totals.weight_bytes, "B")),
        TableColumn("bytes", lambda totals: quantity(totals.moved_bytes, "B")),
    )
    lines = [columns.text([*types, total])]
    if unknown["flops"]:
        lines.append(f"totals leave out {unknown['flops']} of {len(metrics)} nodes, whose work is unknown")
    most = {name: bound for name, bound in bounds.items() if unknown[name] and bound is not None}
    if texts := [f"{quantity(value, 'B' if name == 'bytes' else '')} {SPOKEN[name]}" for name, value in most.items()]:
        lines.append(f"at most {', '.join(texts)}, including nodes whose work depends on data")
    return "\n".join(lines)


def _or_less(value: float | None) -> float:
    """Return a figure by which types are ordered; unknowns come last."""
    return -1.0 if value is None else value


def left_out(
    metrics: Sequence[OpMetricsRow],
    unbound: Sequence[str],
    *,
    settled: Set[str] = frozenset(),
    of_either: Set[str] = frozenset(),
) -> list[str]:
    """Return notes on what the totals leave out, by operator type, and why.

    ``unbound`` are dimensions that are symbols, ``settled`` nodes whose shapes given inputs settle.
    """
    counted = [row for row in metrics if row["is_counted"] and row["source_node"] not in of_either]
    is_open = [row for row in counted if row["flops"] is None and not row["flops_expression"]]
    once = [row for row in is_open if row["execution_count"] is not None]
    open_dims = ", or follow no polynomial of the unbound dimensions," if unbound else ""
    bind = "bind them with <dim>, or " if unbound else ""
    run = "<op_roofline> counts them by the shapes that run"
    uncounted = [row for row in metrics if not row["is_counted"]]
    by_input = [row for row in once if row["source_node"] in settled]
    by_run = [row for row in once if row["source_node"] not in settled]
    often = [row for row in is_open if row["execution_count"] is None]
    most = "upper_bound_flops has the most where there is one, and <op_roofline> counts a run"
    reasons = (
        (uncounted, "no formula counts the work of", _rest_of_uncounted(uncounted)),
        (by_input, f"shapes depend on data{open_dims} in", f"{bind}give values with <input>; {run}"),
        (by_run, f"shapes depend on data that only a run computes{open_dims} in", f"{bind}{run}"),
        (often, "how often they run depends on data:", most),
    )
    return [f"{why} {_by_type(rows)}: totals leave them out; {remedy}" for rows, why, remedy in reasons if rows]


def _rest_of_uncounted(rows: Iterable[OpMetricsRow]) -> str:
    """Return what is known of nodes without a formula; a custom operator can be exported so that one counts it."""
    is_custom = any(row["domain"] not in KNOWN_DOMAINS for row in rows)
    more = "; a custom operator that is exported as a function of ONNX's operators is counted" * is_custom
    return f"<op_roofline> has their times, but no rates{more}"


def _by_type(rows: Iterable[OpMetricsRow]) -> str:
    return ", ".join(f"{op_type} ({count})" for op_type, count in Counter(row["op_type"] for row in rows).items())
