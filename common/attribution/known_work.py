"""The work of an executed node: counted from the model's shapes or, where data decide these, from the shapes that ran.

The model's shapes go first, because work is a property of the model: the runtime pads channels, and folds nodes into
weights. Only a figure that they leave unknown is that of the executed node's own operator, with the shapes that the
trace saw and as often as the node ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from common.names import listed
from common.operators import CONTROL_FLOW, NCHWC
from common.sums import total

COUNTED, EXECUTED = "counted", "executed"
BYTES = ("weight_bytes", "input_bytes", "output_bytes")
FIGURES = ("macs", "flops", *BYTES)
MOST_NAMED = 3  # nodes that a note names
Row = Mapping[str, Any]


def known_work(
    sources: Sequence[Row], traffic: Mapping[str, int | None], executed: Callable[[], Mapping[str, int | None]]
) -> dict[str, Any]:
    """Return ``FIGURES``, their ``bytes``, and ``work_source``: how they are known, empty where the work is unknown.

    Args:
        sources: rows of op_metrics of the source nodes; none for a node that the runtime inserted.
        traffic: ``BYTES`` across the border of the source nodes.
        executed: returns ``FIGURES`` by the shapes that ran.
    """
    own = [row for row in sources if row["op_type"] not in CONTROL_FLOW]  # the nodes of its bodies have rows
    figures = {name: total(row[name] for row in own) for name in ("macs", "flops")}
    figures |= {name: traffic[name] for name in BYTES}
    work_source = COUNTED if sources else EXECUTED
    if not sources:  # its own operator says what it moves: a view moves nothing
        figures |= {name: figure for name, figure in executed().items() if figure is not None}
    elif None in figures.values():
        ran, work_source = executed(), EXECUTED
        figures |= {name: ran[name] for name, figure in figures.items() if figure is None}
    is_known = None not in (figures["macs"], figures["flops"])
    return figures | {"bytes": total(figures[name] for name in BYTES), "work_source": work_source if is_known else ""}


def model_shapes(timed: Row, sources: Iterable[Row]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the shapes that the model gives to the operands and outputs of a node whose own are padded.

    Args:
        timed: row of op_latency of a node; only the blocked layout pads.
        sources: rows of op_metrics of its source nodes.
    """
    same = (row for row in sources if timed["domain"] == NCHWC and row["op_type"] == timed["op_type"])
    return next(((row["input_shapes"], row["output_shapes"]) for row in same), ((), ()))


def work_notes(rows: Iterable[Row]) -> list[str]:
    """Return a note on the MACs that only the shapes that ran tell; none where the model's shapes tell all.

    Args:
        rows: ``executed_node``, ``macs`` and ``work_source`` of each executed node.
    """
    rows = [*rows]
    open_rows = sorted(
        (row for row in rows if row["work_source"] == EXECUTED and row["macs"]), key=lambda row: -row["macs"]
    )
    macs, ran = (sum(row["macs"] or 0 for row in chosen) for chosen in (rows, open_rows))
    if not ran:
        return []
    named = listed([f"{row['executed_node']} ({row['macs']:,})" for row in open_rows], MOST_NAMED)
    return [
        f"{ran / macs:.1%} of the MACs depend on data and are counted from the shapes that ran: {named}; other inputs "
        "lead to other figures"
    ]
