"""The outcome of a trial: what mending gained, beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.mending.agreement import Agreement
from common.mending.findings import Predicted
from common.mending.registry import MendTrial
from common.table_rows import ComparisonRow, MendTrialsRow

UNDECIDED = "undecided"
OUTCOMES = {"improved": "gains", "regressed": "loses", "unchanged": "no gain"}


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """What mending took off the median latency, in µs, less than 0 where it added to it; pairs of runs say.

    ``reason`` says why nothing is decided.
    """

    gain_us: float
    low_us: float | None
    high_us: float | None
    verdict: str
    reason: str = ""


def measured_gain(rows: Sequence[ComparisonRow]) -> MeasuredGain | None:
    """Return what a mended model gained, by the row of the median in its comparison; None if no pair of runs counts."""
    row = next((one for one in rows if one["compared_figure"] == "p50_us"), None)
    if row is None or row["difference_share"] is None:
        return None
    before_us, low, high = row["baseline_value"], row["difference_low_share"], row["difference_high_share"]
    return MeasuredGain(
        -row["difference_share"] * before_us,
        None if high is None else -high * before_us,
        None if low is None else -low * before_us,
        row["comparison_verdict"],
        row["verdict_reason"] or "",
    )


def trial_row(
    rule: str, trial: MendTrial, agreed: Agreement | None, prediction: Predicted, measured: MeasuredGain | None
) -> MendTrialsRow:
    """Return the row of a rule; ``agreed`` is None without a mended model, ``measured`` also where outputs differ."""
    outcome, problem = _outcome(trial, agreed, measured)
    return {
        "finding": rule,
        "mend_outcome": outcome,
        "mend_problem": problem,
        "mends": list(trial.mends),
        "mended_nodes": list(trial.changed),
        "gain_us": prediction.gain_us,
        "gain_low_us": prediction.low_us,
        "gain_high_us": prediction.high_us,
        "doubts": list(prediction.doubts),
        "measured_gain_us": measured.gain_us if measured else None,
        "measured_gain_low_us": measured.low_us if measured else None,
        "measured_gain_high_us": measured.high_us if measured else None,
        "is_as_predicted": is_as_predicted(prediction, measured),
        "output_error_share": agreed.error if agreed else None,
        "output_tolerance_share": agreed.tolerance if agreed else None,
    }


def is_as_predicted(prediction: Predicted, measured: MeasuredGain | None) -> bool | None:
    """Return whether the intervals of both gains have a point in common; None where one is unknown."""
    if measured is None or measured.low_us is None or measured.high_us is None:
        return None
    if prediction.low_us is None or prediction.high_us is None:
        return None
    return measured.low_us <= prediction.high_us and prediction.low_us <= measured.high_us


def _outcome(trial: MendTrial, agreed: Agreement | None, measured: MeasuredGain | None) -> tuple[str, str]:
    """Return the outcome, and what is the problem with it."""
    if agreed is None:
        reasons = (f"{mend.replace('_', ' ')}: {reason}" for mend, reason in trial.reasons.items())
        return "not mended", "; ".join(reasons)
    if agreed.error is None:
        return "outputs differ", "an output is not finite, or of another shape, in one of both models"
    if not agreed.holds:
        problem = f"an output differs by {agreed.error:.2g} of its largest element, more than {agreed.tolerance:.2g}"
        return "outputs differ", problem
    if measured is None:
        return UNDECIDED, "no pair of runs counts"
    return OUTCOMES.get(measured.verdict, UNDECIDED), measured.reason
