"""Node times by module path as folded stacks, which flamegraph.pl and speedscope read: ``a;b;c 17``, in whole µs.

Format: https://github.com/brendangregg/FlameGraph, "Fold stacks".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from common.messages.names import printable
from common.table_rows import OpMetricsRow, OpRooflineRow
from common.timeline.annotations import main_sources

Stack = tuple[str, ...]
GAP, INSERTED = "between nodes", "inserted by the runtime"


def folded_stacks(
    nodes: Sequence[OpRooflineRow], metrics: Sequence[OpMetricsRow], scopes: Mapping[str, Stack], root: str
) -> str:
    """Return a line per stack; the times of nodes with the same stack are added.

    A node's stack is the module path of the source node that does most of its work, and what was fused with it. A node
    of a body is above the owner of the body. Times are rounded so that their sum is that of the table. A stack cannot
    show a gap below zero, so such a gap is left out. ``scopes`` are the module paths by source node that the exporter
    left; the others follow from names.
    """
    worker, metrics_of = main_sources(nodes, metrics), {row["source_node"]: row for row in metrics}
    sums: dict[Stack, float] = {}
    for row in nodes:
        stack = (root, *_frames(row, worker.get(row["executed_node"]), metrics_of, scopes))
        sums[stack] = sums.get(stack, 0.0) + max(row["node_latency_us"] or 0.0, 0.0)
    lines = zip(sums, whole_parts([*sums.values()]), strict=True)
    return "".join(f"{';'.join(map(_frame, stack))} {time_us}\n" for stack, time_us in lines if time_us)


def differential_stacks(times: Mapping[str, tuple[float, float]], root: str) -> str:
    """Return a line per stack with both times in µs, as difffolded.pl writes them; a label's slashes part modules."""
    before, after = (whole_parts([pair[side] for pair in times.values()]) for side in (0, 1))
    stacks = (";".join(map(_frame, (root, *filter(None, label.split("/"))))) for label in times)
    lines = zip(stacks, before, after, strict=True)
    return "".join(f"{stack} {old} {new}\n" for stack, old, new in lines if old or new)


def _frames(
    row: OpRooflineRow, worker: str | None, metrics: Mapping[str, OpMetricsRow], scopes: Mapping[str, Stack]
) -> Stack:
    if row["row_kind"] == "gap":
        return (GAP,)
    if worker is None:
        return (INSERTED, row["op_type"], row["executed_node"])
    *modules, operator = _path(worker, metrics, scopes)
    fused = f" ({'+'.join(row['op_types'])})" if len(row["op_types"]) > 1 else ""
    return (*modules, operator + fused)


def _path(node: str, metrics: Mapping[str, OpMetricsRow], scopes: Mapping[str, Stack]) -> Stack:
    """Return the module path of a source node, below that of the owner of its body."""
    modules = scopes.get(node) or tuple(part for part in node.split("/") if part) or (node,)
    body = metrics[node]["body"] if node in metrics else None
    owner = _path(body.rpartition(".")[0], metrics, scopes) if body else ()
    return modules if modules[: len(owner)] == owner else (*owner, *modules)


def _frame(name: str) -> str:
    """Return a name without what separates frames, and columns: flamegraph.pl reads a number at its end as one."""
    return re.sub(r"\s(?=[\d.]+$)", "_", printable(name).replace(";", ":"))


def whole_parts(values: Sequence[float]) -> list[int]:
    """Return each value rounded up or down, so that their sum is the rounded sum (largest remainders go up)."""
    parts = [int(value) for value in values]
    missing = round(sum(values)) - sum(parts)
    by_remainder = sorted(range(len(values)), key=lambda index: parts[index] - values[index])
    for index in by_remainder[:missing]:
        parts[index] += 1
    return parts
