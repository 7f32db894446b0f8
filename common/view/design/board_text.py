"""Arrays for a board as text: the front of latency, energy and share of the board, and the fastest in simulation."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import DesignEnginesRow, DesignSimulationRow
from common.view.design.design_text import joules
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, percent, quantity

MOST_ROWS = 12
MICRO = 1e-6


def _seconds(time_us: float | None) -> str:
    return MISSING if time_us is None else quantity(time_us * MICRO, "s")


ENGINES: Table[DesignEnginesRow] = Table(
    TableColumn("array", lambda row: row["array_design"]),
    TableColumn("MHz", lambda row: f"{row['clock_mhz']:.0f}"),
    TableColumn("DSP", lambda row: f"{row['dsp_count']:,.0f}"),
    TableColumn("board", lambda row: percent(row["board_share"])),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    TableColumn("latency", lambda row: _seconds(row["modelled_latency_us"])),
    TableColumn("as a kernel", lambda row: _seconds(row["kernel_latency_likely_us"])),
)
SIMULATED: Table[DesignSimulationRow] = Table(
    TableColumn("contraction", lambda row: row["loop_nest"]),
    TableColumn("runs", lambda row: str(row["execution_count"])),
    TableColumn("cycles", lambda row: f"{row['modelled_cycles']:,.0f}"),
    TableColumn("equation", lambda row: f"{row['equation_cycles']:,.0f}"),
    TableColumn("folds", lambda row: f"{row['simulated_fold_count']} of {row['fold_count']:,}"),
    TableColumn("Verilog", lambda row: f"{row['simulated_cycles']:,}"),
    TableColumn("of them", lambda row: f"{row['simulated_equation_cycles']:,.0f}"),
)


def board_report(
    engines: Sequence[DesignEnginesRow], simulated: Sequence[DesignSimulationRow], tried_count: int, fitting_count: int
) -> str:
    """Return the front as text, from the fastest to the smallest, and the fastest design in simulation."""
    of = f"{engines[0]['board']} in {engines[0]['precision']}"
    head = f"{of}: {fitting_count:,} of {tried_count:,} arrays fit, {len(engines):,} are on the front"
    shown, last = engines, len(engines) - 1
    if len(engines) > MOST_ROWS:  # the first, the last, and others evenly between them
        shown = [engines[round(index * last / (MOST_ROWS - 1))] for index in range(MOST_ROWS)]
    parts = [head, ENGINES.text(shown)]
    if engines[0]["kernel_latency_likely_us"] is not None:
        least, most = engines[0]["kernel_latency_optimistic_us"], engines[0]["kernel_latency_pessimistic_us"]
        ends = f"{_seconds(least)} to {_seconds(most)}"
        parts.append(f"the first as a kernel: {ends}, with stalls, calls and short bursts")
    return "\n\n".join([*parts, *([_simulated(simulated)] if simulated else [])])


def _simulated(rows: Sequence[DesignSimulationRow]) -> str:
    counted = sum((row["execution_count"] or 0) * row["compute_cycles"] for row in rows)
    whole = sum((row["execution_count"] or 0) * row["equation_cycles"] for row in rows)
    equal = sum(row["simulated_cycles"] == row["simulated_equation_cycles"] for row in rows)
    shown = sorted(rows, key=lambda row: -(row["execution_count"] or 0) * row["equation_cycles"])[:MOST_ROWS]
    verdict = f"Verilog's cycles are the equation's in {equal} of {len(rows)} contractions, and its sums are exact"
    compared = f"all contractions: {counted:,.0f} steps by the cost, {whole:,.0f} cycles by the equation"
    return "\n".join([f"{rows[0]['array_design']} in simulation:", SIMULATED.text(shown), verdict, compared])
