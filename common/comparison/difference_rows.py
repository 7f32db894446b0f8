"""Everything that is compared between two measurements, a row per figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from common.comparison.alignment import NodeGroup, aligned, renamed_sources
from common.comparison.judgement import Judgement, holm, judge, judge_exact
from common.comparison.latency_family import LatencySide, judged_latency
from common.comparison.measured import MeasuredSide, pooled
from common.comparison.series import Difference, difference, paired_difference, with_common_floor
from common.comparison.stated_figures import FIGURES, figure_difference
from common.latency.dependence import Samples
from common.messages.errors import PipelineError
from common.table_rows import ComparisonRow

DEFAULT_MARGIN_SHARE = 0.05
TRACE_STEP_US = 1.0  # the runtime's trace counts whole microseconds
LEAST_SHARED = 0.5  # of the source nodes: fewer are chance, and the operator types are all that can be compared
NEW, GONE = "only the candidate executes it", "only the baseline executes it"
Compare = Callable[[Samples, Samples, float], Difference]


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    margin_share: float  # smallest change that counts; what is surely within it is unchanged
    is_paired: bool = False  # whether the runs of both sides took turns
    is_across_models: bool = False  # whether the models may differ

    @property
    def compare(self) -> Compare:
        return paired_difference if self.is_paired else difference


def comparison_rows(
    baselines: Sequence[MeasuredSide], candidate: MeasuredSide, settings: ComparisonSettings
) -> list[ComparisonRow]:
    """Return the rows of a comparison: end to end first, then nodes, then what the tables state.

    Raises:
        PipelineError: the models differ, and nobody asked for that.
    """
    baseline = pooled(baselines)
    is_same = _require_comparable(baseline, candidate, settings)
    doubts = [] if settings.is_paired else [*baseline.doubts, *candidate.doubts]
    rows = [*_latency_rows(baseline, candidate, settings)]
    floor = rows[0]["noise_floor_share"] if rows else None
    if not is_same:
        rows += _op_type_rows(baseline, candidate, settings)
    rows += _node_rows(baseline, candidate, settings)
    compared = {(row["compared_kind"], row["compared_figure"]) for row in rows}
    stated = _figure_rows(baselines, candidate, settings.margin_share, floor)
    rows += [row for row in stated if (row["compared_kind"], row["compared_figure"]) not in compared]
    return [_doubted({**row, "compared_folder": candidate.name}, doubts) for row in rows]


def _require_comparable(baseline: MeasuredSide, candidate: MeasuredSide, settings: ComparisonSettings) -> bool:
    """Return whether both sides ran one model, whatever its nodes are called; refuse others that nobody asked for."""
    is_same = baseline.model_id == candidate.model_id
    if not is_same:  # a look at the structure takes longer
        before, after = (sorted(side.fingerprints.values()) for side in (baseline, candidate))
        is_same = bool(before) and before == after
    is_same &= dict(baseline.dimensions) == dict(candidate.dimensions)
    if not is_same and not settings.is_across_models:
        both = f"{_model(baseline)} and {_model(candidate)}"
        remedy = "compare one model, or give <across_models> for figures of the whole and by operator type"
        raise PipelineError(f"{candidate.name}", f"is of another model or other dimensions ({both})", remedy)
    return is_same


def _model(side: MeasuredSide) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in side.dimensions.items())
    return f"{side.model_id[:12]}{f' with {sizes}' if sizes else ''}"


def _latency_rows(
    baseline: MeasuredSide, candidate: MeasuredSide, settings: ComparisonSettings
) -> Iterator[ComparisonRow]:
    """Yield a row per figure of the latency, the median first; pairs, and sides of few runs, have no other figure."""
    if not (len(baseline.latencies_us) and len(candidate.latencies_us)):
        return
    sides = LatencySide(baseline.sessions_us), LatencySide(candidate.sessions_us)
    family = {} if settings.is_paired else judged_latency(*sides, settings.margin_share)
    if "p50" not in family:
        change = settings.compare(baseline.latencies_us, candidate.latencies_us, 0.0)
        judgement = judge(change, settings.margin_share, change.p_value, is_less_better=True)
        yield _row("end_to_end", "p50_us", "", change, judgement)
    for name, (change, judgement) in family.items():
        yield _row("end_to_end", f"{name}_us", "", change, judgement)


def _op_type_rows(
    baseline: MeasuredSide, candidate: MeasuredSide, settings: ComparisonSettings
) -> Iterator[ComparisonRow]:
    before, after = baseline.by_op_type(), candidate.by_op_type()
    pairs = {kind: (before.get(kind, np.zeros(0)), after.get(kind, np.zeros(0))) for kind in {**before, **after}}
    for kind, (change, judgement) in _judged(pairs, settings).items():
        yield _row("op_type", "node_latency_us", kind, change, judgement, median_us=baseline.median_us)


def _node_rows(
    baseline: MeasuredSide, candidate: MeasuredSide, settings: ComparisonSettings
) -> Iterator[ComparisonRow]:
    """Yield a row per group of nodes whose times are known; none where the graphs have too little in common.

    A side without its source nodes is not compared with one that has them: names of executed nodes match by chance.
    """
    if baseline.executed.is_mapped != candidate.executed.is_mapped:
        return
    groups = aligned(
        baseline.executed, candidate.executed, renamed_sources(baseline.fingerprints, candidate.fingerprints)
    )
    shared = sum(len(group.source_nodes) for group in groups if group.baseline and group.candidate)
    if not shared or shared < LEAST_SHARED * sum(len(group.source_nodes) for group in groups):
        return
    names = _subjects(groups)
    pairs = {
        name: (baseline.time_of(group.baseline), candidate.time_of(group.candidate))
        for name, group in names.items()
        if baseline.has_times(group.baseline) and candidate.has_times(group.candidate)
    }
    for name, (change, judgement) in _judged(pairs, settings).items():
        yield _row("node", "node_latency_us", name, change, judgement, names[name], baseline.median_us)


def why_no_nodes(baseline: MeasuredSide, candidate: MeasuredSide, rows: Sequence[ComparisonRow]) -> list[str]:
    """Return why a comparison has no rows of nodes; nothing if it has some."""
    if any(row["compared_kind"] == "node" for row in rows):
        return []
    sides = (baseline, candidate)
    reasons = [
        *(f"{side.name} has no times of nodes" for side in sides if not side.nodes_us),
        *(f"{side.name} has no node_map.csv; run <node_map>" for side in sides if not side.executed.is_mapped),
        "the measurements share too few source nodes",
    ]
    return [f"no nodes are compared: {reasons[0]}"]


def _subjects(groups: Sequence[NodeGroup]) -> dict[str, NodeGroup]:
    """Name each group by its first executed node, the baseline's where it has one."""
    names: dict[str, NodeGroup] = {}
    for group in groups:
        name = (*group.baseline, *group.candidate)[0]
        while name in names:
            name += "'"
        names[name] = group
    return names


