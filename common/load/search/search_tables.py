"""Tables of a search: what batches take, every run, and what is best."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.latency.statistics import Samples, percentile
from common.load.search.batch_times import Response
from common.load.search.halving import OBJECTIVES, Configuration, Standing, Trial, on_front
from common.load.search.optimum import Optimum, SearchTask

MILLION = 1e6


def batch_rows(optimum: Optimum) -> list[dict[str, Any]]:
    """Return the latency against the batch size: a row per shape and size."""
    return [
        {
            "session_count": shape[0],
            "threads": shape[1],
            **shape[2].columns,
            "request_count": size,
            "measured_call_count": len(taken_s),
            "call_mean_us": 1e6 * float(taken_s.mean()),
            **{f"call_{name}_us": value for name, value in _median(taken_s).items()},
            "full_requests_per_s": (rate := shape[0] * size / float(taken_s.mean())),
            "load_power_w": (power := optimum.powers_w.get((shape, size))),
            "requests_per_joule": rate / power if power else None,
        }
        for shape, times in optimum.times.items()
        for size, taken_s in times.items()
    ]


def _median(taken_s: Samples) -> dict[str, float | None]:
    found = percentile(1e6 * taken_s, 0.5)
    return {"p50": float(np.median(1e6 * taken_s)), "p50_low": found.low, "p50_high": found.high}


def trial_rows(optimum: Optimum) -> list[dict[str, Any]]:
    """Return a row per run of the search and of the curve; the runs of the curve have predictions."""
    task = optimum.task
    pairs: list[tuple[Trial, Response | None, str, str]] = [(one, None, "search", "") for one in optimum.found.trials]
    pairs += [(point.trial, point.response, "curve", point.doubt) for point in optimum.curve]
    fronts = on_front([one for one, *_ in pairs])
    return [
        {
            "trial_index": index,
            "trial_kind": kind,
            "rung_index": one.rung,
            **_setup_columns(one.configuration),
            "offered_requests_per_s": one.rate_hz,
            "answered_requests_per_s": one.completed_hz,
            "validity": "overload" if one.is_overloaded else "invalid" if one.problem else "valid",
            **_limits("request_p50", one.p50_us),
            **_limits("request_p99", one.p99_us),
            "predicted_p50_us": response.p50_us if response else None,
            "predicted_p99_us": response.p99_us if response else None,
            "predicted_utilization_share": response.utilization if response else None,
            "prediction_doubt": doubt or None,
            "is_within_bound": one.is_within(task.bound_us),
            "is_on_load_front": is_front,
            "load_power_w": one.power_w,
            "request_energy_j": one.power_w / one.completed_hz if one.power_w and one.completed_hz else None,
            "million_requests_usd": _usd(task, one.configuration, one.completed_hz),
        }
        for index, ((one, response, kind, doubt), is_front) in enumerate(zip(pairs, fronts, strict=True))
    ]


def _usd(task: SearchTask, setup: Configuration, rate_hz: float | None) -> float | None:
    cost = task.usd_per_s(setup)
    return MILLION * cost / rate_hz if cost is not None and rate_hz else None


def _setup_columns(setup: Configuration) -> dict[str, Any]:
    return {
        "batch_max_count": setup.batch_max,
        "batch_wait_us": 1e6 * setup.wait_s,
        "session_count": setup.session_count,
        "threads": setup.thread_count,
        **setup.concurrency.columns,
    }


def _limits(name: str, estimate: Any) -> dict[str, float | None]:
    return {f"{name}_us": estimate.value, f"{name}_low_us": estimate.low, f"{name}_high_us": estimate.high}


def summary(optimum: Optimum) -> dict[str, Any]:
    """Return what is best, by how much, and, where nothing meets the bound, what is nearest."""
    task, found = optimum.task, optimum.found
    margin, nearest = found.margin, found.nearest
    problems = [one.problem for one in found.trials if one.problem]
    return {
        "bound_us": task.bound_us,
        "is_bound_met": bool(found.best),
        "best_by": {name: _standing(task, found.best[name]) for name in OBJECTIVES if name in found.best},
        "runner_up": _standing(task, found.runner_up) if found.runner_up else {},
        "margin_share": margin.value if margin else None,
        "margin_low_share": margin.low if margin else None,
        "margin_high_share": margin.high if margin else None,
        "nearest": {} if nearest is None else _nearest(nearest),
        "untimed_shape_count": len(task.shapes) - len(optimum.times),
        "trial_count": len(found.trials) + len(optimum.curve),
        "invalid_trial_count": len(problems),
        "invalid_trial_reason": problems[-1] if problems else None,
        "prediction_doubts": sorted({point.doubt for point in optimum.curve if point.doubt}),
    }


def _nearest(nearest: Trial) -> dict[str, Any]:
    limits = _limits("request_p99", nearest.p99_us)
    return {**_setup_columns(nearest.configuration), "offered_requests_per_s": nearest.rate_hz, **limits}


def _standing(task: SearchTask, standing: Standing) -> dict[str, Any]:
    low, high = standing.limits_hz
    power, rate = standing.power_w, standing.rate_hz
    return {
        **_setup_columns(standing.configuration),
        "sustained_requests_per_s": rate,
        "is_retested": standing.is_retested,
        "sustained_low_requests_per_s": low,
        "sustained_high_requests_per_s": high,
        "request_energy_j": power / rate if power and rate else None,
        "million_requests_usd": _usd(task, standing.configuration, rate),
    }
