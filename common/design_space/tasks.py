"""Designs as tasks: each is one workload on one accelerator by one search, independent of all others.

A task whose result is known from an earlier run is not run again. The results are kept one by one as they come, so a
run that was killed goes on where it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.results.cache import ResultCache, key_of
from common.design_space.results.found_design import FoundDesign, misfit
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.design_space.search.settings import Search
from common.workers import Workers

Progress = Callable[[float, float], None]


class ModelWorkload(Protocol):
    """A model, as a kind of accelerator sees it."""

    def found(
        self, design: str, hardware: Hardware, search: Search, observer: SearchObserver = UNOBSERVED
    ) -> FoundDesign:
        """Return what a search finds on an accelerator."""


@dataclass(frozen=True, slots=True)
class DesignTask:
    """One design to evaluate: a name, an accelerator and a search."""

    design: str
    hardware: Hardware
    search: Search

    def found(self, workload: ModelWorkload, observer: SearchObserver = UNOBSERVED) -> FoundDesign:
        """Return what is found; a design on which nothing fits says so."""
        try:
            self.hardware.require_room()
            return workload.found(self.design, self.hardware, self.search, observer)
        except NothingFitsError as error:
            return misfit(self.design, self.hardware, self.search, error.problem)


@dataclass(frozen=True, slots=True)
class TaskResults:
    """What became of some tasks.

    Attributes:
        designs: what was found, in the order of the tasks; those that an interruption left undone are missing.
        known_count: how many of them were known from earlier runs.
    """

    designs: Sequence[FoundDesign]
    known_count: int


def results_of(
    workload: ModelWorkload,
    tasks: Sequence[DesignTask],
    cache: ResultCache | None,
    workers: Workers,
    observer: SearchObserver,
    progress: Progress,
) -> TaskResults:
    """Return the results of tasks, those that are not known from the workers.

    An interruption ends the tasks once a schedule was found. A search that was cut short is not kept.

    Args:
        workload: the model.
        tasks: what to do.
        cache: results of earlier runs; None to know none.
        workers: who does it.
        observer: of the searches that this process makes; it may end all of them.
        progress: is told how many tasks are done elsewhere, and of how many.

    Raises:
        PipelineError: as the workload, or a worker that is gone.
    """
    model = key_of(workload) if cache else ""
    keys = [key_of(model, task) for task in tasks] if cache else []
    found = dict(_known(keys, cache))
    known_count = len(found)
    waiting = [index for index in range(len(tasks)) if index not in found]
    are_here = workers.are_here(len(waiting))
    observed = {"observer": observer} if are_here else {}
    calls = [partial(tasks[index].found, workload, **observed) for index in waiting]

    def is_ended() -> bool:
        return observer.is_interrupted and not all(design.point["problem"] for design in found.values())

    with contextlib.closing(workers.results(calls, cache.in_use if cache else None, is_ended)) as results:
        for place, design in results:
            found[waiting[place]] = design
            if cache and design.point["is_complete"]:
                cache.put(keys[waiting[place]], design)
            if not are_here:
                progress(len(found) - known_count, len(waiting))
    return TaskResults([found[index] for index in sorted(found)], known_count)


def _known(keys: Sequence[str], cache: ResultCache | None) -> Iterable[tuple[int, FoundDesign]]:
    """Yield the results that are known."""
    for index, key in enumerate(keys):
        if cache and (design := cache.get(key, (FoundDesign,))) is not None:
            yield index, design
