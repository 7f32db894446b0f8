"""Places of the operands of a layer, and the words that move beside its loop nest.

A map may be resident as a whole, in one memory on the chip that holds inputs. Layers then read or write it there, and
none of its words moves at DRAM.

Words that no loop nest moves (a bias, an operand that is added, all words of a pool) go through the same memories as
results. Each word is written and read there once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.design_space.accelerator.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of the operands of a loop nest, and the words that move beside it."""

    on_chip: frozenset[str] = frozenset()  # resident operands; the others are in DRAM
    # For each level the words that are read or written there beside the nest, one count for each stream. Without levels
    # there are no words.
    side_words: tuple[tuple[float, ...], ...] = ()

    def words_at(self, level: int) -> tuple[float, ...]:
        """Return the words that move at a level beside the nest."""
        return self.side_words[level] if self.side_words else ()

    def holders(self, operand: str, hardware: Hardware) -> tuple[int, ...]:
        """Return the levels that hold an operand. The outermost of them is where its words come from or go to."""
        holders = (index for index, level in enumerate(hardware.levels) if operand in level.keeps)
        chip_level = resident_level(hardware)
        if operand not in self.on_chip or chip_level is None:
            return tuple(holders)
        return (chip_level, *(index for index in holders if index > chip_level))


IN_MEMORY = Placement()


def resident_levels(hardware: Hardware) -> list[int]:
    """Return the levels on the chip that can have resident maps: one memory that holds inputs."""
    return [
        index
        for index, level in enumerate(hardware.levels)
        if index and "input" in level.holds and level.copies == "one" and level.capacity_kib is not None
    ]


def resident_level(hardware: Hardware) -> int | None:
    """Return the level of resident maps: the chosen one, or else the outermost one that can have them."""
    return next(iter(resident_levels(hardware)), None) if hardware.resident_at is None else hardware.resident_at


def result_level(hardware: Hardware) -> int | None:
    """Return the level on the chip through which results go: the outermost one that they may not bypass."""
    holders = [index for index, level in enumerate(hardware.levels) if index and "output" in level.holds]
    needed = [index for index in holders if "output" not in hardware.may_pass(index)]
    return next(iter(needed or holders), None)


def side_streams(
    hardware: Hardware, in_memory: Sequence[float] = (), on_chip: Sequence[float] = (), copied: Sequence[float] = ()
) -> tuple[tuple[float, ...], ...]:
    """Return the words at each level that streams beside a loop nest move.

    Args:
        in_memory: words that are read from DRAM or written to it.
        on_chip: words that are read from the memory of resident maps, or written there.
        copied: words that are copied between DRAM and the memory of resident maps.
    """
    words: list[list[float]] = [[*in_memory, *copied], *([] for _ in hardware.levels[1:])]
    if (chip_level := resident_level(hardware)) is not None:
        words[chip_level] += [*on_chip, *copied]
    if (result := result_level(hardware)) is not None:
        words[result] += [*in_memory, *on_chip] * 2
    return tuple(map(tuple, words))
