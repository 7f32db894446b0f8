"""Accelerators that are evaluated for a model, as rows of tables: the best schedule on each, and its lower bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.design_space.bound import lower_bound
from common.design_space.cost import TIMELOOP, MappingCost, cost
from common.design_space.fronts import Corner, best
from common.design_space.fusion import fused_front
from common.design_space.group_rows import group_rows
from common.design_space.hardware import Hardware
from common.design_space.layer_search import MappedNetwork, exact, random
from common.design_space.mapped_rows import WORD_DIGITS
from common.design_space.mapping import parse_mappings
from common.design_space.single_buffer import has_single_buffer, single_buffer
from common.design_space.traffic import Nests
from common.errors import PipelineError, UnusableValueError
from common.names import listed
from common.source_graph import SourceGraph
from common.workload.loop_nests import RELEVANT_LOOPS, LoopNest
from common.workload.map_layers import layer_graph
from common.workload.nest_rows import nests_by_node, require_bound, runs_of

ENGINES = ("exact", "random")
MOST_NAMED = 6
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """How the best schedule is searched.

    Attributes:
        engine: ``exact``, or ``random`` mappings.
        evaluations: random mappings of each distinct layer.
        seed: of the random mappings.
        most_layers: of a fused group.
    """

    engine: str = "exact"
    evaluations: int = 1000
    seed: int = 0
    most_layers: int = 6


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Designs that were evaluated.

    Attributes:
        points: a row for each design.
        mappings: a row for each contraction, where layers were mapped one by one.
        groups: a row for each group, where layers were fused.
        notes: what does not count, or counts as traffic alone.
    """

    points: list[Row]
    mappings: list[Row]
    groups: list[Row]
    notes: tuple[str, ...]

    @property
    def best(self) -> Row:
        """The design of the least energy-delay product."""
        return min(self.points, key=lambda point: point["edp_pj_cycles"])


def evaluate(designs: Mapping[str, Hardware], metrics: Sequence[Row], graph: SourceGraph, search: Search) -> Evaluated:
    """Return the best schedule of a model on each of some designs of one accelerator.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer.

    Args:
        designs: the accelerator with different sizes, by name.
        metrics: rows of op_metrics.
        graph: the same model's graph.
        search: how to search.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        UnusableValueError: a layer has no tile that fits, or there is no such search on this accelerator.
        PipelineError: the model has nothing to map.
    """
    first = next(iter(designs.values()))
    return (_fused if has_single_buffer(first) else _mapped)(designs, metrics, graph, search)


# --- fused groups ---------------------------------------------------------------------------------------------------


def _fused(designs: Mapping[str, Hardware], metrics: Sequence[Row], graph: SourceGraph, search: Search) -> Evaluated:
    if search.engine != "exact":
        problem = f"{search.engine} mappings are not drawn of fused groups"
        raise UnusableValueError("engine", problem, "exact searches accelerators with one buffer")
    layers = layer_graph(metrics, graph)
    if not layers.layers:
        raise PipelineError("op_metrics.csv", "no operator moves or computes anything", "choose another model")
    points: list[Row] = []
    groups: list[Row] = []
    for design, hardware in designs.items():
        buffer = single_buffer(hardware)
        fused = best(fused_front(layers, buffer, most_layers=search.most_layers))
        unfused = best(fused_front(layers, buffer, most_layers=1))
        bound = lower_bound(layers, buffer).edp
        points.append(_point(design, hardware, search, fused, bound) | {"unfused_edp_pj_cycles": unfused.edp})
        rows = enumerate(group_rows(layers, fused, buffer))
        groups += [{"design": design, "group_index": index, **row} for index, row in rows]
    outside = dict.fromkeys(layer.outside for layer in layers.layers if layer.outside)
    notes = (f"beside contractions and pools: {listed(outside, MOST_NAMED)}",) if outside else ()
    return Evaluated(points, [], groups, notes)


# --- mapped layers --------------------------------------------------------------------------------------------------


def _mapped(designs: Mapping[str, Hardware], metrics: Sequence[Row], graph: SourceGraph, search: Search) -> Evaluated:
    require_bound(metrics)
    rows = {row["source_node"]: row for row in metrics}
    found = {node: nests for node, nests in nests_by_node(metrics, graph).items() if _are_all(rows[node], nests)}
    nests = {f"{node}.{index}": nest for node, several in found.items() for index, nest in enumerate(several)}
    if not nests:
        remedy = "an accelerator with one buffer takes any operator"
        raise PipelineError("op_metrics.csv", "no operator is a loop nest", remedy)
    runs = {name: runs_of(rows[name.rpartition(".")[0]]) for name in nests}
    points: list[Row] = []
    mappings: list[Row] = []
    for design, hardware in designs.items():
        network, bound = _searched(nests, hardware, search, runs)
        points.append(_point(design, hardware, search, network, bound) | {"mapping_count": network.evaluations})
        mappings += [{"design": design, **row} for row in mapping_rows(network, hardware)]
    outside = [row for node, row in rows.items() if not found.get(node) and not graph.is_free(node)]
    notes = (*_outside_notes(outside), *_word_notes(nests.values(), next(iter(designs.values()))))
    return Evaluated(points, mappings, [], notes)


