"""All mappings of one nest on one accelerator that may be best: a tile of any size at each level, and orders of loops.

:mod:`common.design_space.mapping.space.loop_chains` divides each loop among the levels. This module chooses the orders.
Only these are needed, because no other order has fewer words, cycles or needs less capacity:

- At a level, the loops next to the innermost one leave the same operand in place as it does. Every loop outside brings
  the operands again that the innermost loop moves, in any order. The operand that it leaves in place is not brought
  again if all loops that leave it in place are innermost. So the innermost loop stands for an order, and covers all 8!
  orders of a level. Of the loops that leave the same operand in place, those that keep input are each tried as the
  innermost.
- An operand stays in place over several levels if no loop in between moves it. So an order matters only at a level
  whose operand has a memory further inside, with no loop in between that moves it.

No mapping of the space contradicts the dataflow of the file (:mod:`common.design_space.mapping.dataflow`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware, Level
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.space.cell_bounds import STAYS, CellBounds
from common.design_space.mapping.space.loop_chains import FanoutPlace, LoopChains, nest_chains, places_in_space
from common.design_space.mapping.traffic import RELEVANT, Nests, P, Q, R, S
from common.workload.loop_nests import LOOPS, LoopNest

Choices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MappingSpace:
    """The mappings of a nest by cell: a slice of the chains of each loop. Some operands may bypass some levels."""

    nest: LoopNest
    hardware: Hardware
    chains: Sequence[LoopChains]

    @classmethod
    def of(cls, nest: LoopNest, hardware: Hardware) -> MappingSpace:
        return cls(nest, hardware, nest_chains(nest, hardware))

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    @property
    def is_empty(self) -> bool:
        """Whether a loop can be divided in no way."""
        return not all(chains.sizes for chains in self.chains)

    def bounds(self, cells: Choices) -> CellBounds:
        return CellBounds(self.nest, self.hardware, self.chains, self.places, cells)

    @cached_property
    def places(self) -> tuple[FanoutPlace, ...]:
        return places_in_space(self.hardware)

    @cached_property
    def refinements(self) -> list[int]:
        """The loops in the order in which cells are divided: first by sizes, those of windows first; then by chains."""
        sizes = sorted(range(len(LOOPS)), key=lambda loop: (loop not in (P, Q, R, S), self.chains[loop].sizes))
        most = [int(np.diff(chains.first).max(initial=0)) for chains in self.chains]
        return [*sizes, *sorted(range(len(LOOPS)), key=lambda loop: most[loop])]

    def divided(self, cells: Choices, loop: int) -> tuple[Choices, Choices]:
        """Return the cells with each part of the slice of a loop, and the cell that each is a part of."""
        begin, end = self.chains[loop].parts(cells[:, loop])
        counts = end - begin
        rows = np.repeat(np.arange(len(cells)), counts)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        parts = cells[rows]
        parts[:, loop] = begin[rows] + number
        return parts, rows

    def mappings(self, cells: Choices, stays: Choices) -> tuple[Mappings, Choices]:
        """Return every mapping of cells with single chains and an index of ``STAYS`` each, and the cell of each."""
        of_loops = [chains.chain(cells[:, loop]) for loop, chains in enumerate(self.chains)]
        pairs = [*zip(self.chains, of_loops, strict=True)]
        temporal = np.stack([chains.steps[rows] for chains, rows in pairs], axis=-1) * 1.0
        spatial = np.stack([chains.spatial[rows] for chains, rows in pairs], axis=-1) * 1.0
        rows, innermost = self._innermost(temporal, stays)
        mappings = Mappings(temporal[rows], spatial[rows], ORDERS[innermost])
        keeps = respects(mappings, self.hardware)
        return Mappings(mappings.temporal[keeps], mappings.spatial[keeps], mappings.order[keeps]), rows[keeps]

    def cells_of(self, chains: Choices) -> Choices:
        """Return the cells of single chains, given the chain of each loop."""
        return np.asarray(chains + np.array([1 + of_loop.sizes for of_loop in self.chains]))

    def _innermost(self, temporal: np.ndarray, stays: Choices) -> tuple[Choices, Choices]:
        """Return the mapping of each order, and its innermost loop by level, from steps by mapping, level and loop."""
        rows = np.arange(len(temporal))
        chosen = np.zeros((len(temporal), temporal.shape[1]), dtype=np.int64)
        for level in range(temporal.shape[1]):
            parts = [(rows[has], chosen[has], loop[has])
                     for has, loop in self._options(temporal[rows], level, stays[rows])]  # fmt: skip
            rows = np.concatenate([part for part, _, _ in parts])
            chosen = np.concatenate([before for _, before, _ in parts])
            chosen[:, level] = np.concatenate([loops for _, _, loops in parts])
        return rows, chosen

    def _options(
        self, temporal: np.ndarray, level: int, stays: Choices
    ) -> Iterator[tuple[npt.NDArray[np.bool_], Choices]]:
        """Yield the innermost loops of a level that may be best, each after the mappings for which it may be."""
        runs, none = temporal[:, level] > 1, np.ones(len(temporal), dtype=bool)
        stationary = self.hardware.levels[level].stationary
        is_fixed = runs[:, STAYS[stationary]].any(axis=1) if stationary else ~none
        shares = self._has_halo & self._matters(temporal, level, "input")
        for entry, (operand, loops) in enumerate([*STAYS.items()][:-1]):
            may = runs[:, loops].any(axis=1)
            matters = self._matters(temporal, level, operand) | (shares if operand != "input" else False)
            may &= stays == entry if level == 0 else matters & (~is_fixed if operand != stationary else True)
            none &= ~may
            if not may.any():
                continue
            if operand == "input" or not self._has_halo:
                yield may, np.array(loops)[np.argmax(runs[:, loops], axis=1)]
                continue
            has_window = runs[:, [loop for loop in loops if loop in (P, Q, R, S)]].any(axis=1)
            for loop in loops:  # each keeps another part of the input
                counts = loop in (P, Q, R, S)
                yield may & runs[:, loop] & (counts | ~has_window), np.full(len(temporal), loop)
        in_order = _BY_OPERAND[stationary or ""]
        yield none, np.array(in_order)[np.argmax(runs[:, in_order], axis=1)]

    def _matters(self, temporal: np.ndarray, level: int, operand: str) -> npt.NDArray[np.bool_]:
        """Return whether an operand may stay in place in a memory inside of a level while loops of the level step."""
        inside = [at for at, other in enumerate(self.hardware.levels) if at > level and operand in other.keeps]
        if not inside:
            return np.zeros(len(temporal), dtype=bool)
        between = temporal[:, level + 1 : inside[0]][..., RELEVANT[operand]]
        return np.asarray((between == 1).all(axis=(1, 2)))

    @cached_property
    def _has_halo(self) -> bool:
        """Whether tiles that are neighbours along one of the outputs or taps may share input."""
        nest = self.nest
        return (nest.p > 1 and nest.r > 1) or (nest.q > 1 and nest.s > 1)


def _mates_inside(inner: int) -> list[int]:
    """Return the loops, the innermost first: the given one, then those that move the same operands, then the others."""
    moved = [RELEVANT[operand] for operand in RELEVANT]
    mates = [loop for loop in range(len(LOOPS)) if all(moves[loop] == moves[inner] for moves in moved)]
    mates.remove(inner)
    return [inner, *mates, *(loop for loop in range(len(LOOPS)) if loop not in (inner, *mates))]


ORDERS = np.array([_mates_inside(loop) for loop in range(len(LOOPS))])


# The loops that leave an operand in place, then the others.
_BY_OPERAND = {
    operand: [*loops, *(loop for loop in range(len(LOOPS)) if loop not in loops)] for operand, loops in STAYS.items()
}


def order_of_level(level: Level, held: frozenset[str] = frozenset()) -> Choices:
    """Return orders of the loops of a level, one for each innermost loop.

    Before that loop come those that leave an operand in place: the one that the file names, or else those of ``held``.
    """
    kept = held if level.stationary is None else {level.stationary}
    moves = np.any([RELEVANT[operand] for operand in kept], axis=0) if kept else np.zeros(len(LOOPS), dtype=bool)
    return np.asarray(np.take_along_axis(ORDERS, np.argsort(moves[ORDERS], axis=1, kind="stable"), axis=1))
