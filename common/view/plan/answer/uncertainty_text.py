"""What makes the gain of a plan uncertain, and what would decide an undecided one."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import OffloadUncertaintyRow, OffloadVerdictRow, Tables
from common.view.plan.answer.cases import amount, doubts_of, judgement, probability
from common.view.plan.answer.headline import headline
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, percent

OBJECTIVES = ("latency", "throughput", "energy")
NOTICED_SHARE = 0.01  # of the variance
SHOWN_TERMS = 2  # in a line


def _value(row: OffloadUncertaintyRow) -> str:
    value = row["information_value"]
    return MISSING if value is None else amount(value, "latency" if row["term_unit"] == "us" else "energy")


UNCERTAINTY: Table[OffloadUncertaintyRow] = Table(
    TableColumn("", lambda row: row["objective"]),
    TableColumn("uncertain", lambda row: row["uncertain_term"], is_left=True),
    TableColumn("of the variance", lambda row: percent(row["variance_share"], 0)),
    TableColumn("pays, if as likely", lambda row: probability(row["known_pays_probability"])),
    TableColumn("knowing it saves", _value),
)


def noticed(rows: Sequence[OffloadUncertaintyRow]) -> list[OffloadUncertaintyRow]:
    """Return the terms that explain a part of the variance that a reader may care about."""
    return [row for row in rows if row["variance_share"] >= NOTICED_SHARE]


def deciding_lines(tables: Tables, objectives: Sequence[str] = OBJECTIVES) -> list[str]:
    """Return for each undecided objective which terms would decide it: those whose knowledge saves most."""
    rows = tables.get("offload_uncertainty", ())
    undecided = {row["objective"] for row in tables.get("offload_verdict", ()) if row["verdict"] == "undecided"}
    return [
        line
        for objective in objectives
        if objective in undecided
        for line in _deciding([row for row in noticed(rows) if row["objective"] == objective])
    ]


def _deciding(rows: Sequence[OffloadUncertaintyRow]) -> list[str]:
    ranked = sorted(rows, key=lambda row: (-(row["information_value"] or 0.0), -row["variance_share"]))
    return [
        f"{row['objective']} is undecided: {percent(row['variance_share'], 0)} of the variance is the "
        f"{row['uncertain_term']}; at its likely value the plan pays with probability {probability(chance)}"
        + (f"; knowing it saves {_value(row)} an inference on average" if row["information_value"] else "")
        for row in ranked[:SHOWN_TERMS]
        if (chance := row["known_pays_probability"]) is not None
    ]


def verdict_statements(tables: Tables) -> list[str]:
    """Return all that a copy of the plan must say: the answer, each verdict, every doubt, and what would decide it."""
    verdicts = tables.get("offload_verdict", ())
    return [
        headline(tables),
        *(f"{row['objective']} {judgement(row)}" for row in verdicts),
        *(f"doubt: {doubt}" for doubt in doubts_of(verdicts)),
        *deciding_lines(tables),
    ]


def variance_line(rows: Sequence[OffloadUncertaintyRow], verdict: OffloadVerdictRow) -> str:
    """Return the terms with the largest shares of the variance in one objective; empty where there are none."""
    largest = [row for row in noticed(rows) if row["objective"] == verdict["objective"]][:SHOWN_TERMS]
    words = ("of the variance is", "is")
    return ", ".join(
        f"{percent(row['variance_share'], 0)} {word} the {row['uncertain_term']}"
        for row, word in zip(largest, words, strict=False)
    )
