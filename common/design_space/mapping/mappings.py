"""Mappings: which loops of a nest run at which level of an accelerator, how far, and in which order.

In text a mapping is what DOSA's rows and Timeloop's summaries write (Parashar et al., ISPASS 2019):

    L3[WIO] P28 Q56 K8 S7 - L2[WI] N1 K4X - L1[O] K2 R7 Q2 C3X - L0[W] P4

Levels go from the outermost to the innermost. Each has the operands that it keeps and its loops, the outermost first.
``K8`` runs eight steps over output channels, ``K4X`` lays four out in space. ``N1`` is no loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.arrays import Array
from common.messages.errors import UnusableValueError
from common.messages.names import quoted
from common.workload.loop_nests import LOOPS

LETTERS = {"W": "weight", "I": "input", "O": "output"}
LARGEST_FACTOR = 2**31
_LEVEL = re.compile(r"L([0-9]{1,2})\[([WIO]*)\]")
_ARRAYS = ("temporal", "spatial", "order")
_LOOP = re.compile(r"([A-Z])([0-9]{1,10})([XY]?)")


class LevelLoops(NamedTuple):
    """Loops of one level, as :class:`Mappings` has them, and the operands that the text of the level names."""

    holds: frozenset[str]
    temporal: tuple[float, ...]
    spatial: tuple[float, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Mappings:
    """Mappings of a batch as arrays of NumPy or PyTorch, whose last two axes are the level and the loop.

    Loops have the order of ``LOOPS``, levels that of the accelerator: from the outermost inwards.
    """

    temporal: Array  # steps of each loop at each level
    spatial: Array  # copies of each loop that are laid out in space below each level
    # Loops of each level from the innermost to the outermost, as integers; the place of a loop of one step does not
    # matter
    order: Array


def parse_mapping(text: str, levels: int) -> list[LevelLoops]:
    """Return the loops of each level of one mapping; UnusableValueError for no mapping, or other levels."""
    parts = text.split(" - ")
    if len(parts) != levels:
        raise UnusableValueError("mapping", f"{quoted(text)} has {len(parts)} levels", f"the accelerator has {levels}")
    return [_level_loops(part, levels - 1 - index) for index, part in enumerate(parts)]


@lru_cache(maxsize=100_000)
def _level_loops(part: str, number: int) -> LevelLoops:
    """Return the loops of one level from its text (cached, because mappings of one nest share many levels)."""
    name, *words = part.split() or [""]
    if (level := _LEVEL.fullmatch(name)) is None or int(level[1]) != number:
        raise UnusableValueError("mapping", f"{quoted(name)} is not the name of a level", "write it as L3[WIO]")
    temporal, spatial, named = [1.0] * len(LOOPS), [1.0] * len(LOOPS), list[int]()
    for word in words:
        loop, factor, is_spatial = _loop(word)
        (spatial if is_spatial else temporal)[loop] *= factor
        if not is_spatial and factor > 1:
            named.append(loop)
    if len(set(named)) < len(named):
        raise UnusableValueError("mapping", f"{quoted(part)} has a loop twice", "multiply its factors")
    order = (*named[::-1], *(loop for loop in range(len(LOOPS)) if loop not in named))
    return LevelLoops(frozenset(LETTERS[letter] for letter in level[2]), tuple(temporal), tuple(spatial), order)


def _loop(word: str) -> tuple[int, int, bool]:
    """Return of a loop like ``K8`` or ``K4X`` its index, its factor, and whether it is spatial."""
    if (match := _LOOP.fullmatch(word)) is None or match[1] not in LOOPS or not 0 < int(match[2]) < LARGEST_FACTOR:
        raise UnusableValueError("mapping", f"{quoted(word)} is not a loop", f"write it as K8 or K4X, of {LOOPS}")
    return LOOPS.index(match[1]), int(match[2]), bool(match[3])


def parse_mappings(texts: Sequence[str], hardware: Hardware) -> Mappings:
    """Return mappings as one batch; UnusableValueError also where a level holds other operands than it should."""
    rows: dict[str, int] = {}
    places = [rows.setdefault(text, len(rows)) for text in texts]
    parsed = [_checked(parse_mapping(text, len(hardware.levels)), hardware) for text in rows]
    arrays = ([[getattr(level, name) for level in mapping] for mapping in parsed] for name in _ARRAYS)
    return Mappings(*(np.array(array)[places] for array in arrays))


def hierarchy_of(text: str, hardware: Hardware) -> Hardware:
    """Return the hierarchy of a mapping: an operand that one of its levels does not name bypasses that level.

    UnusableValueError also where an operand may not bypass a level, or a level does not hold it.
    """
    parsed = parse_mapping(text, len(hardware.levels))
    passed = [level.holds - part.holds for part, level in zip(parsed, hardware.levels, strict=True)]
    allowed = [names <= hardware.may_pass(index) for index, names in enumerate(passed)]
    other = hardware.passing([names if may else frozenset() for names, may in zip(passed, allowed, strict=True)])
    _checked(parsed, other)
    return other


def _checked(mapping: list[LevelLoops], hardware: Hardware) -> list[LevelLoops]:
    """Return a mapping whose levels hold the operands that the accelerator's do; refuse another."""
    for part, level in zip(mapping, hardware.levels, strict=True):
        if part.holds != level.keeps:
            problem = f"a level that holds {', '.join(sorted(part.holds))} is where {hardware.name} has {level.name}"
            raise UnusableValueError("mapping", problem, f"that holds {', '.join(sorted(level.keeps))}")
    return mapping


def mapping_text(mappings: Mappings, index: int, hardware: Hardware) -> str:
    arrays = (np.asarray(array)[index] for array in (mappings.temporal, mappings.spatial, mappings.order))
    parts: list[str] = []
    for level, temporal, spatial, order in zip(hardware.levels, *arrays, strict=True):
        letters = "".join(letter for letter, operand in LETTERS.items() if operand in level.keeps)
        loops = [f"{LOOPS[loop]}{int(temporal[loop])}" for loop in order[::-1] if temporal[loop] > 1]
        loops = loops or ["N1"]
        loops += [f"{LOOPS[loop]}{int(factor)}X" for loop, factor in enumerate(spatial) if factor > 1]
        parts.append(f"L{len(hardware.levels) - 1 - len(parts)}[{letters}] {' '.join(loops)}")
    return " - ".join(parts)
