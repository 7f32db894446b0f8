"""The best mapping of each contraction of a model on accelerators with several memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.design_space.cost import TIMELOOP, MappingCost, cost
from common.design_space.found_design import MOST_NAMED, FoundDesign, Row, Search, point
from common.design_space.hardware import Hardware
from common.design_space.layer_search import MappedNetwork, exact, random
from common.design_space.mapped_rows import WORD_DIGITS
from common.design_space.mapping import parse_mappings
from common.design_space.traffic import Nests
from common.errors import PipelineError
from common.names import listed
from common.source_graph import SourceGraph
from common.workload.loop_nests import RELEVANT_LOOPS, LoopNest
from common.workload.nest_rows import nests_by_node, require_bound, runs_of


@dataclass(frozen=True, slots=True)
class MappedWorkload:
    """The contractions of a model.

    Attributes:
        nests: by the node's name and the number of its nest.
        runs: how often each runs in one inference.
        outside: rows of op_metrics without a loop nest.
    """

    nests: Mapping[str, LoopNest]
    runs: Mapping[str, int]
    outside: Sequence[Row]

    @classmethod
    def of(cls, metrics: Sequence[Row], graph: SourceGraph) -> MappedWorkload:
        """Return the contractions of a model.

        Raises:
            UpstreamError: dimensions of the model are unbound.
            PipelineError: the model has nothing to map.
        """
        require_bound(metrics)
        rows = {row["source_node"]: row for row in metrics}
        found = {node: nests for node, nests in nests_by_node(metrics, graph).items() if _are_all(rows[node], nests)}
        nests = {f"{node}.{index}": nest for node, several in found.items() for index, nest in enumerate(several)}
        if not nests:
            remedy = "an accelerator with one buffer takes any operator"
            raise PipelineError("op_metrics.csv", "no operator is a loop nest", remedy)
        runs = {name: runs_of(rows[name.rpartition(".")[0]]) for name in nests}
        return cls(nests, runs, [row for node, row in rows.items() if not found.get(node) and not graph.is_free(node)])

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what does not count, and what counts with other words than the model's."""
        return (*_outside_notes(self.outside), *self._word_notes(hardware))

    def found(self, design: str, hardware: Hardware, search: Search) -> FoundDesign:
        """Return the mappings that the search finds on an accelerator.

        Raises:
            NothingFitsError: a layer has no tile that fits.
        """
        network, bound = self._searched(hardware, search)
        row = point(design, hardware, search, network, bound) | {"mapping_count": network.evaluations}
        return FoundDesign(row, mappings=[{"design": design, **mapped} for mapped in mapping_rows(network, hardware)])

    def _searched(self, hardware: Hardware, search: Search) -> tuple[MappedNetwork, float]:
        """Return what the search finds, and the least product of the space."""
        optimum = exact(self.nests, hardware, runs=self.runs)
        if search.engine == "exact":
            return optimum, optimum.edp
        return random(self.nests, hardware, search.evaluations, search.seed, runs=self.runs), optimum.edp

    def _word_notes(self, hardware: Hardware) -> Iterator[str]:
        """Yield that the elements of the model are not those of the accelerator."""
        word_bits = 8 * hardware.levels[0].word_bytes
        widths = sorted({bits for nest in self.nests.values() for bits in nest.operand_bits.values()} - {word_bits})
        if widths:
            theirs = " and ".join(map(str, widths))
            yield f"{hardware.name} keeps every element in {word_bits} bits, where the model has {theirs}"


def _are_all(row: Row, nests: Sequence[LoopNest]) -> bool:
    """Return whether the nests of a node are all that it multiplies."""
    return runs_of(row) * sum(nest.macs for nest in nests) == (row["macs"] or row["upper_bound_macs"] or 0)


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
