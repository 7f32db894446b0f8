"""The best schedule of a model on accelerators with several memories: mapped contractions, and resident tensors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.best_schedule import best_schedule
from common.design_space.hierarchy.execution_options import ExecutionOption, LayerPlaces, Places, execution_option
from common.design_space.hierarchy.model_layers import ModelLayer, model_layers
from common.design_space.hierarchy.row_tiles import MOST_ROW_TILED_LAYERS
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule, group_rows, mapping_rows
from common.design_space.mapping.layer_by_layer import MappedLayer, exact, least_product, repeats_of
from common.design_space.mapping.mapping_problem import MappingProblem
from common.design_space.mapping.placement import Placement
from common.design_space.results.found_design import MOST_NAMED, FoundDesign, Row, convergence, point
from common.design_space.search.engines.registry import engine
from common.design_space.search.fronts import SupportedPoint
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.design_space.search.search import ModelPart, Searched
from common.design_space.search.search import search as searched
from common.design_space.search.settings import EXACT, Search
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

    def found(
        self, design: str, hardware: Hardware, search: Search, observer: SearchObserver = UNOBSERVED
    ) -> FoundDesign:
        """Return the schedule that the search finds on an accelerator.

        Raises:
            NothingFitsError: a layer has no tile that fits.
            UnusableValueError: the evaluations are fewer than the layers.
            PipelineError: the package of the engine is not installed.
        """
        if search.engine != EXACT:
            engine(search.engine)
        alone = exact(self.nests, hardware, runs=self.runs)
        unfused = best_schedule(self.graph, self.layers, hardware, keeps=False)
        start_s, is_complete, limit = time.perf_counter(), True, ""
        try:
            row_tiled = min(search.most_layers, MOST_ROW_TILED_LAYERS)
            keeps = search.most_layers > 1
            found = best_schedule(
                self.graph, self.layers, hardware, keeps=keeps, most_layers=row_tiled, observer=observer
            )
            bound, limit = found.edp, found.limit
        except SearchInterruptedError:
            found, is_complete = unfused, False
            bound = least_product(repeats_of(self.nests, self.runs), hardware)
        curve = [(found.evaluations, found.edp)]
        if search.engine != EXACT:
            observer.begin(bound)
            start_s = time.perf_counter()
            found, proposed = self._proposed(hardware, search, observer)
            curve, is_complete = [*proposed.curve], proposed.is_complete
        search_s = time.perf_counter() - start_s
        row = point(design, hardware, search, found, bound) | {
            "contraction_edp_pj_cycles": alone.edp,
            "unfused_edp_pj_cycles": unfused.edp,
            "evaluation_count": found.evaluations,
            "is_complete": is_complete,
        }
        groups = enumerate(group_rows(found, hardware))
        return FoundDesign(
            row,
            mappings=[{"design": design, **mapped} for mapped in mapping_rows(found, hardware)],
            groups=[{"design": design, "group_index": index, **group} for index, group in groups],
            convergence=convergence(row, curve),
            search_s=search_s,
            limit=limit,
        )

    def _proposed(
        self, hardware: Hardware, search: Search, observer: SearchObserver
    ) -> tuple[MappedSchedule, Searched]:
        """Return the schedule that an engine finds, in which nothing is resident."""
        sizes = LayerPlaces(self.graph, self.layers, hardware, keeps=False).sizes
        options = [execution_option(index, layer, Places(), hardware, sizes) for index, layer in enumerate(self.layers)]
        runs = Counter[tuple[LoopNest, Placement]]()
        for one in options:
            for nest in one.nests.values():
                runs[nest, one.setting[0]] += one.runs
        parts = {
            key: ModelPart(MappingProblem(key[0], hardware, placement=key[1]), times) for key, times in runs.items()
        }
        streams = SupportedPoint(
            sum(one.stream_energy_pj for one in options), sum(one.stream_cycles for one in options), None
        )
        found = searched(parts, engine(search.engine), search.evaluations, search.seed, observer, streams)
        steps = [LayerStep(layer, one, _mapped(one, found)) for layer, one in zip(self.layers, options, strict=True)]
        return MappedSchedule(steps, found.evaluation_count), found

    def _word_notes(self, hardware: Hardware) -> Iterator[str]:
        """Yield that the elements of the model are not those of the accelerator."""
        word_bits = 8 * hardware.levels[0].word_bytes
        if widths := sorted(self.element_bits - {word_bits}):
            theirs = " and ".join(map(str, widths))
            yield f"{hardware.name} keeps every element in {word_bits} bits, where the model has {theirs}"


def _mapped(one: ExecutionOption, found: Searched) -> dict[str, MappedLayer]:
    """Return the mappings of the nests of a layer."""
    points = {name: found.schedules[nest, one.setting[0]] for name, nest in one.nests.items()}
    return {
        name: MappedLayer(one.nests[name], point.choice, point.cycles, point.energy_pj, one.runs)
        for name, point in points.items()
    }


def _outside_notes(layers: Sequence[ModelLayer]) -> Iterator[str]:
    """Yield which layers have no loop nest."""
    outside = dict.fromkeys("+".join(layer.layer.op_types) for layer in layers if not layer.nests)
    if outside:
        yield f"no loop nests, so they count as traffic: {listed(outside, MOST_NAMED)}"
    multiplying = [layer.layer.name for layer in layers if layer.macs]
    if multiplying:
        yield f"{listed(multiplying, MOST_NAMED)} multiply, but are no loop nests: the whole array does their work"
