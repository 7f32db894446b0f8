"""The rows of a history: every value with its level, and whether the newest record leaves the level of each figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from common.comparison.difference_rows import TIMED, JudgedRow, failures
from common.comparison.judgement import Judgement, judge, judge_exact
from common.comparison.measured import changed_conditions
from common.comparison.series import Difference
from common.comparison.stated_figures import ComparedFigure
from common.history.levels import LEAST_BEFORE, Change, changes, from_level
from common.history.record import KNOWN, LATENCY, NODE, FigureName, Record
from common.table_rows import HistoryTrendsRow, RunHistoryRow

Series: TypeAlias = list[tuple[Record, float]]


def history_rows(records: Sequence[Record], margin_share: float) -> tuple[list[RunHistoryRow], list[HistoryTrendsRow]]:
    """Return the values of all figures in all records of a series, and a row per figure of the newest, the last one."""
    last = records[-1]
    names = [name for name in last.figures if (name.kind, name.figure) in KNOWN]
    latency_us = last.figures.get(FigureName(LATENCY.kind, LATENCY.name, ""))
    values: list[RunHistoryRow] = []
    trends: list[HistoryTrendsRow] = []
    for name in names:
        alike = [other for other in names if (other.kind == NODE.kind) == (name.kind == NODE.kind)]
        family = max(1, sum(not _is_exact(other) for other in alike))
        series = [(record, record.figures[name]) for record in records if name in record.figures]
        sound = [(record, value) for record, value in series if not _is_doubted(record, name)]
        level_changes = changes([value for _, value in sound], family, is_exact=_is_exact(name))
        values += _value_rows(name, series, sound, level_changes)
        trends.append(_trend_row(name, series, sound, family, margin_share, latency_us))
    return values, trends


def history_failures(
    values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow], limit: float
) -> list[JudgedRow]:
    """Return what regressed by more than a share, in the newest record or with the newest level of a figure.

    A node must add as much to the latency.
    """
    newest = {
        FigureName(row["compared_kind"], row["compared_figure"], row["compared_subject"]): row
        for row in values
        if row["is_change_point"]
    }
    latency_us = next((row["figure_value"] for row in trends if row["compared_kind"] == LATENCY.kind), None)
    return failures([*trends, *(_as_trend(name, row, latency_us) for name, row in newest.items())], limit)


def _as_trend(name: FigureName, change: RunHistoryRow, latency_us: float | None) -> JudgedRow:
    """Return a change of level with the columns that a failure is known by."""
    share, level = change["level_change_share"], change["level_value"]
    moved_us = level * share / (1 + share) if level is not None and share is not None and share > -1 else None
    is_worse = share is not None and (share > 0) == KNOWN[name.kind, name.figure].is_less_better
    return {
        "compared_kind": name.kind,
        "compared_figure": name.figure,
        "comparison_verdict": "regressed" if is_worse else "improved",
        "difference_share": share,
        "latency_change_share": moved_us / latency_us if moved_us and latency_us and name.kind == NODE.kind else None,
    }


def _is_exact(name: FigureName) -> bool:
    return KNOWN[name.kind, name.figure].spread == "exact"


def _is_doubted(record: Record, name: FigureName) -> bool:
    """Whether a busy host, or one whose times moved, leaves a figure without a meaning."""
    return bool(record.doubts) and name.kind in TIMED


def _value_rows(name: FigureName, series: Series, sound: Series, moves: Sequence[Change]) -> list[RunHistoryRow]:
    """Return a row per record; one of a busy host has no level."""
    levels = _levels(sound, moves)
    starts = {sound[change.index][0].number: (change, sound[change.index - 1][0]) for change in moves}
    rows: list[RunHistoryRow] = []
    for record, value in series:
        level = levels.get(record.number)
        change, before = starts.get(record.number, (None, None))
        old = levels[before.number] if before else None
        rows.append(
            {
                "compared_kind": name.kind,
                "compared_figure": name.figure,
                "compared_subject": name.subject,
                "history_run": record.number,
                "recorded_at": record.recorded_at,
                "commit_name": record.revision.commit,
                "is_dirty_tree": record.revision.is_dirty,
                "figure_value": value,
                "level_value": level,
                "level_change_share": level / old - 1 if level is not None and old else None,
                "level_p_value": change.p_value if change else None,
                "is_change_point": change is not None,
                "commit_before": before.revision.commit if before else "",
                "changed_conditions": changed_conditions(before.conditions, record.conditions) if before else [],
                "run_doubt": "; ".join(record.doubts) if _is_doubted(record, name) else "",
            }
        )
    return rows


def _levels(sound: Series, level_changes: Sequence[Change]) -> dict[int, float]:
    """Return the level of each record: the median of the records between two changes."""
    bounds = [0, *(change.index for change in level_changes), len(sound)]
    parts = (sound[low:high] for low, high in pairwise(bounds))
    medians = ((part, float(np.median([value for _, value in part]))) for part in parts if part)
    return {record.number: median for part, median in medians for record, _ in part}


def _trend_row(
    name: FigureName, series: Series, sound: Series, family: int, margin_share: float, latency_us: float | None
) -> HistoryTrendsRow:
    """Compare a figure of the newest record with the level of the records before it."""
    last, value = series[-1]
    before = [earlier for record, earlier in sound if record.number != last.number]
    starts = [change.index for change in changes(before, family, is_exact=_is_exact(name))]
    level = before[starts[-1] if starts else 0 :]
    change = from_level(level, value, family) if level else Difference(value, value)
    judgement = _judgement(KNOWN[name.kind, name.figure], change, len(level), margin_share)
    if _is_doubted(last, name):
        judgement = Judgement("undecided", "; ".join(last.doubts))
    whole_us = latency_us if name.kind == NODE.kind else None
    return {
        "compared_kind": name.kind,
        "compared_figure": name.figure,
        "compared_subject": name.subject,
        "comparison_verdict": judgement.outcome,
        "level_value": change.baseline if level else None,
        "figure_value": value,
        "difference_share": change.share,
        "difference_low_share": change.low_share,
        "difference_high_share": change.high_share,
        "noise_floor_share": change.noise_floor_share,
        "latency_change_share": (value - change.baseline) / whole_us if whole_us else None,
        "level_run_count": len(level),
        "recorded_run_count": len(series),
        "verdict_reason": judgement.reason,
    }


def _judgement(figure: ComparedFigure, change: Difference, level_count: int, margin_share: float) -> Judgement:
    if not level_count:
        return Judgement("undecided", "no record before it has this figure and is sound")
    if figure.spread == "exact":
        return judge_exact(change, is_less_better=figure.is_less_better)
    if level_count < LEAST_BEFORE:
        records = f"{level_count} record{'s' if level_count > 1 else ''}"
        return Judgement("undecided", f"{records} at the level before: {LEAST_BEFORE} say how far a repeat is away")
    return judge(change, margin_share, None, is_less_better=figure.is_less_better)
