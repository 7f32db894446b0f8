"""Tables of a search: what batches take, every trial, and what is best."""

from __future__ import annotations

import numpy as np

from common.latency.statistics import estimate_columns, percentile
from common.load.search.curve import CurvePoint
from common.load.search.halving import OBJECTIVES, Configuration, Standing, Trial, on_front
from common.load.search.optimum import Optimum, SearchTask
from common.load.service.concurrency import SharingColumns
from common.table_rows import LoadBatchTimesRow, LoadBestDocument, LoadSearchRow

MILLION = 1e6


class ConfigurationColumns(SharingColumns):
    """How a service is set up, by the columns of tables."""

    batch_max_count: int
    batch_wait_us: float
    session_count: int
    threads: int


def batch_rows(optimum: Optimum) -> list[LoadBatchTimesRow]:
    """Return the latency against the batch size: a row per shape and size."""
    rows: list[LoadBatchTimesRow] = []
    for (sessions, threads, concurrency), times in optimum.times.items():
        for size, taken_s in times.items():
            power_w = optimum.powers_w.get(((sessions, threads, concurrency), size))
            median_us, rate_hz = percentile(1e6 * taken_s, 0.5), sessions * size / float(taken_s.mean())
            rows.append(
                {
                    "session_count": sessions,
                    "threads": threads,
                    **concurrency.columns,
                    "request_count": size,
                    "measured_call_count": len(taken_s),
                    "call_mean_us": 1e6 * float(taken_s.mean()),
                    "call_p50_us": float(np.median(1e6 * taken_s)),
                    "call_p50_low_us": median_us.low,
                    "call_p50_high_us": median_us.high,
                    "full_requests_per_s": rate_hz,
                    "load_power_w": power_w,
                    "requests_per_joule": rate_hz / power_w if power_w else None,
                }
            )
    return rows


def trial_rows(optimum: Optimum) -> list[LoadSearchRow]:
    """Return a row per trial of the search and of the curve; those of the curve have predictions."""
    trials = [*optimum.result.trials, *(point.trial for point in optimum.curve)]
    points = [*[None] * len(optimum.result.trials), *optimum.curve]
    rows = zip(trials, points, on_front(trials), strict=True)
    return [_trial_row(optimum.task, index, *row) for index, row in enumerate(rows)]


def _trial_row(task: SearchTask, index: int, trial: Trial, point: CurvePoint | None, is_front: bool) -> LoadSearchRow:
    predicted, power_w, rate_hz = point.response if point else None, trial.power_w, trial.completed_hz
    return {
        "trial_index": index,
        "trial_kind": "curve" if point else "search",
        "rung_index": trial.rung,
        **_setup_columns(trial.configuration),
        "offered_requests_per_s": trial.rate_hz,
        "answered_requests_per_s": rate_hz,
        "goodput_requests_per_s": trial.rate_hz * trial.good_share,
        "failed_count": trial.failed_count,
        "validity": trial.validity.status,
        "request_p50_us": trial.p50_us.value,
        "request_p50_low_us": trial.p50_us.low,
        "request_p50_high_us": trial.p50_us.high,
        "request_p99_us": trial.p99_us.value,
        "request_p99_low_us": trial.p99_us.low,
        "request_p99_high_us": trial.p99_us.high,
        "predicted_p50_us": predicted.p50_us if predicted else None,
        "predicted_p99_us": predicted.p99_us if predicted else None,
        "predicted_utilization_share": predicted.utilization if predicted else None,
        "prediction_doubt": point.doubt if point else "",
        "is_within_bound": trial.is_within(task.bound_us),
        "is_on_load_front": is_front,
        "load_power_w": power_w,
        "request_energy_j": power_w / rate_hz if power_w and rate_hz else None,
        "million_requests_usd": _usd(task, trial.configuration, rate_hz),
    }


def _usd(task: SearchTask, setup: Configuration, rate_hz: float | None) -> float | None:
    cost = task.usd_per_s(setup)
    return MILLION * cost / rate_hz if cost is not None and rate_hz else None


def _setup_columns(setup: Configuration) -> ConfigurationColumns:
    return {
        "batch_max_count": setup.batch_max,
        "batch_wait_us": 1e6 * setup.wait_s,
        "session_count": setup.session_count,
        "threads": setup.thread_count,
        **setup.concurrency.columns,
    }


def best_document(optimum: Optimum) -> LoadBestDocument:
    """Return the best configuration and its margin; if nothing meets the bound, the nearest one."""
    task, result = optimum.task, optimum.result
    margin, nearest = result.margin, result.nearest
    problems, failures = (
        [trial.validity.reason for trial in result.trials if trial.validity.status == status]
        for status in ("invalid", "failing")
    )
    return {
        "bound_us": task.bound_us,
        "is_bound_met": bool(result.best),
        "best_by": {name: _standing(task, result.best[name]) for name in OBJECTIVES if name in result.best},
        "runner_up": _standing(task, result.runner_up) if result.runner_up else {},
        "margin_share": margin.value if margin else None,
        "margin_low_share": margin.low if margin else None,
        "margin_high_share": margin.high if margin else None,
        "nearest": _nearest(nearest) if nearest else {},
        "untimed_shape_count": len(task.shapes) - len(optimum.times),
        "trial_count": len(result.trials) + len(optimum.curve),
        "invalid_trial_count": len(problems),
        "invalid_trial_reason": problems[-1] if problems else None,
        "failing_trial_count": len(failures),
        "failing_trial_reason": failures[-1] if failures else None,
        "max_error_share": task.max_error_share,
        "prediction_doubts": sorted({point.doubt for point in optimum.curve if point.doubt}),
    }


def _nearest(nearest: Trial) -> dict[str, object]:
    rate = {"offered_requests_per_s": nearest.rate_hz}
    return {**_setup_columns(nearest.configuration), **rate, **estimate_columns("request_p99", nearest.p99_us)}


def _standing(task: SearchTask, standing: Standing) -> dict[str, object]:
    low, high = standing.limits_hz
    power, goodput_hz = standing.power_w, standing.goodput_hz
    return {
        **_setup_columns(standing.configuration),
        "sustained_requests_per_s": standing.rate_hz,
        "goodput_requests_per_s": goodput_hz,
        "is_retested": standing.is_retested,
        "sustained_low_requests_per_s": low,
        "sustained_high_requests_per_s": high,
        "request_energy_j": power / goodput_hz if power and goodput_hz else None,
        "million_requests_usd": _usd(task, standing.configuration, goodput_hz),
    }
