"""The best mappings of the layers of a network, one by one, for the least energy-delay product of their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from common.design_space.cost import TIMELOOP, Accounting, cost
from common.design_space.fronts import Corner, sum_of_fronts
from common.design_space.hardware import Hardware
from common.design_space.mapping import mapping_text
from common.design_space.mapping_space import MappingSpace, drawn_mappings
from common.design_space.nest_fronts import ALONE, nest_fronts
from common.design_space.traffic import Nests
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
        bound: an energy-delay product that no mapping of the layers' spaces is below; None where nothing proves one.
    """

    layers: Mapping[str, MappedLayer]
    evaluations: int
    bound: float | None

    @property
    def cycles(self) -> float:
        """Cycles of all layers, one after the other."""
        return sum(layer.runs * layer.cycles for layer in self.layers.values())

    @property
    def energy_pj(self) -> float:
        """Energy of all layers."""
        return sum(layer.runs * layer.energy_pj for layer in self.layers.values())

    @property
    def edp(self) -> float:
        """Energy-delay product in pJ·cycles."""
        return self.cycles * self.energy_pj


def exact(
    nests: Mapping[str, LoopNest],
    hardware: Hardware,
    accounting: Accounting = TIMELOOP,
    runs: Mapping[str, int] | None = None,
) -> MappedNetwork:
    """Return the best mapping of each layer, for the least product of all energy and all cycles.

    Every mapping of each layer's space is evaluated. The product of two sums is no sum, but its minimum takes of each
    layer a corner of the convex hull of (cycles, energy), as :mod:`common.design_space.fronts` proves. So the result is
    its own bound.

    Args:
        nests: the layers.
        hardware: the accelerator.
        accounting: what is counted.
        runs: how often each layer runs in one inference; once where it is not named.

    Raises:
        NothingFitsError: no tile of a layer fits.
    """
    repeats = Counter[LoopNest]()
    for name, nest in nests.items():
        repeats[nest] += (runs or {}).get(name, 1)
    fronts = {nest: nest_fronts(nest, hardware, [ALONE], accounting) for nest in repeats}
    chosen = sum_of_fronts({nest: (found.fronts[ALONE], repeats[nest]) for nest, found in fronts.items()})
    found = {nest: _mapped(fronts[nest].space, corner) for nest, corner in chosen.items()}
    result = MappedNetwork(_each(nests, found, runs), sum(len(found.space) for found in fronts.values()), None)
    return replace(result, bound=result.edp)


def random(
    nests: Mapping[str, LoopNest],
    hardware: Hardware,
    evaluations: int,
    seed: int,
    accounting: Accounting = TIMELOOP,
    runs: Mapping[str, int] | None = None,
) -> MappedNetwork:
    """Return, of each distinct layer, the mapping of least energy-delay product among some that are drawn at random.

    Args:
        nests: the layers.
        hardware: the accelerator.
        evaluations: mappings that fit, drawn for each distinct layer; fewer where nearly none fits.
        seed: of the drawing.
        accounting: what is counted.
        runs: how often each layer runs in one inference; once where it is not named.

    Raises:
        NothingFitsError: no tile of a layer fits.
    """
    generator = np.random.default_rng(seed)
    found: dict[LoopNest, MappedLayer] = {}
    drawn_count = 0
    for nest in dict.fromkeys(nests.values()):
        drawn = drawn_mappings(nest, hardware, evaluations, generator)
        drawn_count += len(drawn.temporal)
        result = cost(drawn, Nests.of([nest]), hardware, accounting=accounting)
        best = int(np.argmin(result.cycles * result.energy_pj))
        text = mapping_text(drawn, best, hardware)
        found[nest] = MappedLayer(nest, text, float(result.cycles[best]), float(result.energy_pj[best]))
    return MappedNetwork(_each(nests, found, runs), drawn_count, None)


def _each(
    nests: Mapping[str, LoopNest], found: Mapping[LoopNest, MappedLayer], runs: Mapping[str, int] | None
) -> dict[str, MappedLayer]:
    """Return what was found for each layer by its name, with its runs."""
    return {name: replace(found[nest], runs=(runs or {}).get(name, 1)) for name, nest in nests.items()}


def _mapped(space: MappingSpace, corner: Corner[int]) -> MappedLayer:
    """Return a layer with the mapping of a corner."""
    return MappedLayer(space.nest, space.text(corner.choice), corner.cycles, corner.energy_pj)
