"""What a plan would gain with another clock, link, number format or board, as a table and as a tornado."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from common.table_rows import WhatIfPlansRow
from common.view.plan.answer.cases import probability, value_text
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, WIDTH, duration, span

PLAN = "plan"
NO_GAIN = "Not judged: the times of the host decide nothing, so no gain is stated."


def _gain(row: WhatIfPlansRow) -> str:
    return value_text(row["latency_speedup_factor"], "ratio") if row["is_judged"] else MISSING


WHAT_IF: Table[WhatIfPlansRow] = Table(
    TableColumn("what if", lambda row: row["what_if_subject"]),
    TableColumn("is", lambda row: row["what_if_setting"], is_left=True),
    TableColumn("one inference", lambda row: duration(row["plan_latency_likely_us"])),
    TableColumn("gain", _gain),
    TableColumn("90 % within", lambda row: span(row["latency_speedup_p5_factor"], row["latency_speedup_p95_factor"])),
    TableColumn("pays", lambda row: probability(row["latency_pays_probability"])),
)


def tornado(rows: Sequence[WhatIfPlansRow]) -> dict[str, list[WhatIfPlansRow]]:
    """Return the questions of each subject with the plan, by latency; the subject with the widest range is first.

    Only those of :func:`of_another_host` are left out.
    """
    others = of_another_host(rows)
    plan = [row for row in rows if row["what_if_subject"] == PLAN]
    asked = [row for row in rows if row["what_if_subject"] != PLAN and row["what_if_setting"] not in others]
    subjects = dict.fromkeys(row["what_if_subject"] for row in asked)
    bars = {
        subject: sorted([*plan, *(row for row in asked if row["what_if_subject"] == subject)], key=likely_us)
        for subject in subjects
    }
    return dict(sorted(bars.items(), key=lambda bar: likely_us(bar[1][0]) - likely_us(bar[1][-1])))


def of_another_host(rows: Sequence[WhatIfPlansRow]) -> list[str]:
    """Return the boards of which the host's times are those of another processor, unless the plan's is such a board."""
    is_plan_of_other = any(row["is_other_host"] for row in rows if row["what_if_subject"] == PLAN)
    return [row["what_if_setting"] for row in rows if row["is_other_host"] and not is_plan_of_other]


def likely_us(row: WhatIfPlansRow) -> float:
    return row["plan_latency_likely_us"] or 0.0


def what_if_report(rows: Sequence[WhatIfPlansRow]) -> str:
    """Return what changes the latency most, and every question; without a verdict that is said first."""
    bars, (plan,) = tornado(rows), [row for row in rows if row["what_if_subject"] == PLAN]
    if not bars:
        return WHAT_IF.text(rows)
    warning = [] if plan["is_judged"] else [NO_GAIN]
    subject, ranked = next(iter(bars.items()))
    best, worst = ranked[0], ranked[-1]
    head = (
        f"The {subject} changes one inference most: {duration(likely_us(best))} with {best['what_if_setting']}, "
        f"{duration(likely_us(worst))} with {worst['what_if_setting']}; {duration(likely_us(plan))} as planned"
    )
    others = of_another_host(rows)
    left_out = [f"left out, as the profiled host is not theirs: {', '.join(others)}"] if others else []
    lines = [line for text in (*warning, head, *left_out) for line in textwrap.wrap(text, WIDTH)]
    return "\n".join([*lines, "", WHAT_IF.text(rows)])
