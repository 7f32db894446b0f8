"""Accelerators that are evaluated for a model, as rows of tables: the best schedule on each, and its lower bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.accelerator.single_buffer import has_single_buffer, single_buffer
from common.design_space.fa_dosa.seed_workload import SeedWorkload
from common.design_space.hierarchy.hierarchy_workload import MappedWorkload
from common.design_space.results.found_design import FoundDesign, Row
from common.design_space.search.settings import FA_DOSA, SEED, Search
from common.design_space.single_buffer.fused_workload import FusedWorkload
from common.design_space.tasks import DesignTask, ModelWorkload, TaskResults
from common.source_graph import SourceGraph


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Designs that were evaluated.

    Attributes:
        designs: what was found on each; on one of them at least.
        known_count: how many of them were known from earlier runs.
        notes: what does not count, or counts as traffic alone, and what no schedule may do.
    """

    designs: Sequence[FoundDesign]
    notes: tuple[str, ...]
    known_count: int


def evaluate(
    designs: Mapping[str, Hardware],
    metrics: Sequence[Row],
    graph: SourceGraph,
    searches: Sequence[Search],
    run: Callable[[ModelWorkload, Sequence[DesignTask]], TaskResults],
) -> Evaluated:
    """Return the best schedule of a model on each of some designs of one accelerator, by each of some searches.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer. A design on
    which nothing fits has a row that says so. After an interruption, designs that were not begun have none.

    Args:
        designs: the accelerator with different sizes, by name.
        metrics: rows of op_metrics.
        graph: the same model's graph.
        searches: how to search, all with one accounting.
        run: runs tasks, as :func:`common.design_space.tasks.results_of` does.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        NothingFitsError: no design has a schedule that fits.
        UnusableValueError: there is no such search on this accelerator, or the evaluations do not suffice.
        PipelineError: the model has nothing to map, or the package of an engine is not installed.
    """
    first = next(iter(designs.values()))
    workload = _kind(first, searches).of(metrics, graph)
    pairs = product(designs.items(), searches)
    done = run(workload, [DesignTask(design, hardware, search) for (design, hardware), search in pairs])
    problems = [found.point["problem"] for found in done.designs]
    if all(problems):
        raise NothingFitsError("hardware, sweep", problems[0], "give larger memories")
    limits = dict.fromkeys(found.limit for found in done.designs if found.limit)
    notes = (f"too many states: {limit}, in the schedules and in their bound" for limit in limits)
    return Evaluated(done.designs, (*workload.notes(first), *notes), done.known_count)


def _kind(
    hardware: Hardware, searches: Sequence[Search]
) -> type[FusedWorkload] | type[MappedWorkload] | type[SeedWorkload]:
    """Return what is searched on an accelerator.

    Raises:
        UnusableValueError: the seed's accounting and FA-DOSA's algorithm need one buffer.
    """
    if any(search.accounting == SEED or search.engine == FA_DOSA for search in searches):
        single_buffer(hardware)  # refuses other memories
    if searches[0].accounting == SEED:
        return SeedWorkload
    return FusedWorkload if has_single_buffer(hardware) else MappedWorkload
