"""The search for the best configuration as text: batches, the best by each objective, what is nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.table_rows import LoadBatchTimesRow, LoadBestDocument, ProviderComparisonRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, percent, quantity, significant

OBJECTIVES = {"rate": "highest rate", "energy": "least energy", "cost": "least cost"}


def setup_label(setup: Mapping[str, Any]) -> str:
    """Return a configuration in words: ``batch 8, wait 5.00 ms, 2 sessions of 1 thread``."""
    sessions, threads = setup["session_count"], setup["threads"]
    wait = f", wait {duration(setup['batch_wait_us'])}" if setup["batch_max_count"] > 1 else ""
    return (
        f"batch {setup['batch_max_count']}{wait}, {sessions} session{'s' * (sessions > 1)} "
        f"of {threads} thread{'s' * (threads > 1)}{''.join(f', {part}' for part in _sharing(setup))}"
    )


def _sharing(setup: Mapping[str, Any]) -> list[str]:
    unusual = []
    if setup["session_workers"] == "processes":
        unusual.append("each in a process")
    if setup["thread_pool"] == "shared":
        unusual.append("in a shared pool")
    elif setup["spinning"] != "runs":
        unusual.append(f"{setup['spinning']} spinning")
    if setup["execution_mode"] == "parallel":
        unusual.append(f"{setup['inter_op_threads']} nodes at once")
    return [*unusual, *(["pinned"] if setup["affinity"] == "pinned" else [])]


BATCHES: Table[LoadBatchTimesRow] = Table(
    TableColumn(
        "sessions x threads", lambda row: ", ".join([f"{row['session_count']} x {row['threads']}", *_sharing(row)])
    ),
    TableColumn("batch", lambda row: str(row["request_count"])),
    TableColumn("one call", lambda row: duration(row["call_p50_us"])),
    TableColumn("requests/s at most", lambda row: significant(row["full_requests_per_s"])),
    TableColumn("requests/J", lambda row: "" if (rate := row["requests_per_joule"]) is None else significant(rate)),
)


def search_report(best: LoadBestDocument, batches: Iterable[LoadBatchTimesRow]) -> str:
    return "\n".join([BATCHES.text(batches), *_verdict(best)])


def _verdict(best: LoadBestDocument) -> list[str]:
    bound = duration(best["bound_us"])
    if not best["trial_count"]:
        return ["no configuration was loaded"]
    if not best["best_by"]:
        return [f"nothing meets a p99 of {bound}{_nearest(best['nearest'])}", *_problems(best)]
    lines = [f"p99 within {bound}, by {best['trial_count']} runs:"]
    for objective, text in OBJECTIVES.items():
        if objective in best["best_by"]:
            lines.append(f"  {text}: {_standing(best['best_by'][objective])}")
    if best["runner_up"]:
        lines.append(f"  runner-up: {_standing(best['runner_up'])}; the best has {_margin(best)} more")
    lines += _problems(best)
    return [*lines, *(f"  prediction and measurement differ: {doubt}" for doubt in best["prediction_doubts"])]


def _problems(best: LoadBestDocument) -> list[str]:
    return [*_untimed(best["untimed_shape_count"]), *_failing(best), *_invalid(best)]


def _untimed(count: int) -> list[str]:
    return [f"  the budget was too short to time {count} ways to share the host"] if count else []


def _failing(best: LoadBestDocument) -> list[str]:
    if not (count := best["failing_trial_count"]):
        return []
    share = f"{count} of {best['trial_count']} runs"
    return [f"  in {share} too many requests failed; the last one: {best['failing_trial_reason']}"]


def _invalid(best: LoadBestDocument) -> list[str]:
    if not (count := best["invalid_trial_count"]):
        return []
    share = f"{count} of {best['trial_count']} runs"
    return [f"  {share} are invalid and cannot be judged; the last one: {best['invalid_trial_reason']}"]


def _nearest(nearest: Mapping[str, Any]) -> str:
    if not nearest:
        return "; no run was valid"
    rate = quantity(nearest["offered_requests_per_s"], "requests/s")
    return f"; nearest is {duration(nearest['request_p99_us'])} at {rate} with {setup_label(nearest)}"


def _standing(row: Mapping[str, Any]) -> str:
    extras = [
        *([f"{quantity(row['request_energy_j'], 'J')} each"] if row["request_energy_j"] is not None else []),
        *(
            [f"{significant(row['million_requests_usd'])} USD per million"]
            if row["million_requests_usd"] is not None
            else []
        ),
    ]
    limits = _limits(row["sustained_low_requests_per_s"], row["sustained_high_requests_per_s"], significant)
    doubt = "" if row["is_retested"] else ", not confirmed by a longer run"
    good = f", {significant(row['goodput_requests_per_s'])} within the bound"
    rate = f"{significant(row['sustained_requests_per_s'])} requests/s{limits}{good}{doubt}"
    return ", ".join([f"{setup_label(row)}: {rate}", *extras])


def _margin(best: LoadBestDocument) -> str:
    return percent(best["margin_share"]) + _limits(best["margin_low_share"], best["margin_high_share"], percent)


def _limits(low: float | None, high: float | None, write: Any) -> str:
    """Return limits in brackets; an end that no run has settled is open."""
    if low is None and high is None:
        return ""
    if high is None:
        return f" (at least {write(low)})"
    return f" (at most {write(high)})" if low is None else f" ({write(low)} to {write(high)})"


def _error(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


PROVIDERS: Table[ProviderComparisonRow] = Table(
    TableColumn("provider", lambda row: row["compared_provider"]),
    TableColumn("output", lambda row: row["output_name"] or MISSING),
    TableColumn("abs. error", lambda row: _error(row["max_abs_error"])),
    TableColumn("rel. error", lambda row: _error(row["max_rel_error"])),
    TableColumn("cosine error", lambda row: _error(row["cosine_error"])),
    TableColumn("one call", lambda row: duration(row["call_us"])),
    TableColumn("problem", lambda row: row["provider_problem"]),
)
