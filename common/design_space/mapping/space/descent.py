"""Mappings that a descent finds quickly, from which an exact search knows early what it may leave out.

A descent takes the best chain of one loop after the other, with the chains of the other loops fixed, until no loop
improves the mapping. It proves nothing. Where a search ends early, its result is at least as good as that of a descent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from common.design_space.mapping.space.loop_chains import LoopChains
from common.design_space.mapping.space.mapping_space import Choices, MappingSpace

MOST_CHAINS = 1_000  # of a loop that are tried at once
STARTS = 4  # drawn ones, beside the smallest tiles
Values = Callable[[Choices], npt.NDArray[np.float64]]


def descents(space: MappingSpace, values: Values, generator: np.random.Generator) -> Iterator[Choices]:
    """Yield the chain of each loop at the end of each descent of ``values``, which are infinite where none fits."""
    begins = [np.array([_smallest(chains) for chains in space.chains])]
    drawn = np.stack([generator.integers(0, len(chains.steps), MOST_CHAINS) for chains in space.chains], axis=1)
    of_drawn = values(drawn)
    begins += [drawn[at] for at in np.argsort(of_drawn, kind="stable")[:STARTS] if of_drawn[at] < np.inf]
    for begin in begins:
        yield _descended(space, begin, values, generator)


def _smallest(chains: LoopChains) -> int:
    """Return the chain of the smallest tiles, which fits if any does."""
    inside = np.cumprod((chains.steps * chains.spatial)[:, ::-1], axis=1)[:, :-1]
    return int(np.log2(inside).sum(axis=1).argmin())


def _descended(space: MappingSpace, begin: Choices, values: Values, generator: np.random.Generator) -> Choices:
    loops = [loop for loop, chains in enumerate(space.chains) if len(chains.steps) > 1]
    chosen, least = begin.copy(), float(values(begin[None])[0])
    waiting = len(loops)
    while waiting:
        for loop in loops:
            count = len(space.chains[loop].steps)
            tried = np.arange(count) if count <= MOST_CHAINS else generator.integers(0, count, MOST_CHAINS)
            rows = np.repeat(chosen[None], len(tried), axis=0)
            rows[:, loop] = tried
            found = values(rows)
            best = int(found.argmin())
            if found[best] < least:
                chosen, least, waiting = rows[best], float(found[best]), len(loops)
            else:
                waiting -= 1
            if not waiting:
                break
    return chosen
