"""The best mapping of each layer of a network, for the least product of all energy and all cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.space.nest_fronts import ALONE
from common.design_space.mapping.space.nest_searches import NestSearches
from common.design_space.search.fronts import sum_of_fronts
from common.workload.loop_nests import LoopNest


@dataclass(frozen=True)
class MappedLayer:
    """A layer with the mapping that was found for it; cycles and energy are those of one run.

    ``runs`` is how often the layer runs in one inference.
    """

    nest: LoopNest
    mapping: str
    cycles: float
    energy_pj: float
    runs: int = 1


@dataclass(frozen=True)
class MappedNetwork:
    """A network, mapped layer by layer.

    Attributes:
        layers: by name.
        evaluations: mappings whose cost was computed.
    """

    layers: Mapping[str, MappedLayer]
    evaluations: int

    @property
    def cycles(self) -> float:
        return sum(layer.runs * layer.cycles for layer in self.layers.values())

    @property
    def energy_pj(self) -> float:
        return sum(layer.runs * layer.energy_pj for layer in self.layers.values())

    @property
    def edp(self) -> float:
        return self.cycles * self.energy_pj


def exact(
    nests: Mapping[str, LoopNest],
    hardware: Hardware,
    runs: Mapping[str, int] | None = None,
    searches: NestSearches | None = None,
) -> MappedNetwork:
    """Return the best mapping of each layer, for the least product of all energy and all cycles.

    Every mapping of each layer's space is evaluated. The least product of two sums takes a supported point of each
    layer, as :mod:`common.design_space.search.fronts` proves. So no mapping of the space is better.

    Args:
        runs: how often each layer runs in one inference; once where it is not named.
        searches: earlier searches, whose results are reused; new ones if None.

    Raises:
        NothingFitsError: no tile of a layer fits.
    """
    repeats = repeats_of(nests, runs)
    searches = searches or NestSearches()
    count_before = searches.mapping_count
    fronts = {nest: searches.fronts(nest, hardware, [ALONE]) for nest in repeats}
    if not all(front.fronts[ALONE] for front in fronts.values()):
        raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
    points = sum_of_fronts({nest: (front.fronts[ALONE], repeats[nest]) for nest, front in fronts.items()})
    layers = {}
    for name, nest in nests.items():
        point = points[nest]
        layers[name] = MappedLayer(nest, point.choice, point.cycles, point.energy_pj, (runs or {}).get(name, 1))
    return MappedNetwork(layers, searches.mapping_count - count_before)


def repeats_of(nests: Mapping[str, LoopNest], runs: Mapping[str, int] | None = None) -> Counter[LoopNest]:
    """Return how often each distinct layer runs in one inference."""
    repeats = Counter[LoopNest]()
    for name, nest in nests.items():
        repeats[nest] += (runs or {}).get(name, 1)
    return repeats
