"""A generation as text: one sentence in tokens per second, and each phase at each length."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import GenerationPhasesRow, GenerationSummaryDocument
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
        energy = summary["joules_per_token_j"]
        each = f" and {joules(energy * 1e6)} each" if energy else ""
        parts.append(_rate(rate_per_s, summary["token_p50_us"]) + each + _bound(summary))
    if (first_us := summary["first_token_us"]) is not None:
        parts.append(f"the first token after {duration(first_us)} for a prompt of {summary['prompt_token_count']}")
    if (moved := summary["attained_bytes_per_s"]) is not None:
        parts.append(f"calls move {quantity(moved, 'B/s')}")
    return "; ".join(parts)


def _rate(tokens_per_s: float, median_us: float | None) -> str:
    """Return tokens per second, and the median where there are enough tokens for its limits."""
    rate = f"{significant(tokens_per_s)} tokens/s"
    return rate if median_us is None else f"{rate}, median {duration(median_us)}"


def _bound(summary: GenerationSummaryDocument) -> str:
    """Return what bounds a token, with the share of that roof; nothing without the ceilings of the host."""
    if summary["bound"] == "memory" and summary["memory_roof_share"]:
        return f", bound by weight traffic at {percent(summary['memory_roof_share'], 0)} of memory bandwidth"
    if summary["bound"] == "compute" and summary["compute_roof_share"]:
        return f", bound by arithmetic at {percent(summary['compute_roof_share'], 0)} of the peak"
    return ""
