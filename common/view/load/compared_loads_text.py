"""Many loads as text: the best configuration, execution providers, models on their hosts; all loads in the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from common.table_rows import (
    Documents,
    LoadBatchTimesRow,
    LoadBestDocument,
    LoadFleetRow,
    LoadSearchRow,
    ProviderComparisonRow,
    Tables,
)
from common.view.load.load_text import endurance_report, interference_report, load_report, steps_report
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, percent, quantity, significant

MOST_ROWS = 60
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
    standings = {text: best["best_by"][name] for name, text in OBJECTIVES.items() if name in best["best_by"]}
    lines += [f"  {text}: {_standing(standing)}" for text, standing in standings.items()]
    if best["runner_up"]:
        ends = _limits(best["margin_low_share"], best["margin_high_share"], percent)
        margin = percent(best["margin_share"]) + ends
        lines.append(f"  runner-up: {_standing(best['runner_up'])}; the best has {margin} more")
    lines += _problems(best)
    return [*lines, *(f"  prediction and measurement differ: {doubt}" for doubt in best["prediction_doubts"])]


def _problems(best: LoadBestDocument) -> Iterator[str]:
    if count := best["untimed_shape_count"]:
        yield f"  the budget was too short to time {count} ways to share the host"
    of_all = f"of {best['trial_count']} runs"
    if count := best["failing_trial_count"]:
        yield f"  in {count} {of_all} too many requests failed; the last one: {best['failing_trial_reason']}"
    if count := best["invalid_trial_count"]:
        yield f"  {count} {of_all} are invalid and cannot be judged; the last one: {best['invalid_trial_reason']}"


def _nearest(nearest: Mapping[str, Any]) -> str:
    if not nearest:
        return "; no run was valid"
    rate = quantity(nearest["offered_requests_per_s"], "requests/s")
    return f"; nearest is {duration(nearest['request_p99_us'])} at {rate} with {setup_label(nearest)}"


def _standing(row: Mapping[str, Any]) -> str:
    energy_j, usd = row["request_energy_j"], row["million_requests_usd"]
    extras = [] if energy_j is None else [f"{quantity(energy_j, 'J')} each"]
    extras += [] if usd is None else [f"{significant(usd)} USD per million"]
    limits = _limits(row["sustained_low_requests_per_s"], row["sustained_high_requests_per_s"], significant)
    doubt = "" if row["is_retested"] else ", not confirmed by a longer run"
    good = f", {significant(row['goodput_requests_per_s'])} within the bound"
    rate = f"{significant(row['sustained_requests_per_s'])} requests/s{limits}{good}{doubt}"
    return ", ".join([f"{setup_label(row)}: {rate}", *extras])


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


def _fleet_rate(row: LoadFleetRow, requests_per_s: float | None) -> str:
    return MISSING if requests_per_s is None or not row["sent_count"] else significant(requests_per_s)


def _fleet_end(row: LoadFleetRow) -> str:
    if not row["sent_count"]:
        return row["validity_reason"] or "no request came"
    return setup_label(row) if row["validity"] == "valid" else f"{row['validity']}: {row['validity_reason']}"


FLEET: Table[LoadFleetRow] = Table(
    TableColumn("model", lambda row: Path(row["model_file"]).name),
    TableColumn("host", lambda row: row["hostname"]),
    TableColumn("requests/s", lambda row: _fleet_rate(row, row["offered_requests_per_s"])),
    TableColumn("answered", lambda row: _fleet_rate(row, row["answered_requests_per_s"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("set up as, or what is wrong", _fleet_end),
)
CURVE: Table[LoadSearchRow] = Table(
    TableColumn("requests/s", lambda row: significant(row["offered_requests_per_s"] or 0.0)),
    TableColumn("p50", lambda row: row["validity"] if (p50_us := row["request_p50_us"]) is None else duration(p50_us)),
    TableColumn("predicted", lambda row: duration(row["predicted_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("predicted", lambda row: duration(row["predicted_p99_us"])),
    TableColumn("utilization", lambda row: percent(row["predicted_utilization_share"])),
    TableColumn("why they differ", lambda row: row["prediction_doubt"]),
)


def load_section(tables: Tables, documents: Documents) -> str:
    """Return the texts of load tests and what the tables add to them, each where it is."""
    texts, curve = [], [row for row in tables.get("load_search", ()) if row["trial_kind"] == "curve"]
    if "load_summary" in documents:
        texts.append(load_report(documents["load_summary"]))
    texts.append(steps_report(tables.get("load_steps", ())))
    if "load_best" in documents and "load_batch_times" in tables:
        texts.append(search_report(documents["load_best"], tables["load_batch_times"]))
    parts = [f"<pre>{escape(text)}</pre>" for text in texts if text]
    if curve:  # a row per rate of the best configuration, measured and predicted
        curve.sort(key=lambda row: row["offered_requests_per_s"] or 0.0)
        parts.append(CURVE.html(curve, f"the best: {setup_label(curve[0])}"))
    if "endurance_summary" in documents:
        parts.append(f"<pre>{escape(endurance_report(documents['endurance_summary']))}</pre>")
    if "load_interference" in tables:
        parts.append(f"<pre>{escape(interference_report(tables['load_interference']))}</pre>")
    models = tables.get("load_fleet", ())
    left_out = len(models) - MOST_ROWS
    parts.append(FLEET.html(models[:MOST_ROWS], f"{left_out} more in load_fleet.csv" if left_out > 0 else ""))
    parts.append(PROVIDERS.html(tables.get("provider_comparison", ())[:MOST_ROWS]))
    return "\n".join(filter(None, parts))
