"""The engine of a quantized network on a board as text: its cells, its clock, and the cycles of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.table_rows import EngineCallsRow, EngineCellsRow, EngineSummaryDocument
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent


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
