"""Designs as tasks, independent of each other: the best schedule of a model on each accelerator, and its lower bound.

A result that is known from an earlier run is not computed again. Results are kept one by one as they come, so a killed
run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.accelerator.single_buffer import has_single_buffer, single_buffer
from common.design_space.fa_dosa.accounting import FaDosaWorkload
from common.design_space.hierarchy.workload import HierarchyWorkload
from common.design_space.results.cache import ResultCache, key_of
from common.design_space.results.design_result import DesignResult, DesignTask, misfit
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.design_space.search.settings import FA_DOSA, ONCE, Search
from common.design_space.single_buffer.workload import FusedWorkload
from common.graphs.source_graph import SourceGraph
from common.table_rows import OpMetricsRow
from common.workers import Workers

Progress = Callable[[float, float], None]
ModelWorkload = FaDosaWorkload | FusedWorkload | HierarchyWorkload  # a model, as a kind of accelerator sees it


@dataclass(frozen=True, slots=True)
class DesignResults:
    """Results of some designs."""

    designs: Sequence[DesignResult]  # in the order of the designs; those that an interruption left undone are missing
    known_count: int  # how many of them were known from earlier runs
    notes: tuple[str, ...] = ()  # what does not count, or counts as traffic alone, and what no schedule may do


def evaluate(
    variants: Mapping[str, Hardware],
    metrics: Sequence[OpMetricsRow],
    graph: SourceGraph,
    searches: Sequence[Search],
    run: Callable[[ModelWorkload, Sequence[DesignTask]], DesignResults],
) -> DesignResults:
    """Return the best schedule of a model on each variant of one accelerator, by each of some searches.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer. A design on
    which nothing fits has a row that says so. After an interruption, designs that were not begun have none.

    Args:
        variants: the accelerator with different sizes, by name.
        searches: how to search, all with one accounting.
        run: runs the designs, as :func:`results_of` does.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        NothingFitsError: no design has a schedule that fits.
        UnusableValueError: there is no such search on this accelerator, or the evaluations do not suffice.
        PipelineError: the model has nothing to map, or the package of an engine is not installed.
    """
    hardware = next(iter(variants.values()))
    if any(search.accounting == ONCE or search.engine == FA_DOSA for search in searches):
        single_buffer(hardware)  # refuses other memories
    kind = FusedWorkload if has_single_buffer(hardware) else HierarchyWorkload
    workload = (FaDosaWorkload if searches[0].accounting == ONCE else kind).of(metrics, graph)
    results = run(
        workload, [DesignTask(name, variant, how) for (name, variant), how in product(variants.items(), searches)]
    )
    problems = [result.point["problem"] for result in results.designs]
    if all(problems):
        raise NothingFitsError("hardware, sweep", problems[0], "give larger memories")
    limits = dict.fromkeys(result.limit for result in results.designs if result.limit)
    notes = (f"too many states: {limit}, in the schedules and in their bound" for limit in limits)
    return DesignResults(results.designs, results.known_count, (*notes, *workload.notes(hardware)))


def results_of(
    workload: ModelWorkload,
    designs: Sequence[DesignTask],
    cache: ResultCache | None,
    workers: Workers,
    observer: SearchObserver,
    progress: Progress,
) -> DesignResults:
    """Return the results of designs, those that are not known from the workers.

    An interruption ends the work once a schedule was found. A search that was cut short is not kept. A worker that is
    gone is a PipelineError.

    Args:
        cache: results of earlier runs; None to know none.
        observer: of the searches that this process makes; it may end all of them.
        progress: hears how many designs are done elsewhere, and of how many.
    """
    model = key_of(workload) if cache else ""
    keys = [key_of(model, design) for design in designs] if cache else []
    found = ((index, cache.get(key, (DesignResult,))) for index, key in enumerate(keys)) if cache else ()
    results: dict[int, DesignResult] = {index: result for index, result in found if result is not None}
    known_count = len(results)
    waiting = [index for index in range(len(designs)) if index not in results]
    are_here = workers.are_here(len(waiting))
    observed = {"observer": observer} if are_here else {}
    calls = [partial(searched, workload, designs[index], **observed) for index in waiting]

    def is_ended() -> bool:
        return observer.is_interrupted and not all(result.point["problem"] for result in results.values())

    with contextlib.closing(workers.results(calls, cache.in_use if cache else None, is_ended)) as computed:
        for place, result in computed:
            results[waiting[place]] = result
            if cache and result.point["is_complete"]:
                cache.put(keys[waiting[place]], result)
            if not are_here:
                progress(len(results) - known_count, len(waiting))
    return DesignResults([results[index] for index in sorted(results)], known_count)


def searched(workload: ModelWorkload, design: DesignTask, observer: SearchObserver = UNOBSERVED) -> DesignResult:
    """Return what is found for a design; one on which nothing fits says so."""
    try:
        design.hardware.require_room()
        return workload.searched(design, observer)
    except NothingFitsError as error:
        return misfit(design, error.problem)
