"""Weights that stay on the chip from one inference to the next.

A decoder runs once for each token, and its products have one row: each weight is read for one multiply-accumulate. So
the weights are nearly all of its traffic, and each word that stays saves a word at DRAM in every call. Weights that
stay take their room all the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.mapping.placement import resident_level

# Shares of the memory that the weights may fill. The rest is room for tiles and maps.
FILLS = (15 / 16, 3 / 4, 1 / 2, 1 / 4)


def weight_words(layer: ModelLayer, hardware: Hardware) -> float:
    """Return the words of a layer's weights in the memory of resident tensors; 0 without such a memory."""
    index = resident_level(hardware)
    if index is None:
        return 0.0
    each = hardware.levels[index].element_words("weight")
    return each * sum(nest.elements["weight"] for nest in layer.nests.values() if nest.has_weight)


def room_for_weights(hardware: Hardware) -> float:
    """Return the words of weights that the memory of resident tensors could hold; 0 where it holds no weights."""
    index = resident_level(hardware)
    if index is None or "weight" not in hardware.levels[index].holds:
        return 0.0
    return hardware.levels[index].capacity_words


def staying_sets(layers: Sequence[ModelLayer], hardware: Hardware) -> list[frozenset[int]]:
    """Return sets of layers whose weights may stay, as indices: one for each share of the memory, and none.

    Weights of bodies that run most often come first, and of equally frequent ones the largest.
    """
    words = {
        index: weight_words(layer, hardware)
        for index, layer in enumerate(layers)
        if layer.nests and all(nest.has_weight for nest in layer.nests.values())
    }
    order = sorted(words, key=lambda index: (-layers[index].layer.passes, -words[index]))
    sets = dict.fromkeys(_filled(order, words, share * room_for_weights(hardware)) for share in FILLS)
    return [*dict.fromkeys([*sets, frozenset[int]()])]


def _filled(order: Sequence[int], words: dict[int, float], room: float) -> frozenset[int]:
    """Return the layers that fit one after the other; one that no longer fits is left out."""
    chosen = set[int]()
    for index in order:
        if words[index] <= room:
            chosen.add(index)
            room -= words[index]
    return frozenset(chosen)
