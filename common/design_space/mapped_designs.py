"""The best schedule of a model on accelerators with several memories: a mapping of each contraction, and what rests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.design_space.cost import cost
from common.design_space.found_design import MOST_NAMED, FoundDesign, Row, Search, point
from common.design_space.hardware import Hardware
from common.design_space.layer_search import MappedLayer, exact, random
from common.design_space.layer_ways import LayerPlaces, Places, way
from common.design_space.mapped_schedule import LayerStep, MappedSchedule, group_rows, mapping_rows
from common.design_space.mapping import parse_mappings
from common.design_space.model_layers import ModelLayer, model_layers
from common.design_space.resting import best_schedule
from common.design_space.traffic import Nests
from common.errors import PipelineError
from common.names import listed
from common.source_graph import SourceGraph
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph
from common.workload.nest_rows import nests_by_node, require_bound


@dataclass(frozen=True, slots=True)
class MappedWorkload:
    """The layers of a model, and its contractions.

    Attributes:
        graph: the layers of the model, in elements.
        layers: the same, as an accelerator runs them.
        element_bits: of the elements of the contractions in the model.
    """

    graph: LayerGraph
    layers: tuple[ModelLayer, ...]
    element_bits: frozenset[int]

    @classmethod
    def of(cls, metrics: Sequence[Row], graph: SourceGraph) -> MappedWorkload:
        """Return the layers of a model.

        Raises:
            UpstreamError: dimensions of the model are unbound.
            PipelineError: the model has nothing to map.
        """
        require_bound(metrics)
        layers, several = model_layers(metrics, graph)
        if not any(layer.nests for layer in several):
            remedy = "an accelerator with one buffer takes any operator"
            raise PipelineError("op_metrics.csv", "no operator is a loop nest", remedy)
        nests = [nest for of_node in nests_by_node(metrics, graph).values() for nest in of_node]
        return cls(layers, several, frozenset(bits for nest in nests for bits in nest.operand_bits.values()))

    @property
    def nests(self) -> dict[str, LoopNest]:
        """The contractions, by the node's name and the number of its nest."""
        return {name: nest for layer in self.layers for name, nest in layer.nests.items()}

    @property
    def runs(self) -> dict[str, int]:
        """How often each contraction runs in one inference."""
        return {name: layer.layer.passes for layer in self.layers for name in layer.nests}

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what counts as traffic alone, and what counts with other words than the model's."""
        return (*_outside_notes(self.layers), *self._word_notes(hardware))

    def found(self, design: str, hardware: Hardware, search: Search) -> FoundDesign:
        """Return the schedule that the search finds on an accelerator.

        Raises:
            NothingFitsError: a layer has no tile that fits.
        """
        alone = exact(self.nests, hardware, runs=self.runs)
        optimum = best_schedule(self.graph, self.layers, hardware, keeps=search.most_layers > 1)
        found = optimum
        if search.engine != "exact":
            drawn = random(self.nests, hardware, search.evaluations, search.seed, runs=self.runs)
            texts = {name: layer.mapping for name, layer in drawn.layers.items()}
            found = self.layer_by_layer(texts, hardware, drawn.evaluations)
        unfused = best_schedule(self.graph, self.layers, hardware, keeps=False)
        row = point(design, hardware, search, found, optimum.edp) | {
            "contraction_edp_pj_cycles": alone.edp,
            "unfused_edp_pj_cycles": unfused.edp,
            "mapping_count": found.evaluations,
        }
        return FoundDesign(
            row,
            mappings=[{"design": design, **mapped} for mapped in mapping_rows(found, hardware)],
            groups=[
                {"design": design, "group_index": index, **group}
                for index, group in enumerate(group_rows(found, hardware))
            ],
        )

    def layer_by_layer(self, mappings: Mapping[str, str], hardware: Hardware, evaluations: int) -> MappedSchedule:
        """Return the schedule in which nothing rests on the chip.

        Args:
            mappings: of each contraction, by its name.
            hardware: the accelerator.
            evaluations: mappings whose costs were computed to find them.
        """
        sizes = LayerPlaces(self.graph, self.layers, hardware, keeps=False).sizes
        steps = []
        for layer in self.layers:
            chosen = way(layer, Places(), hardware, sizes)
            mapped = {}
            for name, nest in layer.nests.items():
                batch = parse_mappings([mappings[name]], hardware)
                result = cost(batch, Nests.of([nest]), hardware, placement=chosen.setting[0])
                costs = float(result.cycles[0]), float(result.energy_pj[0])
                mapped[name] = MappedLayer(nest, mappings[name], *costs, chosen.runs)
            steps.append(LayerStep(layer, chosen, mapped))
        return MappedSchedule(steps, evaluations)

    def _word_notes(self, hardware: Hardware) -> Iterator[str]:
        """Yield that the elements of the model are not those of the accelerator."""
        word_bits = 8 * hardware.levels[0].word_bytes
        if widths := sorted(self.element_bits - {word_bits}):
            theirs = " and ".join(map(str, widths))
            yield f"{hardware.name} keeps every element in {word_bits} bits, where the model has {theirs}"


def _outside_notes(layers: Sequence[ModelLayer]) -> Iterator[str]:
    """Yield which layers have no loop nest."""
    outside = dict.fromkeys("+".join(layer.layer.op_types) for layer in layers if not layer.nests)
    if outside:
        yield f"no loop nests, so they count as traffic: {listed(outside, MOST_NAMED)}"
    multiplying = [layer.layer.name for layer in layers if layer.macs]
    if multiplying:
        yield f"{listed(multiplying, MOST_NAMED)} multiply, but are no loop nests: the whole array does their work"
