"""The best configuration for what is asked: the search, its tables, and what is asked for with what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from common.errors import UnusableValueError
from common.load.generator.wall_clock import Listener, nobody
from common.load.requests.demand import POISSON
from common.load.results.load_tables import LoadTables, interrupted
from common.load.search import optimum
from common.load.search import search_tables as search_rows
from common.load.search.search_runs import SessionRig
from common.load.service.concurrency import SHARING, Concurrency
from common.load.service.served_model import ServedModel, SessionShape
from common.load.service.service import Service
from common.load.settings import NOT_SEARCHED, SEARCHED_BATCH, Asked, concurrencies_of, options_of
from common.runtime.threads import usable_threads

Summary = Mapping[str, Any]
PowerMeter = Callable[[float, float], float | None]


def find_best(
    model: ServedModel, asked: Asked, power_w: PowerMeter, listener: Listener = nobody
) -> tuple[optimum.Optimum, LoadTables]:
    """Search the best configuration within the bound.

    Args:
        model: what is served.
        asked: the bound and the budget, and how sessions are set up.
        power_w: returns the mean power between two times of ``time.perf_counter``, or None.
        listener: told of each run when it begins.

    Raises:
        PipelineError: the runtime refuses the model.
        UnusableValueError: what is asked for does not go with a search.
    """
    if name := next((name for name in NOT_SEARCHED if asked[name]), ""):
        problem = "is not for a search, which sends Poisson arrivals of one length"
        raise UnusableValueError(name, problem, "leave it out")
    processors, kinds = usable_threads(asked["threads"]), concurrencies_of(asked)

    def shape(session_count: int, threads: int, kind: Concurrency) -> SessionShape:
        return SessionShape(session_count, options_of(asked, threads), kind, asked["replicate"])

    def open_service(session_count: int, threads: int, kind: Concurrency) -> Service:
        return model.service(shape(session_count, threads, kind), is_hosted=any(one.is_hosted for one in kinds))

    most, notes = asked["batch_max"] or SEARCHED_BATCH, []
    if most > 1 and not model.service(SessionShape(1, options_of(asked, 1))).inputs.batched:
        problem = "no input has a first axis of any size, so batches of one request alone are searched"
        most, notes = 1, [f"{problem}; <replicate> lets runs share a session"]
    budget = (1e6 * asked["p99_bound"], asked["budget"], most, processors, asked["usd_per_hour"], asked["seed"])
    task = optimum.SearchTask(*budget, kinds, lambda own: shape(*own).is_possible)
    if not task.shapes:
        open_service(1, processors, kinds[0])  # raises why
    found = optimum.find_optimum(SessionRig(open_service, power_w, listener), task)
    return found, interrupted(
        "a signal ended the search" if found.is_interrupted else "",
        *("load_batch_times", "load_search", "load_best"),
        rows={"load_batch_times": search_rows.batch_rows(found), "load_search": search_rows.trial_rows(found)},
        documents={"load_best": search_rows.summary(found)},
        notes=notes,
    )


def with_best(asked: Asked, found: optimum.Optimum) -> Asked:
    """Return what is asked for, with the best configuration and the rate that it sustains."""
    setup, rate_hz = optimum.chosen(found)
    kind = setup.concurrency
    return {
        **asked,
        **{name: (getattr(kind, name),) for name in SHARING},
        "inter_threads": (kind.inter_threads,) if kind.inter_threads else (),
        "arrivals": POISSON,
        "rate": rate_hz,
        "batch_max": setup.batch_max,
        "batch_wait": setup.wait_s,
        "sessions": setup.session_count,
        "threads": setup.thread_count,
    }


def contradictions(best: Summary, run: Summary) -> list[str]:
    """Return what the run with the best configuration says against the search.

    Args:
        best: the content of load_best.
        run: the content of load_summary of the run.
    """
    if not best["is_bound_met"] or run["validity"] == "invalid":
        return []
    if run["validity"] == "overload":
        found = run["validity_reason"]
    elif run["request_p99_us"] is not None and run["request_p99_us"] > best["bound_us"]:
        found = f"its p99 is {run['request_p99_us'] / 1e3:.4g} ms"
    else:
        return []
    return [f"the run with the best configuration did not hold its rate: {found}; search with a larger <budget>"]