def _judged(
    pairs: Mapping[str, tuple[Samples, Samples]], settings: ComparisonSettings
) -> dict[str, tuple[Difference, Judgement]]:
    """Compare many pairs of series at once: their tests and their noise floors are those of a family."""
    both = {name: pair for name, pair in pairs.items() if len(pair[0]) and len(pair[1])}
    changes = with_common_floor({name: settings.compare(*pair, TRACE_STEP_US) for name, pair in both.items()})
    adjusted = dict(zip(changes, holm([change.p_value for change in changes.values()]), strict=True))
    result = {}
    for name, pair in pairs.items():
        if name in changes:
            one = replace(changes[name], p_value=adjusted[name])
            result[name] = (one, judge(one, settings.margin_share, one.p_value, is_less_better=True))
        else:
            result[name] = _one_sided(*pair)
    return result


def _one_sided(before: Samples, after: Samples) -> tuple[Difference, Judgement]:
    """Judge what only one side executes: all of its time is the difference, where it takes any."""
    present = after if len(after) else before
    median = float(np.median(present)) if len(present) else 0.0
    runs = (len(before) or None, len(after) or None)
    is_there = median > TRACE_STEP_US
    if len(after):
        change = Difference(0.0, median, baseline_runs=runs[0], candidate_runs=runs[1])
        return change, Judgement("regressed" if is_there else "unchanged", NEW)
    change = Difference(median, 0.0, -1.0, baseline_runs=runs[0])
    return change, Judgement("improved" if is_there else "unchanged", GONE)