def _are_all(row: Row, nests: Sequence[LoopNest]) -> bool:
    """Return whether the nests of a node are all that it multiplies."""
    return runs_of(row) * sum(nest.macs for nest in nests) == (row["macs"] or row["upper_bound_macs"] or 0)


def _searched(
    nests: Mapping[str, LoopNest], hardware: Hardware, search: Search, runs: Mapping[str, int]
) -> tuple[MappedNetwork, float]:
    """Return what the search finds, and the least product of the space."""
    optimum = exact(nests, hardware, runs=runs)
    if search.engine == "exact":
        return optimum, optimum.edp
    return random(nests, hardware, search.evaluations, search.seed, runs=runs), optimum.edp


def mapping_rows(network: MappedNetwork, hardware: Hardware) -> Iterator[Row]:
    """Yield a row for each mapped layer, whose name ends in the number of its nest; figures are those of one run."""
    layers = [*network.layers.values()]
    mappings = parse_mappings([layer.mapping for layer in layers], hardware)
    result = cost(mappings, Nests.of([layer.nest for layer in layers]), hardware, accounting=TIMELOOP)
    for index, (name, layer) in enumerate(network.layers.items()):
        node, _, number = name.rpartition(".")
        yield {
            "source_node": node,
            "nest_index": int(number),
            "execution_count": layer.runs,
            "macs": layer.nest.macs,
            "mapping": layer.mapping,
            "array_use_share": layer.nest.macs / (layer.cycles * hardware.array.elements),
            **_dram_bytes(result, index, hardware),
            "modelled_cycles": layer.cycles,
            "modelled_energy_pj": layer.energy_pj,
            "energy_parts_pj": _energy_parts(result, index, hardware),
        }


def _dram_bytes(result: MappingCost, index: int, hardware: Hardware) -> Row:
    """Return the bytes that each operand of a layer reads and writes at DRAM."""
    words = {
        operand: sum(float(moved[0][operand][index]) for moved in (result.reads, result.writes) if operand in moved[0])
        for operand in RELEVANT_LOOPS
    }
    word_bytes = hardware.levels[0].word_bytes
    return {f"dram_{operand}_bytes": round(count * word_bytes, WORD_DIGITS) for operand, count in words.items()}


def _energy_parts(result: MappingCost, index: int, hardware: Hardware) -> dict[str, float]:
    """Return the energy of the multipliers and of each memory for one layer."""
    names = ("multipliers", *(level.name for level in hardware.levels))
    return {name: float(part[index]) for name, part in zip(names, result.energy_parts_pj, strict=True)}


def _outside_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what is no loop nest: it has neither time nor energy here."""
    counts = Counter(row["op_type"] for row in rows)
    if counts:
        named = listed((f"{count} {op_type}" for op_type, count in counts.most_common()), MOST_NAMED)
        yield f"contractions alone are mapped; without time and energy here: {named}"
    multiplying = [row["source_node"] for row in rows if row["macs"] or row["upper_bound_macs"]]
    if multiplying:
        yield f"{listed(multiplying, MOST_NAMED)} multiply, but are no loop nests: their work is left out"


def _word_notes(nests: Iterable[LoopNest], hardware: Hardware) -> Iterator[str]:
    """Yield that the elements of the model are not those of the accelerator."""
    word_bits = 8 * hardware.levels[0].word_bytes
    widths = sorted({bits for nest in nests for bits in nest.operand_bits.values()} - {word_bits})
    if widths:
        theirs = " and ".join(map(str, widths))
        yield f"{hardware.name} keeps every element in {word_bits} bits, where the model has {theirs}"


# --- both -----------------------------------------------------------------------------------------------------------


def _point(design: str, hardware: Hardware, search: Search, found: Corner[Any] | MappedNetwork, bound: float) -> Row:
    """Return the row of a design; what only one kind of accelerator has is empty."""
    sizes = {level.name: level.capacity_kib * hardware.copies(level) for level in hardware.levels if level.capacity_kib}
    return {
        "design": design,
        "hardware": hardware.name,
        "search_engine": search.engine,
        "array_row_count": hardware.array.rows,
        "array_column_count": hardware.array.columns,
        "memory_sizes_kib": sizes,
        "chip_mm2": hardware.area_mm2,
        "modelled_cycles": found.cycles,
        "modelled_energy_pj": found.energy_pj,
        "edp_pj_cycles": found.edp,
        "bound_edp_pj_cycles": bound,
        "gap_share": max(0.0, found.edp / bound - 1) if bound else 0.0,
        "unfused_edp_pj_cycles": None,
        "mapping_count": None,
    }
