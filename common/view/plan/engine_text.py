"""Engines as text: that of a quantized network with cells, clock and layers, and a whole model on an overlay engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.table_rows import (
    EngineCallsRow,
    EngineCellsRow,
    EngineSummaryDocument,
    OverlayLayersRow,
    OverlaySummaryDocument,
)
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, quantity


def _error(planned: float, found: float | None) -> str:
    return f"{planned / found - 1:+.1%}" if found else ""


def _count(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.0f}"


def _waits(row: EngineCallsRow) -> str:
    """Return the cause for which the call waited longest, and its share."""
    waited = {cause: cycles for cause, cycles in row["cycles_by_cause"].items() if cause != "computing" and cycles}
    if not waited or not row["simulated_call_cycles"]:
        return ""
    cause = max(waited, key=lambda name: waited[name])
    return f"{cause} {percent(waited[cause] / row['simulated_call_cycles'], 0)}"


CELLS: Table[EngineCellsRow] = Table(
    TableColumn("cells", lambda row: row["cell_kind"], is_left=True),
    TableColumn("planned", lambda row: _count(row["planned_count"])),
    TableColumn("routed", lambda row: _count(row["routed_count"])),
    TableColumn("error", lambda row: _error(row["planned_count"], row["routed_count"])),
    TableColumn("device", lambda row: _count(row["total_count"])),
    TableColumn("used", lambda row: percent((row["routed_count"] or row["planned_count"]) / row["total_count"], 0)),
)
CALLS: Table[EngineCallsRow] = Table(
    TableColumn("layer", lambda row: row["source_node"], is_left=True),
    TableColumn("planned", lambda row: _count(row["planned_cycles"])),
    TableColumn("simulated", lambda row: _count(row["simulated_call_cycles"])),
    TableColumn("error", lambda row: _error(row["planned_cycles"], row["simulated_call_cycles"])),
    TableColumn("waits for", _waits, is_left=True),
)


def engine_report(
    calls: Sequence[EngineCallsRow], cells: Sequence[EngineCellsRow], summary: EngineSummaryDocument
) -> str:
    """Return the engine with its cells and its clock, and the cycles of each layer and in total."""
    return "\n".join((*_lines(calls, summary), CELLS.text(cells), CALLS.text(calls)))


def engine_sentence(summary: EngineSummaryDocument) -> str:
    """Return the engine, the board, and the time of one inference at the clock that closed, or that is expected."""
    engine = f"{summary['engine_design']} on {summary['board']} ({summary['part']})"
    closed, again = summary["closed_clock_mhz"], summary["replanned_us"]
    if closed is None or again is None:
        expected = f"{summary['expected_clock_likely_mhz']:.1f} MHz expected"
        return f"{engine}: {duration(summary['planned_us'])} planned at {expected}"
    return f"{engine}: {duration(again)} planned at the {closed:g} MHz that closed"


def _lines(calls: Sequence[EngineCallsRow], summary: EngineSummaryDocument) -> Iterator[str]:
    yield engine_sentence(summary)
    low, high = summary["expected_clock_pessimistic_mhz"], summary["expected_clock_optimistic_mhz"]
    expected = f"clock: {low:.1f} to {high:.1f} MHz expected, {summary['expected_clock_likely_mhz']:.1f} likely"
    closed = summary["closed_clock_mhz"]
    yield expected if closed is None else f"{expected}; {closed:g} MHz closed"
    planned, simulated = sum(row["planned_cycles"] for row in calls), [row["simulated_call_cycles"] for row in calls]
    total = sum(cycles or 0 for cycles in simulated)
    beside = f", {total:,} simulated ({_error(planned, total)})" if total else ""
    yield f"cycles: {planned:,.0f} planned{beside}"


SHOWN_LAYERS = 8


def overlay_report(summary: OverlaySummaryDocument, layers: Sequence[OverlayLayersRow]) -> str:
    """Return latency, frames per second and the slowest layers."""
    best_us, worst_us = summary["batch_latency_optimistic_us"], summary["batch_latency_pessimistic_us"]
    latency = f"{duration(best_us)} to {duration(worst_us)}"
    rate = f"{quantity(summary['pessimistic_frames_per_s'], '')} to {quantity(summary['optimistic_frames_per_s'], '')}"
    count = summary["image_count"]
    images = f"{count} images at once, one on each engine" if count > 1 else "one image at a time"
    lines = [
        f"{summary['engine']} on {summary['board']} at {summary['clock_mhz']:g} MHz, int8, {images}",
        f"latency            {duration(summary['batch_latency_likely_us'])} ({latency})",
        f"frames per second  {summary['likely_frames_per_s']:.4g} ({rate})",
        f"  with a busy host {summary['pipelined_frames_per_s']:.4g}: enough threads that the engine never waits",
        f"roofline bound     {duration(summary['roof_us'])}: peak and bandwidth alone, no estimate",
    ]
    return "\n".join([*lines, "", _slowest(layers)])


def _slowest(layers: Sequence[OverlayLayersRow]) -> str:
    def time_us(row: OverlayLayersRow) -> float:
        return row["kernel_latency_likely_us"] or 0.0

    total_us = sum(map(time_us, layers))
    columns: Table[OverlayLayersRow] = Table(
        TableColumn(f"slowest of {len(layers)} layers", lambda row: row["engine_layer"]),
        TableColumn("Unit", lambda row: row["unit"], is_left=True),
        TableColumn("Time", lambda row: duration(time_us(row))),
        TableColumn("Share", lambda row: percent(time_us(row) / total_us)),
        TableColumn("Bound", lambda row: row["board_bound"], is_left=True),
    )
    return columns.text(sorted(layers, key=lambda row: -time_us(row))[:SHOWN_LAYERS])