def _figure_rows(
    baselines: Sequence[MeasuredSide], candidate: MeasuredSide, margin: float, floor: float | None
) -> Iterator[ComparisonRow]:
    for figure in FIGURES:
        for subject, after in candidate.stated.get(figure.document, {}).items():
            stated = (side.stated.get(figure.document, {}) for side in baselines)
            known = [of_side[subject] for of_side in stated if subject in of_side]
            change = figure_difference(figure, known, after, floor)
            if change is None:
                continue
            if figure.spread == "exact":
                judgement = judge_exact(change, is_less_better=figure.is_less_better)
            else:
                judgement = judge(change, margin, None, is_less_better=figure.is_less_better)
            yield _row(figure.kind, figure.name, subject, change, judgement)


def _row(
    kind: str,
    figure: str,
    subject: str,
    change: Difference,
    judgement: Judgement,
    group: NodeGroup | None = None,
    median_us: float | None = None,
) -> ComparisonRow:
    """Return a row; that of a node or an operator type says what it changes in the baseline's median latency."""
    return {
        "compared_folder": "",
        "compared_kind": kind,
        "compared_figure": figure,
        "compared_subject": subject,
        "comparison_verdict": judgement.outcome,
        "baseline_value": change.baseline,
        "candidate_value": change.candidate,
        "difference_share": change.share,
        "difference_low_share": change.low_share,
        "difference_high_share": change.high_share,
        "noise_floor_share": change.noise_floor_share,
        "latency_change_share": (change.candidate - change.baseline) / median_us if median_us else None,
        "adjusted_p_value": change.p_value,
        "cliffs_delta": change.cliffs_delta,
        "baseline_run_count": change.baseline_runs,
        "candidate_run_count": change.candidate_runs,
        "runs_needed_count": judgement.runs_needed,
        "verdict_reason": judgement.reason,
        "source_nodes": list(group.source_nodes) if group else [],
        "baseline_nodes": list(group.baseline) if group else [],
        "candidate_nodes": list(group.candidate) if group else [],
    }


TIMED = frozenset({"end_to_end", "node", "op_type", "load", "energy", "plan"})  # the last two follow from times


def _doubted(row: ComparisonRow, doubts: Sequence[str]) -> ComparisonRow:
    """Take back what times of a disturbed host seem to decide."""
    if not doubts or row["compared_kind"] not in TIMED:
        return row
    return {**row, "comparison_verdict": "undecided", "verdict_reason": "; ".join(dict.fromkeys(doubts))}


PRICES = frozenset({"used_count", "kernel_power_likely_w"})


class JudgedRow(TypedDict):
    """The columns by which a failure is known."""

    compared_kind: str
    compared_figure: str
    comparison_verdict: str
    difference_share: float | None
    latency_change_share: float | None


def failures(rows: Iterable[JudgedRow], limit: float) -> list[JudgedRow]:
    """Return the regressions above a share: of the whole, or of a node that adds as much to the latency.

    What a plan pays for its speedup is none.
    """
    return [
        row
        for row in rows
        if row["comparison_verdict"] == "regressed"
        and row["compared_figure"] not in PRICES
        and abs((row["latency_change_share"] if row["compared_kind"] == "node" else row["difference_share"]) or 0.0)
        > limit
    ]


def node_times_us(rows: Sequence[ComparisonRow], labels: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return the time of each group of nodes on both sides, by the label of its subject."""
    return {
        labels.get(row["compared_subject"], row["compared_subject"]): (row["baseline_value"], row["candidate_value"])
        for row in rows
        if row["compared_kind"] == "node"
    }
