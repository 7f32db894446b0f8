"""The dataflow that an accelerator's file fixes: which loops step at a level, and which operand its order keeps.

In space, a level lists the loops and the most copies of each. In time, a level may name the loops that step there, and
an operand that is *stationary*: the loops that leave it in place are inside of all others. So the array of a
weight-stationary machine runs through pixels before it takes other weights. The terms are those of Sze et al.,
"Efficient Processing of Deep Neural Networks", Proceedings of the IEEE 2017, and of Timeloop's constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Fanout, Hardware, Level, MultiplierArray
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import RELEVANT
from common.workload.loop_nests import LOOPS

Flags = npt.NDArray[np.bool_]


def respects(mappings: Mappings, hardware: Hardware) -> Flags:
    """Return, by mapping, whether it keeps to the dataflow of an accelerator."""
    temporal, spatial, order = map(np.asarray, (mappings.temporal, mappings.spatial, mappings.order))
    keeps = np.ones(temporal.shape[:-2], dtype=bool)
    for index, level in enumerate(hardware.levels):
        steps = temporal[..., index, :] > 1
        keeps &= ~(steps & ~may_step(level)).any(axis=-1)
        if any(fanout.most for fanout in level.fanouts) or len(level.fanouts) > 1:
            keeps &= _have_room(spatial[..., index, :], level, hardware.array)
        if level.stationary is not None:
            loops = order[..., index, :]
            moves, runs = RELEVANT[level.stationary][loops], np.take_along_axis(steps, loops, axis=-1)
            is_replaced = np.cumsum(moves & runs, axis=-1) > 0
            keeps &= ~(is_replaced & ~moves & runs).any(axis=-1)
    return keeps


def may_step(level: Level) -> Flags:
    """Return, by loop, whether it may step at a level."""
    return np.array([level.steps is None or loop in level.steps for loop in LOOPS])


def _have_room(copies: np.ndarray, level: Level, array: MultiplierArray) -> Flags:
    """Return, by mapping, whether the fan-outs below a level have room for the copies of each loop."""
    distinct, places = np.unique(copies.reshape(-1, len(LOOPS)), axis=0, return_inverse=True)
    loops = [{loop: int(count) for loop, count in zip(LOOPS, row, strict=True) if count > 1} for row in distinct]
    fits = np.array([_has_room(of_row, level.fanouts, array) for of_row in loops])
    return fits[places.reshape(copies.shape[:-1])]


def _has_room(copies: Mapping[str, int], fanouts: Sequence[Fanout], array: MultiplierArray) -> bool:
    """Return whether fan-outs can share the copies: each takes a divisor of the copies of each of its loops."""
    if not fanouts or not copies:
        return not copies
    first, *others = fanouts
    shares = [
        [count for count in range(1, min(most, first.room(loop, array)) + 1) if most % count == 0]
        for loop, most in copies.items()
    ]
    return any(
        prod(chosen) <= getattr(array, first.axis)
        and _has_room(
            {loop: left for (loop, most), own in zip(copies.items(), chosen, strict=True) if (left := most // own) > 1},
            others,
            array,
        )
        for chosen in product(*shares)
    )
