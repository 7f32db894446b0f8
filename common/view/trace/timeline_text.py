"""The contents of a timeline, as text."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from textwrap import fill
from typing import Any

from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration

MOST_ROWS, WIDTH = 12, 80
VIEWERS = {
    "trace": "Perfetto (ui.perfetto.dev) opens trace.json",
    "plan_trace": "It opens plan_trace.json too",
    "flamegraph": "speedscope (speedscope.app) opens flamegraph.folded",
    "annotated": "Netron (netron.app) opens annotated.onnx",
}


RUNS: Table[Mapping[str, Any]] = Table(
    TableColumn("profiled run", lambda row: row["name"]),
    TableColumn("shown as", lambda row: row["role"] or MISSING, is_left=True),
    TableColumn("latency", lambda row: duration(row["latency_us"])),
    TableColumn("outside nodes", lambda row: duration(row["outside_nodes_us"])),
    TableColumn("node events", lambda row: f"{row['event_count']}"),
    TableColumn("slow because", lambda row: str(row.get("slow_because", MISSING)).replace("_", " "), is_left=True),
)


def timeline_report(shown: Sequence[Mapping[str, Any]], counts: Mapping[str, int], written: Container[str]) -> str:
    """Return the runs whose nodes are shown, how much else the timeline holds, and what opens the written files."""
    more = f"\n{len(shown) - MOST_ROWS} more runs" if len(shown) > MOST_ROWS else ""
    held = fill(f"In all: {', '.join(f'{count} {what}' for what, count in counts.items())}.", WIDTH)
    opened = "\n".join(f"{line}." for name, line in VIEWERS.items() if name in written)
    runs = f"{RUNS.text(shown[:MOST_ROWS])}{more}\n\n" if shown else ""
    return f"{runs}{held}\n{opened}"
