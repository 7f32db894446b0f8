"""Streams over replicas as text: frames per second first, then what each resource allows, and other ways to divide."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import cast

from common.table_rows import ReplicaPlansRow, ReplicaRatesRow
from common.view.plan.answer.cases import HARDWARE
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, WIDTH, duration, significant

ALONE, HOST = "one array", "host"


def rate(per_s: float | None) -> str:
    return MISSING if per_s is None else f"{significant(per_s)}/s"


def _interval(row: ReplicaPlansRow | ReplicaRatesRow, column: str) -> str:
    rates = cast("Mapping[str, float | None]", row)
    return " to ".join(rate(rates[column.format(case)]) for case in ("pessimistic", "optimistic"))


def places(row: ReplicaPlansRow) -> str:
    """Return how many accelerators each region has, as in ``5 in SLR0, 4 in SLR1``, or ``2 in each of 3``."""
    counts = row["region_replicas"]
    if len(counts) > 1 and len({*counts.values()}) == 1:
        return f"{next(iter(counts.values()))} in each of {len(counts)}"
    return ", ".join(f"{count} in {region}" for region, count in counts.items())


PLANS: Table[ReplicaPlansRow] = Table(
    TableColumn("divided", lambda row: row["division"]),
    TableColumn("frames", lambda row: rate(row["likely_inferences_per_s"])),
    TableColumn("interval", lambda row: _interval(row, "{}_inferences_per_s")),
    TableColumn("card alone", lambda row: rate(row["card_likely_inferences_per_s"])),
    TableColumn("latency", lambda row: duration(row["batch_latency_likely_us"])),
    TableColumn("in flight", lambda row: str(row["in_flight_count"])),
    TableColumn("bound by", lambda row: row["stream_bottleneck"], is_left=True),
)
PLACES: Table[ReplicaPlansRow] = Table(
    TableColumn("divided", lambda row: row["division"]),
    TableColumn("arrays", lambda row: str(row["accelerator_count"])),
    TableColumn("each", lambda row: row["engine"] or MISSING, is_left=True),
    TableColumn("regions", places, is_left=True),
    TableColumn("stages", lambda row: str(row["stage_count"])),
    TableColumn("MHz", lambda row: f"{row['clock_likely_mhz']:.0f}"),
)
RATES: Table[ReplicaRatesRow] = Table(
    TableColumn("resource", lambda row: row["stream_resource"] + " *" * row["is_bottleneck"]),
    TableColumn("of each frame", lambda row: duration(row["frame_busy_likely_us"])),
    TableColumn("frames", lambda row: rate(row["likely_resource_inferences_per_s"])),
    TableColumn("interval", lambda row: _interval(row, "{}_resource_inferences_per_s")),
)


RATES_BY_DIVISION: Table[ReplicaRatesRow] = Table(TableColumn("divided", lambda row: row["division"]), *RATES.columns)
COVERED = "The intervals are of speed.\nThey do not say how many arrays would fit if each took fewer LUTs."
STARTED_BY_HOST = f"The host starts each call.\nA plan per phase assumes {HARDWARE}, as vendors' have."


def replica_headline(plans: Sequence[ReplicaPlansRow]) -> str:
    """Return the frames per second of the best plan in one sentence; empty where there is none."""
    best = next((row for row in plans if row["is_quickest"]), None)
    if best is None:
        return ""
    count, engine = best["accelerator_count"], best["engine"]
    likely, ends = rate(best["likely_inferences_per_s"]), _interval(best, "{}_inferences_per_s")
    arrays = f"{count} x {engine}" if count > 1 else f"one {engine}"
    text = f"{likely} ({ends}) on {arrays}, bound by the {best['stream_bottleneck']}"
    if best["stream_bottleneck"] == HOST:
        of_card = _interval(best, "card_{}_inferences_per_s")
        text += f" (the card alone {rate(best['card_likely_inferences_per_s'])}, {of_card})"
    alone = next((row["likely_inferences_per_s"] for row in plans if row["division"] == ALONE), None)
    if alone and best["division"] != ALONE:
        text += f"; one array over the board: {rate(alone)}"
    text += f"; no mix of such arrays exceeds {rate(best['bound_inferences_per_s'])}"
    return f"only with {HARDWARE}: {text}" if best["launch_per"] == "phase" else text


def replica_report(plans: Sequence[ReplicaPlansRow], rates: Sequence[ReplicaRatesRow]) -> str:
    """Return the answer, the ways to divide the frames, where the arrays are, and what each resource allows."""
    if not plans:
        return "No array of the board computes this model: there is no stream of frames."
    best = next(row["division"] for row in plans if row["is_quickest"])
    of_best = [row for row in rates if row["division"] == best]
    answer = "\n".join(textwrap.wrap(replica_headline(plans), WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    rates_text = f"{RATES.text(of_best)}\n* it bounds the rate"
    covered = [COVERED, STARTED_BY_HOST] if plans[0]["launch_per"] == "group" else [COVERED]
    return "\n\n".join([answer, PLANS.text(plans), PLACES.text(plans), rates_text, "\n".join(covered)])
