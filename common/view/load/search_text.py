"""The search for the best configuration as text: batches, the best by each objective, what is nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.view.text import duration, percent, quantity, significant, table

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
    """Return what is unusual in how sessions share the host."""
    found = []
    if setup["session_workers"] == "processes":
        found.append("each in a process")
    if setup["thread_pool"] == "shared":
        found.append("in a shared pool")
    elif setup["spinning"] != "runs":
        found.append(f"{setup['spinning']} spinning")
    if setup["execution_mode"] == "parallel":
        found.append(f"{setup['inter_op_threads']} nodes at once")
    return [*found, *(["pinned"] if setup["affinity"] == "pinned" else [])]


def search_report(best: Mapping[str, Any], batches: Iterable[Mapping[str, Any]]) -> str:
    """Return the closing text of a search."""
    rows = [
        [
            ", ".join([f"{row['session_count']} x {row['threads']}", *_sharing(row)]),
            str(row["request_count"]),
            duration(row["call_p50_us"]),
            significant(row["full_requests_per_s"]),
            "" if row["requests_per_joule"] is None else significant(row["requests_per_joule"]),
        ]
        for row in batches
    ]
    head = ("sessions x threads", "batch", "one call", "requests/s at most", "requests/J")
    return "\n".join([table(head, rows), *_verdict(best)])


def _verdict(best: Mapping[str, Any]) -> list[str]:
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


def _problems(best: Mapping[str, Any]) -> list[str]:
    return [*_untimed(best["untimed_shape_count"]), *_invalid(best)]


def _untimed(count: int) -> list[str]:
    return [f"  the budget was too short to time {count} ways to share the host"] if count else []


def _invalid(best: Mapping[str, Any]) -> list[str]:
    if not (count := best["invalid_trial_count"]):
        return []
    share = f"{count} of {best['trial_count']} runs"
    return [f"  {share} are invalid and told nothing; the last one: {best['invalid_trial_reason']}"]


def _nearest(nearest: Mapping[str, Any]) -> str:
    if not nearest:
        return "; every run was overloaded or invalid"
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
    rate = f"{significant(row['sustained_requests_per_s'])} requests/s{limits}{doubt}"
    return ", ".join([f"{setup_label(row)}: {rate}", *extras])


def _margin(best: Mapping[str, Any]) -> str:
    return percent(best["margin_share"]) + _limits(best["margin_low_share"], best["margin_high_share"], percent)


def _limits(low: float | None, high: float | None, write: Any) -> str:
    """Return limits in brackets; an end that no run has settled is open."""
    if low is None and high is None:
        return ""
    if high is None:
        return f" (at least {write(low)})"
    return f" (at most {write(high)})" if low is None else f" ({write(low)} to {write(high)})"


def provider_matrix_report(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return what every provider does with the model."""
    lines = [
        [
            row["compared_provider"],
            row["output_name"] or "-",
            *(
                "-" if row[name] is None else f"{row[name]:.3g}"
                for name in ("max_abs_error", "max_rel_error", "cosine_error")
            ),
            "-" if row["call_us"] is None else duration(row["call_us"]),
            row["provider_problem"] or "",
        ]
        for row in rows
    ]
    return table(("provider", "output", "abs. error", "rel. error", "cosine error", "one call", "problem"), lines)
