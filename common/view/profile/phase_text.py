"""The phases of a generative model as text: what a call takes at each length, and over the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.table_rows import PhaseWorkRow
from common.view.tables import Table, TableColumn
from common.view.text import duration, joules, percent, quantity, significant

PHASES: Table[PhaseWorkRow] = Table(
    TableColumn("phase", lambda row: row["generation_phase"]),
    TableColumn("past", lambda row: str(row["past_token_count"])),
    TableColumn("new", lambda row: str(row["new_token_count"])),
    TableColumn("part", lambda row: row["model_part"], is_left=True),
    TableColumn("MACs", lambda row: quantity(row["macs"], "")),
    TableColumn("weights", lambda row: quantity(row["weight_bytes"], "B")),
    TableColumn("cache", lambda row: quantity(row["cache_bytes"], "B")),
    TableColumn("bytes", lambda row: quantity(row["bytes"], "B")),
    TableColumn("FLOP/byte", lambda row: _number(row["arithmetic_intensity_flop_per_byte"])),
)


def phase_report(rows: Sequence[PhaseWorkRow]) -> str:
    """Return a line for each part at each length, and the MACs and bytes of each phase over its length."""
    if not rows:
        return ""
    whole = {row["generation_phase"]: row for row in rows if row["model_part"] == "model"}
    over = {phase: (row["phase_macs_expression"], row["phase_bytes_expression"]) for phase, row in whole.items()}
    lines = [
        f"{phase}: MACs = {macs or 'unknown'}, bytes = {moved or 'unknown'}" for phase, (macs, moved) in over.items()
    ]
    return "\n\n" + "\n".join([PHASES.text(rows), *lines])


def phase_notes(rows: Sequence[PhaseWorkRow]) -> list[str]:
    """Return a note on the figures of phases that are empty because they exceed the largest number of a table."""
    lines = []
    for row in rows:
        figures = (
            ("MACs", row["macs"], row["phase_macs_expression"]),
            ("FLOPs", row["flops"], row["phase_flops_expression"]),
            ("weights", row["weight_bytes"], row["phase_weight_bytes_expression"]),
            ("cache", row["cache_bytes"], row["phase_cache_bytes_expression"]),
            ("bytes", row["bytes"], row["phase_bytes_expression"]),
        )
        beyond = [name for name, value, text in figures if value is None and text]
        if row["model_part"] == "model" and beyond:
            lines.append(f"{', '.join(beyond)} of {_phase_name([row])} exceed 2^63, the most that a table holds")
    return [f"{line}: their cells are empty; give a shorter length with <phase>" for line in lines]


def phase_heading(rows: Sequence[PhaseWorkRow]) -> str:
    """Return a line with the phase of a measurement; nothing for a model without phases."""
    return f"phase: {_phase_name(rows)}\n" if rows else ""


def _phase_name(rows: Sequence[PhaseWorkRow]) -> str:
    past, new = rows[0]["past_token_count"], rows[0]["new_token_count"]
    if rows[0]["generation_phase"] == "decode":
        return f"decode of a token after {past:,}" if past else "decode of a token"
    return f"prefill of {new:,} tokens" + (f" after {past:,}" if past else "")


def phase_lines(
    rows: Sequence[PhaseWorkRow],
    ridge_flop_per_byte: float,
    memory_bytes_per_s: float,
    run_us: float | None,
    us_by_part: Mapping[str, float],
) -> list[str]:
    """Return what bounds the phase of a measurement, and the time of each part of the model; nothing without a phase.

    Args:
        run_us: of the run; None where it is unknown.
        us_by_part: time of the nodes of each part.
    """
    whole = next((row for row in rows if row["model_part"] == "model"), None)
    if whole is None:
        return []
    lines = [f"phase: {_phase_name(rows)}{_bound(whole, ridge_flop_per_byte)}"]
    if (moved := whole["bytes"]) is not None:
        at_least_us = moved / memory_bytes_per_s * 1e6
        share = f", {percent(at_least_us / run_us)} of the run" if run_us else ""
        lines.append(f"  its {quantity(moved, 'B')} take {duration(at_least_us)} of the memory bandwidth{share}")
    total_us = sum(us_by_part.values())
    parts = [f"{part} {percent(time_us / total_us)}" for part, time_us in us_by_part.items() if total_us]
    return [*lines, *([f"  time of the nodes: {', '.join(parts)}"] if parts else [])]


def token_energy_lines(rows: Sequence[PhaseWorkRow], joules_per_token: float | None) -> list[str]:
    """Return the energy of a token; nothing for a model without phases."""
    if not rows or joules_per_token is None:
        return []
    return [f"{'energy per token':<25} {joules(joules_per_token * 1e6)} ({_phase_name(rows)})"]


def _bound(whole: PhaseWorkRow, ridge_flop_per_byte: float) -> str:
    intensity, weights, moved = whole["arithmetic_intensity_flop_per_byte"], whole["weight_bytes"], whole["bytes"]
    if intensity is None or not moved:
        return ""
    bound = "compute" if intensity >= ridge_flop_per_byte else "memory bandwidth"
    share = "" if weights is None else f", weights are {percent(weights / moved)} of its bytes"
    return f": bound by {bound} at {significant(intensity)} FLOP/byte{share}"


def _number(value: float | None) -> str:
    return "" if value is None else significant(value)
