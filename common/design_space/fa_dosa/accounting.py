"""The accounting ``once``: each kernel moves each of its tensors once, whatever the buffer holds.

It is what FA-DOSA's own model charges: no capacity, no tiles, no halo. A kernel is a contraction with the operators
that are fused to it, or any other operator by itself. Its multiply-accumulates and its traffic overlap. The second
operand of a fused addition is read after that, because it is added to a finished result.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.single_buffer import SingleBuffer, single_buffer
from common.design_space.results.design_result import DesignResult, DesignTask, point_row
from common.design_space.search.fronts import SupportedPoint
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.design_space.search.settings import EXACT
from common.fusion.border import border
from common.graphs.operators import ADDITIONS, CONTRACTIONS
from common.graphs.source_graph import SourceGraph
from common.messages.errors import PipelineError, UnusableValueError
from common.table_rows import DesignGroupsRow, OpMetricsRow

NORMALIZATION = "BatchNormalization"
FOLDED = frozenset({NORMALIZATION})  # into the weights and one bias
ACTIVATED = FOLDED | {"Relu"}
ADDED = ACTIVATED | ADDITIONS
NOTE = (
    "accounting once: each kernel moves each of its tensors once, however small the buffer is, so its products are no "
    "bound on what a buffer of that size reaches: accounting tiled is"
)


@dataclass(frozen=True, slots=True)
class FaDosaKernel:
    """One kernel: its nodes, its multiply-accumulates, its traffic, and the operands that it adds afterwards."""

    nodes: tuple[str, ...]
    macs: int
    moved_bytes: int
    added_bytes: int


@dataclass(frozen=True, slots=True)
class FaDosaCost:
    """The cost of all kernels, one after the other."""

    moved_bytes: int
    cycles: float
    energy_pj: float

    @property
    def edp(self) -> float:
        """Energy-delay product, in picojoules times cycles."""
        return self.energy_pj * self.cycles


def fa_dosa_kernels(
    metrics: Iterable[OpMetricsRow], graph: SourceGraph, fused: Collection[str]
) -> tuple[FaDosaKernel, ...]:
    """Return the kernels of a model; a contraction takes ``fused`` operators along if they alone read its result."""
    rows = {row["source_node"]: row for row in metrics}
    taken: set[str] = set()
    kernels = []
    for name in graph.nodes:
        if name not in taken and not graph.is_free(name):
            nodes = _chain(graph, name, fused) if graph.nodes[name].op_type in CONTRACTIONS else (name,)
            taken.update(nodes)
            kernels.append(_kernel(graph, nodes, rows))
    return tuple(kernels)


def fa_dosa_cost(kernels: Iterable[FaDosaKernel], buffer: SingleBuffer) -> FaDosaCost:
    moved, cycles, energy_pj = 0, 0.0, 0.0
    for kernel in kernels:
        own = kernel.moved_bytes - kernel.added_bytes
        moved += kernel.moved_bytes
        cycles += buffer.cycles(kernel.macs, own) + buffer.cycles(0, kernel.added_bytes)
        energy_pj += buffer.energy_pj(kernel.macs, kernel.moved_bytes)
    return FaDosaCost(moved, cycles, energy_pj)


def _chain(graph: SourceGraph, head: str, fused: Collection[str]) -> tuple[str, ...]:
    """Return a contraction with the operators behind it; an addition goes to the last contraction that it reads."""
    nodes, tensor = [head], graph.nodes[head].outputs[0]
    while (reader := graph.sole_reader(tensor)) is not None and reader.op_type in fused and len(reader.outputs) == 1:
        producers = [graph.producer.get(name, "") for name in graph.variables(reader)]
        if any(graph.position.get(name, -1) > graph.position[nodes[-1]] for name in producers):
            break
        nodes.append(reader.name)
        tensor = reader.outputs[0]
    return tuple(nodes)


def _kernel(graph: SourceGraph, nodes: tuple[str, ...], rows: Mapping[str, OpMetricsRow]) -> FaDosaKernel:
    tensors = border(graph, nodes)
    first = {*graph.nodes[nodes[0]].inputs}
    constants = ([tensor for tensor in graph.nodes[name].inputs if tensor in graph.constants]
                 for name in nodes[1:] if graph.nodes[name].op_type == NORMALIZATION)  # fmt: skip
    folded = {constant for of_node in constants for constant in of_node[1:]}  # all but one, which is the bias
    sizes = {tensor.tensor: tensor.size_bytes or 0 for tensor in tensors if tensor.tensor not in folded}
    added = sum(sizes.get(read.tensor, 0) for read in tensors if read.role == "read" and read.tensor not in first)
    macs = sum(rows[name]["macs"] or rows[name]["upper_bound_macs"] or 0 for name in nodes)
    return FaDosaKernel(nodes, macs, sum(sizes.values()), added)


@dataclass(frozen=True, slots=True)
class FaDosaWorkload:
    """The kernels of a model, by what is fused to its contractions: nothing but their normalizations first."""

    kernels: tuple[tuple[FaDosaKernel, ...], ...]

    @classmethod
    def of(cls, metrics: Sequence[OpMetricsRow], graph: SourceGraph) -> FaDosaWorkload:
        """Return the kernels of a model; PipelineError if it has nothing to move or to compute."""
        kernels = tuple(fa_dosa_kernels(metrics, graph, fused) for fused in (FOLDED, ACTIVATED, ADDED))
        if not kernels[0]:
            raise PipelineError("op_metrics.csv", "no operator moves or computes anything", "choose another model")
        return cls(kernels)

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        return (NOTE,)

    def searched(self, design: DesignTask, observer: SearchObserver = UNOBSERVED) -> DesignResult:
        """Return the fusion of least product. There are three, and all are tried: nothing else changes a cost.

        An accelerator with other memories, or an engine that searches, is an UnusableValueError.
        """
        if design.search.engine != EXACT:
            problem = f"{design.search.engine} has nothing to search where no tile changes a cost"
            raise UnusableValueError("engine", problem, "accounting once takes exact")
        buffer, start_s = single_buffer(design.hardware), time.perf_counter()
        costs = {kernels: fa_dosa_cost(kernels, buffer) for kernels in self.kernels}
        chosen = min(costs, key=lambda kernels: costs[kernels].edp)
        search_s = time.perf_counter() - start_s
        point = point_row(
            design,
            SupportedPoint(costs[chosen].energy_pj, costs[chosen].cycles, None),
            None,
            best_of_space=costs[chosen].edp,
            unfused_edp=costs[self.kernels[0]].edp,
            evaluation_count=len(costs),
            is_complete=True,
        )
        groups = [_group_row(design.name, index, kernel, buffer) for index, kernel in enumerate(chosen)]
        return DesignResult(point, groups=groups, search_s=search_s)


def _group_row(design: str, index: int, kernel: FaDosaKernel, buffer: SingleBuffer) -> DesignGroupsRow:
    cost = fa_dosa_cost([kernel], buffer)
    return {
        "design": design,
        "group_index": index,
        "first_layer": kernel.nodes[0],
        "last_layer": kernel.nodes[-1],
        "layer_count": len(kernel.nodes),
        "tile_row_count": None,
        "tile_column_count": None,
        "halo": "",
        "resident_weight_count": None,
        "resident_tensor_count": 0,
        "dram_bytes": kernel.moved_bytes,
        "recomputed_share": 0.0,
        "modelled_cycles": cost.cycles,
        "modelled_energy_pj": cost.energy_pj,
        "energy_parts_pj": buffer.energy_parts_pj(kernel.macs, kernel.moved_bytes),
        "buffer_peak_bytes": None,
    }
