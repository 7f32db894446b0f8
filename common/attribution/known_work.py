"""The work of an executed node: counted from the model's shapes or, where data decide these, from the shapes that ran.

The model's shapes go first, because work is a property of the model: the runtime pads channels, and folds nodes into
weights. A figure that they leave unknown is counted in the run: by the executed node's own operator, with the shapes of
the trace, as often as the node ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from common.graphs.graph import Traffic, WorkInRun
from common.graphs.operators import CONTROL_FLOW, NCHWC
from common.graphs.sums import total
from common.messages.names import listed
from common.table_rows import OpLatencyRow, OpMetricsRow, OpRooflineRow, Shape

COUNTED, EXECUTED = "counted", "executed"
MOST_NAMED = 3  # nodes that a note names


@dataclass(frozen=True, slots=True)
class KnownWork(WorkInRun):
    """Work and traffic of an executed node; ``work_source`` is empty where its MACs or its FLOPs are unknown."""

    work_source: str


def known_work(sources: Sequence[OpMetricsRow], border: Traffic, executed: Callable[[], WorkInRun]) -> KnownWork:
    """Return the work of an executed node; one that the runtime inserted has no ``sources``."""
    counted = [row for row in sources if row["op_type"] not in CONTROL_FLOW]  # the nodes of its bodies have rows
    macs, flops = total(row["macs"] for row in counted), total(row["flops"] for row in counted)
    figures, work_source = (border.weight_bytes, border.input_bytes, border.output_bytes, macs, flops), COUNTED
    if not sources or None in figures:
        work = executed()
        ran = (work.weight_bytes, work.input_bytes, work.output_bytes, work.macs, work.flops)
        # The operator of an inserted node says what it moves: a view moves nothing.
        preferred, otherwise = (figures, ran) if sources else (ran, figures)
        pairs = zip(preferred, otherwise, strict=True)
        weight, read, written, macs, flops = (second if first is None else first for first, second in pairs)
        figures, work_source = (weight, read, written, macs, flops), EXECUTED
    return KnownWork(*figures, work_source=work_source if macs is not None and flops is not None else "")


def model_shapes(
    timed: OpLatencyRow, sources: Iterable[OpMetricsRow]
) -> tuple[Sequence[Shape | None], Sequence[Shape | None]]:
    """Return the shapes that the model gives to operands and outputs of a node that the blocked layout pads."""
    same = (row for row in sources if timed["domain"] == NCHWC and row["op_type"] == timed["op_type"])
    return next(((row["input_shapes"], row["output_shapes"]) for row in same), ((), ()))


def work_notes(rows: Sequence[OpRooflineRow]) -> list[str]:
    """Return a note on the MACs that only the shapes that ran say; none where the model's shapes say all."""
    ran = sorted(
        ((row["macs"], row["executed_node"]) for row in rows if row["work_source"] == EXECUTED and row["macs"]),
        key=lambda pair: -pair[0],
    )
    if not ran:
        return []
    share = sum(macs for macs, _ in ran) / sum(row["macs"] or 0 for row in rows)
    named = listed([f"{name} ({macs:,})" for macs, name in ran], MOST_NAMED)
    return [
        f"{share:.1%} of the MACs depend on data and are counted from the shapes that ran: {named}; other inputs "
        "lead to other figures"
    ]
