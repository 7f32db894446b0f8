"""What a timeline shows, as text."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from textwrap import fill
from typing import Any

from common.view.text import MISSING, duration, table

MOST_ROWS, WIDTH = 12, 80
VIEWERS = {
    "trace": "Perfetto (ui.perfetto.dev) opens trace.json",
    "plan_trace": "It opens plan_trace.json too",
    "flamegraph": "speedscope (speedscope.app) opens flamegraph.folded",
    "annotated": "Netron (netron.app) opens annotated.onnx",
}


def timeline_report(shown: Sequence[Mapping[str, Any]], counts: Mapping[str, int], written: Container[str]) -> str:
    """Return the runs whose nodes are shown, how much else the timeline holds, and what opens the written files."""
    rows = [
        (
            row["name"],
            row["role"] or MISSING,
            duration(row["latency_us"]),
            duration(row["outside_nodes_us"]),
            f"{row['event_count']}",
            str(row.get("slow_because", MISSING)),
        )
        for row in shown[:MOST_ROWS]
    ]
    header = ("profiled run", "shown as", "latency", "outside nodes", "node events", "slow because")
    more = f"\n{len(shown) - MOST_ROWS} more runs" if len(shown) > MOST_ROWS else ""
    held = fill(f"In all: {', '.join(f'{count} {what}' for what, count in counts.items())}.", WIDTH)
    opened = "\n".join(f"{line}." for name, line in VIEWERS.items() if name in written)
    runs = f"{table(header, rows, left=(0, 1, 5))}{more}\n\n" if rows else ""
    return f"{runs}{held}\n{opened}"
