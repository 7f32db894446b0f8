"""What number formats do to a model's outputs, as text, and as a part of the verdict on a plan.

SQNR is the signal-to-quantization-noise ratio of an output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from common.table_rows import FormatPrecisionRow, PrecisionMixturesRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, percent, significant

if TYPE_CHECKING:
    JudgedRow: TypeAlias = FormatPrecisionRow | PrecisionMixturesRow

RANDOM = "random"
NOT_JUDGED = "accuracy not judged: run <format_precision>"
SURVIVES, UNDECIDED, BREAKS = "survives", "undecided", "breaks"
NO_ERROR_DB = 999.0  # in tables, which have no infinity


def _ratio(row: JudgedRow) -> str:
    ratio = row["sqnr_db"]
    if ratio is None:
        return MISSING
    return "no error" if ratio >= NO_ERROR_DB else f"{significant(ratio)} dB"


def _top_1(row: FormatPrecisionRow) -> str:
    low, high = row["top1_agreement_low_share"], row["top1_agreement_high_share"]
    if row["top1_agreement_share"] is None or low is None or high is None:
        return MISSING
    return f"{percent(row['top1_agreement_share'])} ({100 * low:.1f} to {100 * high:.1f})"


FORMATS: Table[FormatPrecisionRow] = Table(
    TableColumn("format", lambda row: row["number_format"]),
    TableColumn("", lambda row: row["quantization_scheme"], is_left=True),
    TableColumn("SQNR", _ratio),
    TableColumn("agrees", _top_1),
    TableColumn("accuracy", lambda row: percent(row["accuracy_share"])),
    TableColumn("verdict", lambda row: row["format_verdict"], is_left=True),
)


def precision_report(rows: Sequence[FormatPrecisionRow], number_format: str) -> str:
    """Return a sentence on a format, and a table of all formats for the output that is judged."""
    shown = main_rows(rows)
    best = arithmetic_row(rows, number_format) or next(row for row in shown if row["number_format"] == number_format)
    made = [row for row in shown if not row["format_problem"]]
    return f"{number_format}: {survival(best)}\n{FORMATS.text(made)}"


def arithmetic_row(rows: Sequence[FormatPrecisionRow], number_format: str) -> FormatPrecisionRow | None:
    """Return the row of the best way to a format that kernels can compute in; None where there is none."""
    ways = [
        row
        for row in (main_rows(rows) if rows else ())
        if row["number_format"] == number_format and row["is_arithmetic"] and not row["format_problem"]
    ]
    noisiest = -math.inf  # a scheme without any ratio, as where a format overflows
    return max(ways, key=lambda row: noisiest if (db := row["calibration_sqnr_db"]) is None else db, default=None)


def is_judged_on_samples(rows: Sequence[FormatPrecisionRow], number_format: str) -> bool:
    row = arithmetic_row(rows, number_format)
    return row is not None and is_on_samples(row)


def is_on_samples(row: JudgedRow) -> bool:
    return row["sample_source"] != RANDOM


def is_broken(row: JudgedRow) -> bool:
    return row["format_verdict"] == BREAKS


def main_rows(rows: Sequence[FormatPrecisionRow]) -> list[FormatPrecisionRow]:
    """Return the rows of the output that is judged: the one with classes, else the first."""
    first = next((row for row in rows if row["top1_agreement_share"] is not None), rows[0])
    return [row for row in rows if row["output_name"] in ("", first["output_name"])]


def survival(row: JudgedRow) -> str:
    """Return what a format does to the outputs: ``outputs agree in 98.2 % of 500 samples (96.6 to 99.2)``."""
    count = row["judged_sample_count"]
    if row["sample_source"] == RANDOM:
        return f"accuracy not judged: {count} random samples, with an SQNR of {_ratio(row)}; <samples> takes your own"
    if row["top1_agreement_share"] is None:
        if is_broken(row) and row["sqnr_db"] is None:
            return f"outputs are NaN or infinite on {count} samples"
        return f"the SQNR of the output is {_ratio(row)} on {count} samples"
    low, high = row["top1_agreement_low_share"] or 0.0, row["top1_agreement_high_share"] or 0.0
    limits = f"({100 * low:.1f} to {100 * high:.1f})"
    return f"outputs agree in {percent(row['top1_agreement_share'])} of {count} samples {limits}"
