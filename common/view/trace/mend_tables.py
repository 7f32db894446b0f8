"""Trials as text: what each finding promised, and what mending the model gained."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from common.messages.names import printable
from common.table_rows import MendTrialsRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, WIDTH, duration


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _signed(value_us: float | None) -> str:
    """Return a gain; one below 0 with a minus."""
    return MISSING if value_us is None else f"{'-' if value_us < 0 else ''}{duration(abs(value_us), 2)}"


def _interval(low_us: float | None, high_us: float | None) -> str:
    return MISSING if low_us is None or high_us is None else f"{_signed(low_us)} to {_signed(high_us)}"


TRIALS: Table[MendTrialsRow] = Table(
    TableColumn("finding", lambda row: _spoken(row["finding"]), is_left=True),
    TableColumn("predicted", lambda row: MISSING if row["doubts"] else _signed(row["gain_us"])),
    TableColumn(
        "interval",
        lambda row: MISSING if row["doubts"] else _interval(row["gain_low_us"], row["gain_high_us"]),
    ),
    TableColumn("measured", lambda row: _signed(row["measured_gain_us"])),
    TableColumn("interval", lambda row: _interval(row["measured_gain_low_us"], row["measured_gain_high_us"])),
    TableColumn("mending it", lambda row: row["mend_outcome"], is_left=True),
)


def mend_report(rows: Sequence[MendTrialsRow]) -> str:
    """Return the trials, what each rewrite did, and why some did nothing."""
    if not rows:
        return "No finding has a rewrite that a program can make."
    lines = [TRIALS.text(rows)]
    if doubts := [*dict.fromkeys(doubt for row in rows for doubt in row["doubts"])]:
        text = f"No predicted gain is shown, because the times of the findings decide nothing: {'; '.join(doubts)}"
        lines.append(textwrap.fill(printable(text), WIDTH))
    for row in rows:
        done = ", ".join(map(_spoken, row["mends"]))
        said = "; ".join(part for part in (done, row["mend_problem"]) if part)
        if said:
            text = f"{_spoken(row['finding'])}: {said}"
            lines.append(textwrap.fill(printable(text), WIDTH, subsequent_indent="  "))
    return "\n".join(lines)
