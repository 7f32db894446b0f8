"""The best configuration of a model within a bound: its search, and what a later load says against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from common.load.generator.wall_clock import Listener, nobody
from common.load.search.optimum import Optimum, SearchTask, find_optimum
from common.load.search.trials import SessionHarness
from common.load.service.concurrency import Concurrency
from common.load.service.served_model import ServedModel, SessionShape
from common.load.service.service import Service
from common.runtime.sessions.session import SessionSettings
from common.table_rows import LoadBestDocument, LoadSummaryDocument

PowerMeter = Callable[[float, float], float | None]  # the mean power between two times of ``time.perf_counter``
ONE_ROW = "no input has a first axis of any size, so batches of one request alone are searched"


@dataclass(frozen=True, slots=True)
class SearchSettings:
    task: SearchTask  # the question; a model without batches is asked for batches of one request
    options: SessionSettings  # provider and optimization level of the sessions
    replicas: int = 1  # runs that share each session

    def shape(self, session_count: int, threads: int, concurrency: Concurrency) -> SessionShape:
        return SessionShape(session_count, replace(self.options, threads=threads), concurrency, self.replicas)


def find_best(
    model: ServedModel, settings: SearchSettings, power_w: PowerMeter = lambda *_: None, listener: Listener = nobody
) -> tuple[Optimum, list[str]]:
    """Search the best configuration within the bound; return it with what the user is to know.

    Raises:
        PipelineError: the runtime refuses the model.
        UnusableValueError: the sessions cannot share the host in any of the ways that are asked for.
    """
    task = settings.task
    is_hosted = any(concurrency.is_hosted for concurrency in task.concurrencies)

    def open_service(session_count: int, threads: int, concurrency: Concurrency) -> Service:
        return model.service(settings.shape(session_count, threads, concurrency), is_hosted=is_hosted)

    task = replace(task, is_possible=lambda shape: settings.shape(*shape).is_possible)
    takes_batches = task.batch_max == 1 or model.service(settings.shape(1, 1, Concurrency())).inputs.batched
    if not takes_batches:
        task = replace(task, batch_max=1)
    if not task.shapes:
        open_service(1, task.processors, task.concurrencies[0])  # raises why
    optimum = find_optimum(SessionHarness(open_service, power_w, listener), task)
    notes = [] if takes_batches else [f"{ONE_ROW}; <replicate> lets runs share a session"]
    unknown = {point.unknown_tail for point in optimum.curve} - {""}
    notes += [f"predicted percentiles are uncertain: {own}; give a larger <budget>" for own in unknown]
    return optimum, notes


def contradictions(best: LoadBestDocument, summary: LoadSummaryDocument) -> list[str]:
    """Return what a load with the best configuration says against the search that found it."""
    if not best["is_bound_met"] or summary["validity"] == "invalid":
        return []
    p99_us = summary["request_p99_us"]
    if summary["validity"] in ("overload", "failing"):
        problem = summary["validity_reason"]
    elif p99_us is not None and p99_us > best["bound_us"]:
        problem = f"its p99 is {p99_us / 1e3:.4g} ms"
    else:
        return []
    return [f"the load with the best configuration did not hold its rate: {problem}; search with a larger <budget>"]
