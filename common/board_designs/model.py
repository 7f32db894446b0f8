"""A model as both sides of a board search see it: loop nests for the cost, tasks for the arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.board_designs.array_runs import Energies
from common.fpga.array_designs import ArrayBuilder
from common.fpga.coefficients import Models
from common.fpga.device.board import AI_ENGINE_FORMATS, Board
from common.fpga.device.resources import RESOURCE_NAMES, UNLIMITED, Resources
from common.fpga.engine_catalogue import ServedTasks
from common.fusion.groups import fuse
from common.graphs.source_graph import SourceGraph
from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted
from common.table_rows import OpMetricsRow
from common.workload.layer_rows import layers_by_node
from common.workload.loop_nests import LoopNest
from common.workload.nest_rows import nests_by_node, require_bound, runs_of
from common.workload.task_candidates import task_candidates

REGIONS = "regions"


@dataclass(frozen=True, slots=True)
class BoardModel:
    """A model that is to run on arrays of a board: its contractions, and how often each runs."""

    nests: Counter[LoopNest]
    builder: ArrayBuilder
    energies: Energies

    @classmethod
    def of(
        cls,
        metrics: Sequence[OpMetricsRow],
        graph: SourceGraph,
        board: Board,
        precision: str,
        models: Models,
        limits: Resources = UNLIMITED,
    ) -> BoardModel:
        """Return a model on a board.

        Raises:
            UpstreamError: dimensions of the model are unbound.
            PipelineError: the model has no contraction.
            UnusableValueError: the board has no rate for the precision, or computes it outside of its DSPs.
        """
        require_bound(metrics)
        require_precision(board, precision)
        by_node, bodies = nests_by_node(metrics, graph), frozenset(row["source_node"] for row in metrics if row["body"])
        nests = Counter[LoopNest]()
        for row in metrics:
            for nest in by_node[row["source_node"]]:
                nests[nest] += runs_of(row)
        if not nests:
            raise PipelineError("op_metrics.csv", "no operator is a loop nest", "an array computes contractions alone")
        candidates = task_candidates(graph, fuse(graph), layers_by_node(metrics, graph), precision, bodies)
        served = ServedTasks.of(candidate.task for candidate in candidates if candidate.task is not None)
        energy = models.energy
        energies = Energies(
            2 * energy.compute_pj_per_flop[precision].likely,
            energy.memory(board.memory.kind).likely,
            energy.memory_pj_per_byte["on_chip"].likely,
        )
        return cls(nests, ArrayBuilder(board, precision, models, served, limits), energies)


def require_precision(board: Board, precision: str) -> None:
    """Raise UnusableValueError for a format that a board has no rate for, or computes in other processors."""
    if precision not in board.macs_per_dsp:
        known = ", ".join(board.macs_per_dsp)
        raise UnusableValueError("precision", f"{board.name} gives no rate for {quoted(precision)}", f"known: {known}")
    if board.ai_engines is not None and precision in AI_ENGINE_FORMATS:
        problem = f"{board.name} computes {precision} in its AI engines, which have no model"
        raise UnusableValueError("board, precision", problem, "give another board, or bf16")


def read_budget(text: str, board: Board) -> tuple[Board, Resources]:
    """Return a board and the most that an array may take of it, from a text: ``dsp=2000,memory_channels=8,regions=1``.

    ``regions`` keeps so many regions of the board, those with the most DSPs. UnusableValueError if it is no such text.
    """
    amounts: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        name, _, amount = word.strip().partition("=")
        if name not in (*RESOURCE_NAMES, REGIONS) or name in amounts or not amount.isdecimal() or not int(amount):
            problem = f"{quoted(word)} is no budget, or is there twice"
            raise UnusableValueError(
                "board_budget", problem, f"write NAME=N, of {', '.join((*RESOURCE_NAMES, REGIONS))}"
            )
        amounts[name] = float(amount)
    return board.of_regions(int(amounts.pop(REGIONS, len(board.regions)))), replace(UNLIMITED, **amounts)
