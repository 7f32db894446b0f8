"""A generative model as text: what its phases take at each length, and what a generation took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.table_rows import GenerationPhasesRow, GenerationSummaryDocument, PhaseWorkRow
from common.view.tables import Table, TableColumn
from common.view.text import duration, joules, percent, quantity, significant

PHASES: Table[GenerationPhasesRow] = Table(
    TableColumn("phase", lambda row: row["generation_phase"]),
    TableColumn("past", lambda row: str(row["past_token_count"])),
    TableColumn("new", lambda row: str(row["new_token_count"])),
    TableColumn("calls", lambda row: str(row["phase_call_count"])),
    TableColumn("mean", lambda row: duration(row["token_mean_us"])),
    TableColumn("median", lambda row: duration(row["token_p50_us"])),
    TableColumn("sampling", lambda row: duration(row["sampling_us"])),
    TableColumn("MACs", lambda row: quantity(row["macs"], "")),
    TableColumn("weights", lambda row: quantity(row["weight_bytes"], "B")),
    TableColumn("cache", lambda row: quantity(row["cache_bytes"], "B")),
    TableColumn("of bandwidth", lambda row: percent(row["memory_roof_share"])),
    TableColumn("of peak", lambda row: percent(row["compute_roof_share"])),
    TableColumn("bound", lambda row: row["bound"] or "", is_left=True),
)


def generation_report(phases: Sequence[GenerationPhasesRow], summary: GenerationSummaryDocument) -> str:
    """Return the sentence, and a line for each phase at each length."""
    return f"{generation_sentence(summary)}\n{PHASES.text(phases)}"


def generation_sentence(summary: GenerationSummaryDocument) -> str:
    """Return tokens per second and what bounds them, the time to the first token, and what calls move."""
    parts = []
    if rate_per_s := summary["tokens_per_s"]:
        energy, median_us = summary["joules_per_token_j"], summary["token_p50_us"]
        median = (
            "" if median_us is None else f", median {duration(median_us)}"
        )  # there are enough tokens for its limits
        each = f" and {joules(energy * 1e6)} each" if energy else ""
        parts.append(f"{significant(rate_per_s)} tokens/s{median}{each}{_bound(summary)}")
    if (first_us := summary["first_token_us"]) is not None:
        parts.append(f"the first token after {duration(first_us)} for a prompt of {summary['prompt_token_count']}")
    if (moved := summary["attained_bytes_per_s"]) is not None:
        parts.append(f"calls move {quantity(moved, 'B/s')}")
    return "; ".join(parts)


def _bound(summary: GenerationSummaryDocument) -> str:
    """Return what bounds a token, with the share of that roof; nothing without the ceilings of the host."""
    if summary["bound"] == "memory" and summary["memory_roof_share"]:
        return f", bound by weight traffic at {percent(summary['memory_roof_share'], 0)} of memory bandwidth"
    if summary["bound"] == "compute" and summary["compute_roof_share"]:
        return f", bound by arithmetic at {percent(summary['compute_roof_share'], 0)} of the peak"
    return ""


PHASE_WORK: Table[PhaseWorkRow] = Table(
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
    lines = []
    for phase, row in {row["generation_phase"]: row for row in rows if row["model_part"] == "model"}.items():
        macs, moved = row["phase_macs_expression"] or "unknown", row["phase_bytes_expression"] or "unknown"
        lines.append(f"{phase}: MACs = {macs}, bytes = {moved}")
    return "\n\n" + "\n".join([PHASE_WORK.text(rows), *lines])


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
    """Return what bounds the phase of a measurement, and the time of each part of the model, if it has a phase."""
    whole = next((row for row in rows if row["model_part"] == "model"), None)
    if whole is None:
        return []
    lines = [f"phase: {_phase_name(rows)}{_bound_of_phase(whole, ridge_flop_per_byte)}"]
    if (moved := whole["bytes"]) is not None:
        at_least_us = moved / memory_bytes_per_s * 1e6
        share = f", {percent(at_least_us / run_us)} of the run" if run_us else ""
        lines.append(f"  its {quantity(moved, 'B')} take {duration(at_least_us)} of the memory bandwidth{share}")
    total_us = sum(us_by_part.values())
    parts = [f"{part} {percent(time_us / total_us)}" for part, time_us in us_by_part.items() if total_us]
    return lines + ([f"  time of the nodes: {', '.join(parts)}"] if parts else [])


def token_energy_lines(rows: Sequence[PhaseWorkRow], joules_per_token: float | None) -> list[str]:
    """Return the energy of a token; nothing for a model without phases."""
    if not rows or joules_per_token is None:
        return []
    return [f"{'energy per token':<25} {joules(joules_per_token * 1e6)} ({_phase_name(rows)})"]


def _bound_of_phase(whole: PhaseWorkRow, ridge_flop_per_byte: float) -> str:
    intensity, weights, moved = whole["arithmetic_intensity_flop_per_byte"], whole["weight_bytes"], whole["bytes"]
    if intensity is None or not moved:
        return ""
    bound = "compute" if intensity >= ridge_flop_per_byte else "memory bandwidth"
    share = "" if weights is None else f", weights are {percent(weights / moved)} of its bytes"
    return f": bound by {bound} at {significant(intensity)} FLOP/byte{share}"


def _number(value: float | None) -> str:
    return "" if value is None else significant(value)
