"""The schedule of a model on an accelerator with several memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.execution_options import ExecutionOption
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.mappings import hierarchy_of, parse_mappings
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.tiled_rtl import is_product
from common.design_space.mapping.traffic import Nests
from common.design_space.search.fronts import SupportedPoint
from common.workload.loop_nests import LoopNest


@lru_cache(maxsize=1024)  # several tables show it, and layers of a model are often equal
def _detailed_cost(nest: LoopNest, mapping: str, hardware: Hardware, placement: Placement) -> MappingCost:
    own = hierarchy_of(mapping, hardware)
    return cost(parse_mappings([mapping], own), Nests.of([nest]), own, placement=placement)


class RtlInterval(NamedTuple):
    """Cycles by the costs of the RTL, and the ends between which nine in ten layers that were not fitted are."""

    low: float
    likely: float
    high: float

    @classmethod
    def sum_of(cls, parts: Iterable[tuple[int, RtlInterval]]) -> RtlInterval:
        """Return the sum of intervals, each of so many runs: all errors are taken to be in one direction."""
        table = [[runs * end for end in part] for runs, part in parts]
        return cls(*map(float, np.sum(table, axis=0)))


@dataclass(frozen=True)
class LayerStep:
    """A layer of a schedule: how it runs, and the supported point of each of its nests by name."""

    layer: ModelLayer
    option: ExecutionOption
    points: Mapping[str, SupportedPoint[str]]  # of one run; the choice is the mapping

    @property
    def cycles(self) -> float:
        return sum(self.option.runs * point.cycles for point in self.points.values()) + self.option.stream_cycles

    @property
    def energy_pj(self) -> float:
        return sum(self.option.runs * point.energy_pj for point in self.points.values()) + self.option.stream_energy_pj

    @property
    def on_chip(self) -> frozenset[str]:
        """Resident tensors of the layer while it runs."""
        return self.option.places.inherited | self.option.places.copied | self.option.places.left

    def costs(self, hardware: Hardware) -> dict[str, MappingCost]:
        """Return what each nest costs in detail, as a batch of one."""
        return {
            name: _detailed_cost(self.option.nests[name], point.choice, hardware, self.option.setting_of(name)[0])
            for name, point in self.points.items()
        }

    def rtl_intervals(self, hardware: Hardware) -> Mapping[str, RtlInterval]:
        """Return the cycles of one run of each nest by the costs of the RTL; nothing where the file has none."""
        if hardware.rtl is None or hardware.rtl_errors is None:
            return {}
        found = dict[str, RtlInterval]()
        for name, detailed in self.costs(hardware.with_rtl()).items():
            nest, cycles = self.option.nests[name], float(np.asarray(detailed.rtl_cycles)[0])
            low, high = hardware.rtl_errors.product if is_product(nest) else hardware.rtl_errors.window
            found[name] = RtlInterval(cycles * low, cycles, cycles * high)
        return found


@dataclass(frozen=True)
class MappedSchedule:
    """The schedule of a model: its layers in the order in which they run."""

    steps: Sequence[LayerStep]
    evaluations: int  # mappings whose costs were computed to find it
    limit: str = ""  # what its space leaves out because the model has too many states; empty where nothing is
    resident_at: int | None = None  # the level of the resident tensors; None for the outermost that can have them
    # A lower bound of the product of all schedules of the space; None where this one is the least
    floor_edp: float | None = None

    @cached_property
    def cycles(self) -> float:
        return sum(step.cycles for step in self.steps)

    @cached_property
    def energy_pj(self) -> float:
        return sum(step.energy_pj for step in self.steps)

    @property
    def edp(self) -> float:
        return self.cycles * self.energy_pj

    @property
    def best_of_space(self) -> float:
        """The least product of the space, or the lower bound of it."""
        return self.edp if self.floor_edp is None else self.floor_edp

    def groups(self) -> Iterator[Sequence[LayerStep]]:
        """Yield the groups: the layers that run in row tiles together, or whole layers with resident tensors between.

        A group ends where row tiles begin or end, and where nothing is resident.
        """
        begins = [
            index
            for index, step in enumerate(self.steps)
            if not index
            or step.option.row_tiles != self.steps[index - 1].option.row_tiles
            or not (step.option.row_tiles or step.option.places.begin_words)
        ]
        for begin, end in pairwise([*begins, len(self.steps)]):
            yield self.steps[begin:end]

    def rtl_interval(self, hardware: Hardware) -> RtlInterval | None:
        """Return the cycles by the costs of the RTL; layers without a nest count as they do without the RTL."""
        if hardware.rtl is None:
            return None
        parts = [(1, RtlInterval(*[step.option.stream_cycles] * 3)) for step in self.steps]
        for step in self.steps:
            parts += [(step.option.runs, part) for part in step.rtl_intervals(hardware).values()]
        return RtlInterval.sum_of(parts)
