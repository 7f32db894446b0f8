"""The best configuration of a model within a bound: its search, and a load with what the search found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.load.generator.wall_clock import Listener, nobody
from common.load.requests.demand import POISSON
from common.load.search.optimum import Optimum, SearchTask, find_optimum
from common.load.search.trials import SessionHarness
from common.load.service.concurrency import Concurrency
from common.load.service.served_model import ServedModel
from common.load.service.service import Service
from common.load.settings import FlagValues, SearchSettings

if TYPE_CHECKING:
    from common.table_rows import LoadBestDocument, LoadSearchRow, LoadSummaryDocument

PowerMeter = Callable[[float, float], float | None]
ONE_ROW = "no input has a first axis of any size, so batches of one request alone are searched"


def find_best(
    model: ServedModel, settings: SearchSettings, power_w: PowerMeter, listener: Listener = nobody
) -> tuple[Optimum, list[str]]:
    """Search the best configuration within the bound; return it with what the user is to know.

    Args:
        model: what is served.
        settings: what the search is asked for.
        power_w: returns the mean power between two times of ``time.perf_counter``, or None.
        listener: called with each load when it begins.

    Raises:
        PipelineError: the runtime refuses the model.
        UnusableValueError: the sessions cannot share the host in any of the ways that are asked for.
    """
    concurrencies, bound = settings.concurrencies, settings.bound
    is_hosted = any(concurrency.is_hosted for concurrency in concurrencies)

    def open_service(session_count: int, threads: int, concurrency: Concurrency) -> Service:
        return model.service(settings.shape(session_count, threads, concurrency), is_hosted=is_hosted)

    takes_batches = bound.batch_max == 1 or model.service(settings.shape(1, 1, Concurrency())).inputs.batched
    task = SearchTask(
        bound.p99_us,
        bound.budget_s,
        bound.batch_max if takes_batches else 1,
        settings.processors,
        settings.usd_per_hour,
        settings.seed,
        concurrencies,
        lambda shape: settings.shape(*shape).is_possible,
    )
    if not task.shapes:
        open_service(1, settings.processors, concurrencies[0])  # raises why
    optimum = find_optimum(SessionHarness(open_service, power_w, listener), task)
    return optimum, [] if takes_batches else [f"{ONE_ROW}; <replicate> lets runs share a session"]


def with_best(values: FlagValues, best: LoadBestDocument, trials: Sequence[LoadSearchRow]) -> FlagValues:
    """Return the values of quantities with the best configuration by rate, and the rate that it sustains.

    Where nothing meets the bound it is the trial whose p99 is nearest, or the one with the lowest rate.

    Args:
        values: by quantity.
        best: what the search found.
        trials: all that it tried.
    """
    lowest = min(trials, key=lambda trial: trial["offered_requests_per_s"] or math.inf)
    setup: Mapping[str, Any] = best["best_by"].get("rate") or best["nearest"] or lowest
    return {
        **values,
        "workers": (setup["session_workers"],),
        "pool": (setup["thread_pool"],),
        "execution": (setup["execution_mode"],),
        "inter_threads": (setup["inter_op_threads"],) if setup["inter_op_threads"] else (),
        "spinning": (setup["spinning"],),
        "affinity": (setup["affinity"],),
        "arrivals": POISSON,
        "rate": setup.get("sustained_requests_per_s") or setup["offered_requests_per_s"],
        "batch_max": setup["batch_max_count"],
        "batch_wait": setup["batch_wait_us"] / 1e6,
        "batch_preferred": (),
        "batch_pad": False,
        "sessions": setup["session_count"],
        "threads": setup["threads"],
    }


def contradictions(best: LoadBestDocument, summary: LoadSummaryDocument) -> list[str]:
    """Return what a load with the best configuration says against the search that found it."""
    if not best["is_bound_met"] or summary["validity"] == "invalid":
        return []
    p99_us = summary["request_p99_us"]
    if summary["validity"] == "overload":
        problem = summary["validity_reason"]
    elif p99_us is not None and p99_us > best["bound_us"]:
        problem = f"its p99 is {p99_us / 1e3:.4g} ms"
    else:
        return []
    return [f"the load with the best configuration did not hold its rate: {problem}; search with a larger <budget>"]
