"""How long a card takes for a whole prompt: its products on a systolic array, as the plan of any network has them.

One array computes all products with weights. Beside it are an attention kernel, a row-wise kernel, and the kernel of
decode: an engine of GEMV for each port of the memory but that of the vector. The phases never run at the same time, so
they share the ports. All kernels fit the board together, and one that cannot span regions of the board fits one of
them. Groups run one after the other, each on the kernel that takes the least time. What no kernel computes takes the
time of its MACs at the array's rate, or of its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

from common.fpga.coefficients import Models
from common.fpga.device.board import AI_ENGINE_FORMATS, Board
from common.fpga.device.resources import Resources, total
from common.fpga.engine_catalogue import engines_for, streaming
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine, scattered, widened
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.planning.board_rows import WHOLE_BOARD
from common.fusion.border import border
from common.fusion.groups import fuse
from common.graphs.source_graph import SourceGraph
from common.intervals import ThreePoint, combine, summed
from common.table_rows import OpMetricsRow
from common.workload.flows import bytes_by_role, scales
from common.workload.layer_rows import layers_by_node
from common.workload.task_candidates import task_candidates
from common.workload.tasks import Task

# The format in which an array computes, by that of the weights: int4 weights are widened on their way.
ARRAY_FORMATS: Mapping[str, str] = {"bf16": "bf16", "int8": "int8", "int4": "int8"}
BESIDE = ("attention", "rowwise")  # kernels that a prompt needs beside its array, one of each


@dataclass(frozen=True)
class CallWork:
    """What a call computes: tasks of kernels with their counts, and MACs and bytes of what no kernel computes."""

    tasks: Counter[Task] = field(default_factory=Counter)
    other_macs: int = 0
    other_bytes: int = 0

    def __add__(self, more: CallWork) -> CallWork:
        return CallWork(self.tasks + more.tasks, self.other_macs + more.other_macs, self.other_bytes + more.other_bytes)


@dataclass(frozen=True, slots=True)
class PromptPlan:
    engines: tuple[str, ...]  # names, the array first
    time_us: ThreePoint  # of the whole call, in three cases
    # The region of the board that holds each engine; ``board`` for one that spans several
    regions: tuple[str, ...] = ()


def call_work(
    metrics: Sequence[OpMetricsRow], graph: SourceGraph, precision: str, head: Collection[str], *, of_head: bool
) -> CallWork:
    """Return the work of a call's head (``of_head``), or of all the rest.

    Args:
        metrics: rows of op_metrics at the sizes of the call.
        head: nodes of the head, which computes the last token of a prompt alone.
    """
    groups, work, rows = fuse(graph), CallWork(), {row["source_node"]: row for row in metrics}
    bodies = frozenset(name for name, row in rows.items() if row["body"])
    candidates = task_candidates(graph, groups, layers_by_node(metrics, graph), precision, bodies)
    for group, candidate in zip(groups, candidates, strict=False):  # chains come after the groups
        if (not set(head).isdisjoint(group.nodes)) != of_head:
            continue
        if candidate.task is not None:
            work += CallWork(Counter([candidate.task.nameless]))
        elif not all(map(graph.is_free, group.nodes)):
            moved = bytes_by_role(border(graph, group.nodes), precision, scales(graph)) or {}
            macs = sum(rows[name]["macs"] or rows[name]["upper_bound_macs"] or 0 for name in group.nodes)
            work += CallWork(other_macs=macs, other_bytes=sum(moved.values()))
    return work


def decode_kernel(board: Board, weight_format: str, models: Models) -> StreamingGemv | None:
    """Return engines of GEMV on all ports of the memory but that of the vector; None where they do not fit."""
    kernel = streaming(board, weight_format, models, max(1, board.memory_port_count - 1))
    return kernel if kernel.resources.fits(_without_channels(board.total_budget)) else None


def prompt_plan(
    work: CallWork, board: Board, precision: str, models: Models, weight_format: str | None = None
) -> PromptPlan | None:
    """Return the engines with the least time for a prompt; None where the board has no array in this format.

    The kernel of decode reads weights in ``weight_format``; by default in the array's.
    """
    if precision not in board.macs_per_dsp or (board.ai_engines is not None and precision in AI_ENGINE_FORMATS):
        return None
    decoding = decode_kernel(board, weight_format or precision, models)
    if decoding is None:
        return None
    engines = engines_for(board, precision, models, list(work.tasks))
    sets = [*_sets(engines, board, decoding.resources)]
    # A set that leaves out a kernel is only for a board on which the kernel has no room.
    computed = [sum(any(engine.estimate(task) for engine in chosen) for task in work.tasks) for chosen in sets]
    plans = [_plan(chosen, work, board) for chosen, count in zip(sets, computed, strict=True) if count == max(computed)]
    return min(plans, key=lambda plan: plan.time_us.likely, default=None)


def regions_of(engines: Sequence[Engine], board: Board) -> tuple[str, ...] | None:
    """Return a region for each engine, so that each holds what is in it: the first choice; None if there is none.

    As in any plan, an engine that may span regions counts for the whole board only.
    """
    bound = [engine for engine in engines if not engine.spans_regions]
    for chosen in product(board.regions, repeat=len(bound)):
        placed = [*zip(bound, chosen, strict=True)]
        held = {of: total(one.resources for one, region in placed if region is of) for of in chosen}
        if all(needed.fits(_without_channels(board.budget(of))) for of, needed in held.items()):
            names = iter(region.name for region in chosen)
            return tuple(WHOLE_BOARD if engine.spans_regions else next(names) for engine in engines)
    return None


def _without_channels(budget: Resources) -> Resources:
    return replace(budget, memory_channels=inf)


def _sets(engines: Sequence[Engine], board: Board, decoding: Resources) -> Iterator[tuple[Engine, ...]]:
    """Yield an array with at most one kernel of each other kind, as far as all fit the board with those of decode."""
    arrays = [(engine,) for engine in engines if isinstance(engine, SystolicArray)]
    others: list[list[tuple[Engine, ...]]] = [
        [(), *((engine,) for engine in engines if engine.kind == kind)] for kind in BESIDE
    ]
    budget = _without_channels(board.total_budget)
    for parts in product(arrays, *others):
        chosen: tuple[Engine, ...] = sum(parts, ())
        if total([decoding, *(engine.resources for engine in chosen)]).fits(budget) and regions_of(chosen, board):
            yield chosen


def _plan(engines: tuple[Engine, ...], work: CallWork, board: Board) -> PromptPlan:
    array = engines[0]
    assert isinstance(array, SystolicArray)
    times, macs, moved = [], work.other_macs, work.other_bytes
    for task, count in work.tasks.items():
        estimates = [one for engine in engines if (one := engine.estimate(task)) is not None]
        if estimates:
            best = min(estimates, key=lambda estimate: estimate.time_us.likely).time_us
            times.append(combine(lambda us, count=count: us * count, best))
        else:
            macs, moved = macs + count * task.macs, moved + count * task.border_bytes
    time_us = summed([*times, _other_us(array, board, macs, moved)])
    return PromptPlan(tuple(engine.name for engine in engines), time_us, regions_of(engines, board) or ())


def _other_us(array: SystolicArray, board: Board, macs: int, moved: int) -> ThreePoint:
    """Return the time of MACs at the array's rate, or of bytes at the memory's, whichever is more."""
    ideal_us = macs / array.peak_macs_per_cycle / array.clock_mhz
    band = widened(array.scatter.band, array.ports.clock_factors)
    computing = scattered(ideal_us / array.timing.array_share, band, ideal_us)
    moving = combine(lambda share: moved / (board.memory.bytes_per_s * share) * 1e6, board.memory.efficiency)
    return combine(max, computing, moving)
