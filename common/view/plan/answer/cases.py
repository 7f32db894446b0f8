"""Three cases of each figure of a plan, named by its gain in them; the verdicts that follow; what a plan assumes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

from common.messages.errors import UpstreamError
from common.messages.names import shown
from common.table_rows import OffloadComparisonRow, OffloadVerdictRow, SpeedupRow
from common.view.text import MISSING, duration, joules, percent, significant, span

# The columns of tables are called pessimistic, likely and optimistic; a long time would then be the pessimistic one
# beside the optimistic energy of a host. Readers see the gain of the plan in each case.
CASES = {"pessimistic": "least gain", "likely": "likely", "optimistic": "most gain"}
JUDGED_RATIOS = {"kernel_speedup", "total_speedup"}
RESTS_ON_HOST = JUDGED_RATIOS | {"break_even_kernel_speedup", "break_even_launch", "break_even_batch", "payback_runs"}
SAME = " ="  # beside an interval with the likely value at one end
WHY_SAME = "= the interval ends at the likely value: "
SAME_KERNEL = f"{WHY_SAME}no kernel is known to go beyond it"
SAME_PLAN = f"{WHY_SAME}a faster host also computes its own part faster"
# No published array that we know of answers one image as fast as a plan with a launch for each phase says. So texts
# name the hardware that it assumes with the figure, and never begin with it.
HARDWARE = "a command processor on the card"
ASSUMED = (
    f"per phase: assumes {HARDWARE}, which fetches the calls and starts each kernel "
    "when its operands are there, as a DPU's scheduler does; a hand-off has no such processor"
)
Case = tuple[float | None, float | None, float | None]


def number(value: float | None) -> float:
    """Return a value to compute with; an unknown is NaN, which is in no order with any value."""
    return math.nan if value is None else value


def cases_of(row: SpeedupRow | OffloadVerdictRow) -> Case:
    """Return the values in the order of ``CASES``."""
    return row["pessimistic"], row["likely"], row["optimistic"]


class Terms(dict[tuple[str, str], "SpeedupRow"]):
    """Rows of the speedup table by objective and term. A row that is missed was there when the table was written."""

    @classmethod
    def of(cls, speedup: Iterable[SpeedupRow]) -> Terms:
        return cls({(row["objective"], row["term"]): row for row in speedup})

    def __missing__(self, key: tuple[str, str]) -> SpeedupRow:
        raise UpstreamError("speedup.csv", f"corrupt (no row {' '.join(map(shown, key))})", "rerun <speedup>")

    def likely(self, objective: str) -> dict[str, float]:
        """Return the likely values of an objective by term; an unknown is NaN."""
        return {term: number(row["likely"]) for (name, term), row in self.items() if name == objective}


def interval(cases_us: Case) -> str:
    """Return the ends of a time in µs, marked where the likely value is one of them; empty where a case is unknown."""
    known_us = [case_us for case_us in cases_us if case_us is not None]
    if len(known_us) < len(cases_us):
        return ""
    low, high = duration(min(known_us)), duration(max(known_us))
    return f"{low} to {high}{SAME * (low != high and duration(cases_us[1]) in (low, high))}"


def explained(text: str, why: str) -> str:
    """Return a table with the line that explains its marks, if it has any."""
    return f"{text}\n{why}" if SAME in text else text


def value_text(value: float | None, unit: str) -> str:
    """Write a value of the speedup table, in the unit that reads best."""
    if value is None or math.isnan(value):
        return MISSING
    if unit in ("share", "ratio"):
        return percent(value) if unit == "share" else f"{significant(value)}x"
    if unit in ("count", "per_s"):
        return f"{value:.0f}" if unit == "count" else f"{significant(value)}/s"
    return duration(value) if unit == "us" else joules(value)


def amount(value: float, objective: str) -> str:
    """Write a latency in µs or an energy in µJ, in the unit that reads best."""
    return duration(value) if objective == "latency" else joules(value)


def is_host_alone(verdicts: Sequence[OffloadVerdictRow]) -> bool:
    """Return whether the plan moves nothing to the card."""
    return any(row["verdict"] == "host alone" for row in verdicts)


def is_not_judged(verdicts: Sequence[OffloadVerdictRow] | None) -> bool:
    """Return whether the host's times decide nothing; then no speedup may be shown as one."""
    return any(row["verdict"].startswith("not judged") for row in verdicts or ())


def within(row: OffloadVerdictRow, digits: int = 3) -> str:
    """Return the interval that holds 90 % of the draws of a speedup: ``3.91 to 7.62``; a dash where there is none."""
    return span(row["speedup_p5_factor"], row["speedup_p95_factor"], partial(significant, digits=digits))


def probability(value: float | None) -> str:
    """Return a probability with two digits. No number of draws makes one certain."""
    if value is None:
        return MISSING
    return "over 0.99" if value >= 0.995 else "below 0.01" if value < 0.005 else f"{value:.2f}"


def doubts_of(verdicts: Sequence[OffloadVerdictRow]) -> list[str]:
    """Return every doubt about a plan, each once."""
    return [*dict.fromkeys(doubt for row in verdicts for doubt in row["doubts"])]


def said_of(verdicts: Sequence[OffloadVerdictRow]) -> dict[str, str]:
    """Return what a copy of the plan's figures says beside them: each verdict, and every doubt."""
    doubts = doubts_of(verdicts)
    said = {f"verdict on {row['objective']}": judgement(row) for row in verdicts}
    return said | ({"doubts": "; ".join(doubts)} if doubts else {})


def judgement(row: OffloadVerdictRow) -> str:
    """Write a verdict with its figures: ``undecided: 1.61x, 90 % within 0.83 to 2.87, pays with probability 0.81``."""
    word, likely = row["verdict"], row["likely"]
    if row["pays_probability"] is None or likely is None:
        return word
    odds = probability(row["pays_probability"])
    return f"{word}: {significant(likely)}x, 90 % within {within(row)}, pays with probability {odds}"


def is_per_phase(row: OffloadComparisonRow) -> bool:
    return row["launch_per"] == "phase"


def per_phase_last(compared: Iterable[OffloadComparisonRow]) -> list[OffloadComparisonRow]:
    """Return the plans in their order, those with a launch for each phase behind the others."""
    return sorted(compared, key=is_per_phase)
