"""The price of a mapping in which each operand has tiles of its own: one order of loops, cut at another place for each.

Peers allow such mappings, and `estimate` prices one cut for all operands. The traffic of an operand depends on its own
tiles alone. So each operand is priced by itself, on the accelerator in which each loop has a level that holds nothing,
and words and energies are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from common.design_space.accelerator.hardware import Hardware, Level
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import RELEVANT, Nests
from common.workload.loop_nests import LOOPS, LoopNest

Loop = tuple[str, int]  # a loop of LOOPS, and its steps


@dataclass(frozen=True)
class CutMapping:
    """A mapping with tiles of its own for each operand."""

    # For each operand, the loops of each memory that holds it, memories and loops from the innermost outwards. All
    # operands have the same loops in one order.
    inside: Mapping[str, Sequence[Sequence[Loop]]]
    spatial: Mapping[str, Mapping[str, int]]  # copies of each loop below a level, by the level's name


@dataclass(frozen=True)
class Price:
    """Cycles and energy, and whether the tiles fit their memories."""

    cycles: float
    energy_pj: float
    fits: bool

    @property
    def edp(self) -> float:
        return self.cycles * self.energy_pj


def price(nest: LoopNest, mapping: CutMapping, hardware: Hardware) -> Price:
    """Return what a mapping costs on an accelerator, by this project's cost function."""
    names = [level.name for level in hardware.levels]
    energy_pj, steps = 0.0, 0.0
    cycles, needed = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for operand in RELEVANT:
        expanded, mappings = _expanded(operand, mapping, hardware)
        result: MappingCost = cost(mappings, Nests.of([nest]), expanded)
        macs_pj, *parts = (float(np.asarray(part)[0]) for part in result.energy_parts_pj)
        energy_pj += sum(parts) + macs_pj / len(RELEVANT)
        steps = float(np.asarray(result.compute_cycles)[0])
        for level, moving, words in zip(expanded.levels, result.level_cycles, result.needed_words, strict=True):
            if level.name in cycles:
                cycles[level.name] += float(np.asarray(moving)[0])
                needed[level.name] += float(np.asarray(words)[0])
    fits = all(needed[level.name] <= level.capacity_words for level in hardware.levels)
    return Price(ceil(max(steps, *cycles.values())), energy_pj, fits)


def _expanded(operand: str, mapping: CutMapping, hardware: Hardware) -> tuple[Hardware, Mappings]:
    """Return the accelerator as one operand sees it, with a level for each loop, and the mapping on it."""
    levels, loops = list[Level](), list[Loop | None]()
    held = iter(mapping.inside[operand][::-1])
    for level in hardware.levels:
        keeps = operand in level.holds
        levels.append(replace(level, holds=frozenset({operand} if keeps else ())))
        loops.append(None)
        below = next(held)[::-1] if keeps else ()
        bare = replace(level, name=f"a loop in {level.name}", holds=frozenset(), fanouts=(), network=None)
        levels += [bare] * len(below)
        loops += below
    temporal, spatial = np.ones((1, len(levels), len(LOOPS))), np.ones((1, len(levels), len(LOOPS)))
    for index, (level, loop) in enumerate(zip(levels, loops, strict=True)):
        if loop is not None:
            temporal[0, index, LOOPS.index(loop[0])] = loop[1]
        for name, copies in mapping.spatial.get(level.name, {}).items():
            spatial[0, index, LOOPS.index(name)] = copies
    order = np.broadcast_to(np.arange(len(LOOPS)), temporal.shape)
    return replace(hardware, levels=tuple(levels)), Mappings(temporal, spatial, order)
