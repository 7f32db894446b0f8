"""Work and traffic by operator type as text, with totals, and notes on what the totals leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import pandas as pd

from common.names import printable
from common.view.text import percent, quantity, table

FIGURES = ["macs", "flops", "weight_bytes", "bytes"]


def symbolic_report(
    metrics: pd.DataFrame, macs: Mapping[str, str], totals: Mapping[str, str], *, of_either: Set[str] = frozenset()
) -> str:
    """Return MACs by operator type as expressions over the unbound dimensions, and the totals.

    Args:
        metrics: op_metrics.
        macs: sum of the MACs by operator type, for types that have any.
        totals: sum over all nodes by figure.
        of_either: nodes of branches of equal cost, which is that of their If.
    """
    nodes = Counter(metrics["op_type"])
    rows = [(name, str(nodes[name]), text) for name, text in macs.items()]
    own = metrics[~metrics["source_node"].isin(of_either)]
    unknown = {name: int((own[name].isna() & own[f"{name}_expression"].eq("")).sum()) for name in totals}
    lines = [
        f"{name} = {printable(text)}{f', and {unknown[name]} unknown' if unknown[name] else ''}"
        for name, text in totals.items()
        if text != "0" or not unknown[name]
    ]
    return "\n".join([table(("op_type", "nodes", "MACs"), rows, left=(0, 2)), *lines])


def work_report(metrics: pd.DataFrame, bounds: Mapping[str, float | None], *, of_either: Set[str] = frozenset()) -> str:
    """Return counts, MACs, FLOPs and bytes by operator type, the largest first; sums leave out unknowns.

    Args:
        metrics: op_metrics.
        bounds: the most that a total can be, by figure; None where there is no bound.
        of_either: nodes of branches of equal cost, which is that of their If.
    """
    own = metrics[~metrics["source_node"].isin(of_either)]
    known = metrics[["op_type", *FIGURES]].astype(dict.fromkeys(FIGURES, "float64"))  # 64-bit sums would wrap
    figures = known.groupby("op_type")[FIGURES].sum(min_count=1)
    figures.insert(0, "nodes", metrics.groupby("op_type").size())
    figures = figures.sort_values(["macs", "flops", "nodes"], ascending=False, kind="stable")
    total = known[FIGURES].sum(min_count=1)
    total = total.mask(own[FIGURES].isna().any() & total.eq(0))  # an unknown total is empty, never zero
    rows = [_row(str(name), row, total["flops"]) for name, row in figures.iterrows()]
    header = ("op_type", "nodes", "MACs", "FLOPs", "share", "weights", "bytes")
    total_row = _row("total", pd.Series({"nodes": len(metrics), **total}), total["flops"])
    unknown = int(own["flops"].isna().sum())
    lines = [f"totals leave out {unknown} of {len(metrics)} nodes, whose work is unknown"] if unknown else []
    open_bounds = {name: value for name, value in bounds.items() if own[name].isna().any()}
    return "\n".join([table(header, [*rows, total_row]), *lines, *_bound_line(open_bounds)])


def _row(name: str, row: pd.Series, total_flops: float) -> list[str]:
    share = None if pd.isna(total_flops) or not total_flops else row["flops"] / total_flops
    sizes = [quantity(row[key], "B") for key in ("weight_bytes", "bytes")]
    return [name, f"{row['nodes']:.0f}", quantity(row["macs"], ""), quantity(row["flops"], ""), percent(share), *sizes]


def _bound_line(bounds: Mapping[str, float | None]) -> list[str]:
    """Return a line with the upper bounds of the totals, where there are any."""
    known = {name: value for name, value in bounds.items() if value is not None}
    texts = [f"{quantity(value, 'B' if name == 'bytes' else '')} {_label(name)}" for name, value in known.items()]
    return [f"at most {', '.join(texts)}, including nodes whose work depends on data"] if texts else []


def _label(name: str) -> str:
    return {"macs": "MACs", "flops": "FLOPs", "bytes": "moved"}[name]


def left_out(
    metrics: pd.DataFrame, unbound: Sequence[str], *, settled: Set[str] = frozenset(), of_either: Set[str] = frozenset()
) -> list[str]:
    """Return notes on what the totals leave out, by operator type, and why.

    Args:
        metrics: op_metrics.
        unbound: dimensions that are symbols.
        settled: nodes whose shapes given inputs settle.
        of_either: nodes of branches of equal cost, which is that of their If.
    """
    is_symbolic = metrics["flops_expression"].ne("")
    is_open = metrics["flops"].isna() & metrics["is_counted"] & ~is_symbolic & ~metrics["source_node"].isin(of_either)
    repeats = metrics["execution_count"].isna() & is_open
    is_settled = metrics["source_node"].isin(settled)
    open_dims = ", or follow no polynomial of the unbound dimensions," if unbound else ""
    bind = "bind them with <dim>, or " if unbound else ""
    run = "<op_roofline> counts them by the shapes that run"
    reasons = (
        (~metrics["is_counted"], "no work formula for", "add one in common/onnx_graph/work"),
        (
            is_open & ~repeats & is_settled,
            f"shapes depend on data{open_dims} in",
            f"{bind}give values with <input>; {run}",
        ),
        (
            is_open & ~repeats & ~is_settled,
            f"shapes depend on data that only a run computes{open_dims} in",
            f"{bind}{run}",
        ),
        (
            repeats,
            "how often they run depends on data:",
            "upper_bound_flops where there is one; <op_roofline> counts them",
        ),
    )
    return [
        f"{why} {_by_type(metrics[chosen])}: totals leave them out; {remedy}"
        for chosen, why, remedy in reasons
        if chosen.any()
    ]


def _by_type(metrics: pd.DataFrame) -> str:
    return ", ".join(f"{op_type} ({count})" for op_type, count in Counter(metrics["op_type"]).items())
