"""A physical floor under every schedule of a model on an accelerator with several memories, found without a search.

It depends on no tiles, no order of loops and no resident tensors, so no choice of these is below it.

- Every multiplier works in every cycle, and computation and all transfers overlap over the whole model.
- DRAM moves what it must: each constant once, each input of the model where a window touches it, and each output.
- Weights that stay between inferences do not come in, as far as the memory of resident tensors has room for them.
- On the chip, each tensor is at its largest level. So only what the multipliers need moves: a word for as many of them
  as the array can share it with, a partial sum after as many additions as the array can make. Weights come in once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.hierarchy.staying_weights import room_for_weights, weight_words
from common.design_space.mapping.cost import Figures
from common.design_space.mapping.placement import resident_levels
from common.design_space.mapping.traffic import RELEVANT
from common.design_space.search.fronts import SupportedPoint
from common.design_space.single_buffer.bound import read_bits
from common.workload.loop_nests import LOOPS, LoopNest
from common.workload.map_layers import LayerGraph


def physical_floor(
    graph: LayerGraph, layers: Sequence[ModelLayer], hardware: Hardware, *, weights_stay: bool = False
) -> SupportedPoint[None]:
    """Return cycles and energy that no schedule is below, whose weights may stay between inferences or not."""
    words = np.zeros(len(hardware.levels))
    words[0] = _compulsory_words(graph)
    for layer in layers:
        for nest in layer.nests.values():
            words += layer.layer.passes * _multiplier_words(nest, hardware) + _weight_words(nest, hardware)
    if weights_stay:
        memories = [replace(hardware, resident_at=level) for level in resident_levels(hardware)]
        stay = [min(room_for_weights(memory), sum(weight_words(layer, memory) for layer in layers))
                for memory in memories]  # fmt: skip
        for level in (0, *resident_levels(hardware)):
            words[level] -= min(words[level], max(stay, default=0.0))  # in whichever memory most of them stay
    macs, figures = sum(layer.layer.macs for layer in layers), Figures.of([hardware])
    copies = [1 if level.bandwidth_of == "column" else hardware.copies(level) for level in hardware.levels]
    cycles = [macs / hardware.array.elements, *(words / copies / np.asarray(figures.words_per_cycle)[0])]
    energy_pj = macs * hardware.array.mac_pj + float(words @ np.asarray(figures.pj_per_word)[0])
    return SupportedPoint(energy_pj, float(max(cycles)), None)


def _compulsory_words(graph: LayerGraph) -> float:
    """Return the constants of all layers, and the inputs and outputs of the model at layers that have maps."""
    constants = sum(layer.weight_bytes / layer.passes for layer in graph.layers)
    read = 0.0
    for tensor, readers in graph.consumers.items():
        if tensor not in graph.producer:
            forms = [form for reader in readers if (form := graph.layers[reader].form) is not None]
            read += max((read_bits(form, tensor) / 8 for form in forms), default=0.0)
    written = sum(form.result.elements for layer in graph.layers
                  if (form := layer.form) is not None and graph.returned & set(layer.writes))  # fmt: skip
    return constants + read + written


def _multiplier_words(nest: LoopNest, hardware: Hardware) -> np.ndarray:
    """Return the words that the multipliers need from each level on the chip, or leave there, in one run."""
    words = np.zeros(len(hardware.levels))
    for operand, moves in RELEVANT.items():
        innermost = _needed_levels(operand, hardware)[-1]
        if innermost:
            times = 2 if operand == "output" else 1  # a partial sum is read and written
            words[innermost] += times * nest.macs / _most_sharing(nest, hardware, innermost, ~moves)
    return words


def _needed_levels(operand: str, hardware: Hardware) -> list[int]:
    """Return the levels that hold an operand and that it may not bypass."""
    levels = enumerate(hardware.levels)
    return [index for index, level in levels if operand in level.holds - hardware.may_pass(index)]


def _most_sharing(nest: LoopNest, hardware: Hardware, level: int, loops: np.ndarray) -> int:
    """Return how many multipliers at most share a word of a level: copies of loops that do not move it."""
    shared = 1
    for inner in hardware.levels[level:]:
        for fanout in inner.fanouts:
            extents = [nest.bounds[loop] for loop in fanout.loops if loops[LOOPS.index(loop)]]
            shared *= min(getattr(hardware.array, fanout.axis), prod(extents))
    return shared


def _weight_words(nest: LoopNest, hardware: Hardware) -> np.ndarray:
    """Return the words of weights that come into each level on the chip, and go on from there to the next, once."""
    words = np.zeros(len(hardware.levels))
    if nest.has_weight:
        holders = [index for index in _needed_levels("weight", hardware) if index]
        words[holders] += nest.elements["weight"]
        words[holders[:-1]] += nest.elements["weight"]
    return words
