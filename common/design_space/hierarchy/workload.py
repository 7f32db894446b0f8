"""The best schedule of a model on accelerators with several memories: mapped contractions, and resident tensors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.best_schedule import best_schedule
from common.design_space.hierarchy.execution_options import LayerPlaces, Places, execution_option
from common.design_space.hierarchy.model_layers import ModelLayer, model_layers
from common.design_space.hierarchy.physical_floor import physical_floor
from common.design_space.hierarchy.row_tiles import MOST_ROW_TILED_LAYERS
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.hierarchy.schedule_rows import group_rows, mapping_rows, staying_bytes
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.space.layer_by_layer import NestSearches, exact
from common.design_space.mapping.space.loop_chains import places_in_space
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.results.design_result import MOST_NAMED, DesignResult, DesignTask, convergence_rows, point_row
from common.design_space.search.engines.registry import engine
from common.design_space.search.fronts import SupportedPoint
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.design_space.search.search import ModelPart, Searched, search
from common.design_space.search.settings import EXACT, Search
from common.graphs.source_graph import SourceGraph
from common.messages.errors import PipelineError
from common.messages.names import listed
from common.table_rows import OpMetricsRow
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph
from common.workload.nest_rows import nests_by_node, require_bound

IDLE_SHARE = 1 / 16  # of the elements of an array: a note names the layers that use no more
NestAt = tuple[LoopNest, Placement]


@dataclass(frozen=True, slots=True)
class HierarchyWorkload:
    """The layers of a model in elements, as an accelerator runs them, and the bits of the elements in the model."""

    graph: LayerGraph
    layers: tuple[ModelLayer, ...]
    element_bits: frozenset[int]

    @classmethod
    def of(cls, metrics: Sequence[OpMetricsRow], graph: SourceGraph) -> HierarchyWorkload:
        """Return the layers of a model.

        Raises:
            UpstreamError: dimensions of the model are unbound.
            PipelineError: the model has nothing to map.
        """
        require_bound(metrics)
        layer_graph, layers = model_layers(metrics, graph)
        if not any(layer.nests for layer in layers):
            remedy = "an accelerator with one buffer takes any operator"
            raise PipelineError("op_metrics.csv", "no operator is a loop nest", remedy)
        nests = [nest for of_node in nests_by_node(metrics, graph).values() for nest in of_node]
        return cls(layer_graph, layers, frozenset(bits for nest in nests for bits in nest.operand_bits.values()))

    @property
    def nests(self) -> dict[str, LoopNest]:
        """The contractions, by the node's name and the number of its nest."""
        return {name: nest for layer in self.layers for name, nest in layer.nests.items()}

    @property
    def runs(self) -> dict[str, int]:
        """How often each contraction runs in one inference."""
        return {name: layer.layer.passes for layer in self.layers for name in layer.nests}

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what counts as traffic alone or with other words than the model's, and what does not count."""
        return (*self._outside_notes(), *self._word_notes(hardware), *self._idle_notes(hardware))

    def searched(self, design: DesignTask, observer: SearchObserver = UNOBSERVED) -> DesignResult:
        """Return the schedule that a search finds for a design.

        Raises:
            NothingFitsError: a layer has no tile that fits.
            UnusableValueError: the evaluations are fewer than the layers.
            PipelineError: the package of the engine is not installed.
        """
        hardware, settings = design.hardware, design.search
        if settings.engine != EXACT:
            engine(settings.engine)
        floor = physical_floor(self.graph, self.layers, hardware, weights_stay=settings.weights_stay)
        searches, start_s = NestSearches(), time.perf_counter()
        schedule, is_complete = self._best_of_space(design, searches, observer)
        search_s, curve = time.perf_counter() - start_s, [(schedule.evaluations, schedule.edp)]
        contractions = exact(self.nests, hardware, self.runs, searches)
        unfused = self._unfused(hardware, searches)
        # An engine is compared with the optimum.
        best_of_space, limit = (schedule.best_of_space, schedule.limit) if is_complete else (None, "")
        if settings.engine != EXACT:
            observer.begin(best_of_space or floor.edp)
            start_s = time.perf_counter()
            schedule, result = self._proposed(hardware, settings, observer)
            search_s, curve, is_complete = time.perf_counter() - start_s, [*result.curve], result.is_complete
        point = point_row(
            design,
            SupportedPoint(schedule.energy_pj, schedule.cycles, None),
            floor.edp,
            best_of_space=best_of_space,
            unfused_edp=unfused.edp,
            contraction_edp=contractions.edp,
            evaluation_count=schedule.evaluations,
            is_complete=is_complete,
            rtl=schedule.rtl_interval(replace(hardware, resident_at=schedule.resident_at)),
            staying_weight_bytes=staying_bytes(schedule, hardware) if settings.weights_stay else None,
        )
        return DesignResult(
            point,
            mappings=[*mapping_rows(design.name, schedule, hardware)],
            groups=[*group_rows(design.name, schedule, hardware)],
            convergence=convergence_rows(design, curve),
            search_s=search_s,
            limit=limit,
        )

    def _unfused(self, hardware: Hardware, searches: NestSearches) -> MappedSchedule:
        return best_schedule(self.graph, self.layers, hardware, keeps=False, searches=searches)

    def _best_of_space(
        self, design: DesignTask, searches: NestSearches, observer: SearchObserver
    ) -> tuple[MappedSchedule, bool]:
        """Return the optimum; or the layers one by one, and False, where somebody ended the search."""
        most_layers = design.search.most_layers
        try:
            optimum = best_schedule(
                self.graph,
                self.layers,
                design.hardware,
                keeps=most_layers > 1,
                most_layers=min(most_layers, MOST_ROW_TILED_LAYERS),
                weights_stay=design.search.weights_stay,
                observer=observer,
                searches=searches,
            )
        except SearchInterruptedError:
            unfused = self._unfused(design.hardware, searches)
            return replace(unfused, evaluations=searches.mapping_count), False
        return optimum, True

    def _proposed(
        self, hardware: Hardware, settings: Search, observer: SearchObserver
    ) -> tuple[MappedSchedule, Searched[NestAt, str]]:
        """Return the schedule that an engine finds, in which nothing is resident."""
        sizes = LayerPlaces(self.graph, self.layers, hardware, keeps=False).sizes
        options = [execution_option(index, layer, Places(), hardware, sizes) for index, layer in enumerate(self.layers)]
        runs = Counter[NestAt]()
        for option in options:
            for nest in option.nests.values():
                runs[nest, option.setting[0]] += option.runs
        parts = {
            (nest, placement): ModelPart(MappingProblem(nest, hardware, placement=placement), times)
            for (nest, placement), times in runs.items()
        }
        streams = SupportedPoint(
            sum(option.stream_energy_pj for option in options), sum(option.stream_cycles for option in options), None
        )
        result = search(parts, engine(settings.engine), settings.evaluations, settings.seed, observer, streams)
        steps = list[LayerStep]()
        for layer, option in zip(self.layers, options, strict=True):
            points = {name: result.schedules[nest, option.setting[0]] for name, nest in option.nests.items()}
            steps.append(LayerStep(layer, option, points))
        return MappedSchedule(steps, result.evaluation_count), result

    def _outside_notes(self) -> Iterator[str]:
        outside = dict.fromkeys("+".join(layer.layer.op_types) for layer in self.layers if not layer.nests)
        if outside:
            yield f"no loop nests, so they count as traffic: {listed(outside, MOST_NAMED)}"
        if multiplying := [layer.layer.name for layer in self.layers if layer.macs]:
            names = listed(multiplying, MOST_NAMED)
            yield f"{names} multiply, but are no loop nests: the whole array does their work"

    def _word_notes(self, hardware: Hardware) -> Iterator[str]:
        """Yield that the elements of the model are not those of the accelerator."""
        word_bits = 8 * hardware.levels[0].word_bytes
        if widths := sorted(self.element_bits - {word_bits}):
            theirs = " and ".join(map(str, widths))
            yield f"{hardware.name} keeps every element in {word_bits} bits, where the model has {theirs}"

    def _idle_notes(self, hardware: Hardware) -> Iterator[str]:
        """Yield which contractions cannot use most of the array, whatever their mapping is."""
        used: dict[int, list[str]] = {}
        for name, nest in self.nests.items():
            if (most := most_elements(nest, hardware)) <= IDLE_SHARE * hardware.array.elements:
                used.setdefault(most, []).append(name.rpartition(".")[0])
        for most, nodes in sorted(used.items()):
            names = listed(dict.fromkeys(nodes), MOST_NAMED)
            yield f"of {hardware.array.elements:,} elements of the array, {most:,} at most can work on {names}"


def most_elements(nest: LoopNest, hardware: Hardware) -> int:
    """Return how many elements of the array a nest can use at most."""
    copies = [min(place.size, prod(map(min, nest.bounds.values(), place.rooms))) for place in places_in_space(hardware)]
    return min(nest.macs, prod(copies))
