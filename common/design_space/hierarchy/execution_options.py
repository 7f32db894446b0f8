"""The execution options of a layer on an accelerator with several memories: which of its tensors are on the chip."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations, product

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.hierarchy.staying_weights import weight_words
from common.design_space.mapping.cost import StreamCost, stream_cost
from common.design_space.mapping.placement import Placement, resident_level, side_streams
from common.design_space.mapping.space.nest_fronts import Setting
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Places:
    """Places of the tensors of a layer; those that are not named are in DRAM."""

    inherited: frozenset[str] = NOTHING  # tensors that it reads on the chip, where an earlier layer left them
    copied: frozenset[str] = NOTHING  # tensors that it reads after they were copied from DRAM to the chip, as a whole
    left: frozenset[str] = NOTHING  # tensors that it writes and leaves on the chip
    saved: frozenset[str] = NOTHING  # those of ``left`` that are copied to DRAM too
    begin_words: float = 0.0  # words of all resident maps when it begins, those of other layers included
    resident_words: float = 0.0  # words of all resident maps while it runs, and of resident weights
    weights_stay: bool = False  # whether its own weights are on the chip from one inference to the next
    keeps_scores: bool = False  # whether what is between the two products of its attention is on the chip


@dataclass(frozen=True, slots=True)
class RowTiles:
    """Layers that run together, depth first, and the rows of a tile of the last layers' results.

    ``resident_weights`` says of each layer whether its weights are resident.
    """

    layers: tuple[int, ...]
    rows: int
    resident_weights: tuple[bool, ...]


@dataclass(frozen=True)
class ExecutionOption:
    """One way to run a layer, or those of its row tiles that are alike."""

    layer: int  # index of the layer
    places: Places
    nests: Mapping[str, LoopNest]
    setting: Setting
    runs: int  # how often the nests run
    # Words at each level, of all runs, that no nest moves: beside the only nest, or after all nests
    side_words: tuple[tuple[float, ...], ...]
    stream: StreamCost | None  # what they cost where they move after the nests
    row_tiles: RowTiles | None = None  # those that it is part of; None for a layer that runs alone
    settings: Mapping[str, Setting] = field(default_factory=dict)  # of nests that do not have ``setting``

    def setting_of(self, nest: str) -> Setting:
        return self.settings.get(nest, self.setting)

    @property
    def stream_cycles(self) -> float:
        return self.stream.cycles if self.stream else 0.0

    @property
    def stream_energy_pj(self) -> float:
        return self.stream.energy_pj if self.stream else 0.0


def execution_option(
    index: int, layer: ModelLayer, places: Places, hardware: Hardware, sizes: Mapping[str, int]
) -> ExecutionOption:
    """Return how a layer runs with its tensors in given places; ``sizes`` are the words of each tensor."""
    read_here = places.inherited | places.copied
    streams = [(words, name in read_here) for name, words in layer.reads.items()]
    streams += [(words, name in places.left) for name, words in layer.written_beside.items()]
    passed_on = [layer.passed_on] if places.keeps_scores else []
    constants = [layer.constants - sum(passed_on)] if layer.constants or passed_on else []
    in_memory = [*constants, *(words for words, is_here in streams if not is_here)]
    on_chip = [*(words for words, is_here in streams if is_here), *passed_on]
    words = side_streams(hardware, in_memory, on_chip, [sizes[name] for name in sorted(places.copied | places.saved)])
    operands = {"weight"} if places.weights_stay else set()
    if not layer.has_epilogue:
        setting = (Placement(frozenset(operands)), places.resident_words)
        stream = stream_cost(words, layer.macs, hardware)
        own = dict[str, Setting]()
        if places.keeps_scores:
            ends = (frozenset({"output"}), frozenset({"input"}))
            own = {name: (Placement(end), places.resident_words) for name, end in zip(layer.nests, ends, strict=True)}
        return ExecutionOption(index, places, layer.nests, setting, layer.layer.passes, words, stream, settings=own)
    operands |= {"input"} if layer.source in read_here else set()
    operands |= {"output"} if places.left else set()
    placement = Placement(frozenset(operands), words if any(words) else ())  # a cache may know the nest alone
    return ExecutionOption(index, places, layer.nests, (placement, places.resident_words), 1, words, None)


class LayerPlaces:
    """Every choice of places for the tensors of each layer of a model.

    The weights of the layers ``staying`` stay on the chip from one inference to the next, and take their room all the
    time.
    """

    most_resident: float = math.inf  # tensors at once

    def __init__(
        self,
        graph: LayerGraph,
        layers: Sequence[ModelLayer],
        hardware: Hardware,
        *,
        keeps: bool,
        staying: frozenset[int] = frozenset(),
    ) -> None:
        """Prepare the choices; without ``keeps`` everything is in DRAM."""
        chip_level = resident_level(hardware) if keeps else None
        self.graph, self.layers, self.staying = graph, layers, staying
        self.staying_weight_words = sum(weight_words(layers[index], hardware) for index in staying)
        # Words that maps may take on the chip; 0 where none may be resident.
        self.capacity = 0.0 if chip_level is None else hardware.levels[chip_level].capacity_words
        self.sizes: dict[str, int] = {}  # words of each tensor
        for layer in layers:
            words = [*layer.layer.reads.items(), *layer.layer.writes.items()]
            if layer.source and layer.layer.form is not None:
                words.append((layer.source, layer.layer.form.below.elements))
            for name, size in words:
                self.sizes[name] = max(self.sizes.get(name, 0), size)

    def limited_to(self, most_resident: float) -> LayerPlaces:
        limited = copy(self)
        limited.most_resident = most_resident
        return limited

    def can_be_resident(self, index: int) -> bool:
        """Return whether the tensors of a layer may be on the chip: its only nest is a map's, or it has none."""
        layer = self.layers[index]
        return bool(self.capacity) and layer.layer.passes == 1 and (bool(layer.source) or not layer.nests)

    def readers(self, tensor: str, done: int) -> list[int]:
        """Return the layers that have not read a tensor yet."""
        return [reader for reader in self.graph.consumers.get(tensor, ()) if not done >> reader & 1]

    def words(self, tensors: Collection[str]) -> float:
        return float(sum(self.sizes[name] for name in tensors))

    def of_layer(self, index: int, resident: Mapping[str, bool], done: int) -> Iterator[Places]:
        """Yield the places that the tensors of a layer may have.

        Args:
            resident: resident tensors, and whether each is in DRAM too.
            done: the layers that have run, this one included, as a bit set.
        """
        reads, before, stays = self.layers[index].layer.reads, self.words(resident), index in self.staying
        if not self.can_be_resident(index):
            if all(resident.get(name, True) for name in reads):
                words = before + self.staying_weight_words
                yield Places(begin_words=before, resident_words=words, weights_stay=stays)
                scores = 2 * self.layers[index].score_words  # an operator between the products reads and writes them
                if scores and words + scores <= self.capacity:
                    yield Places(begin_words=before, resident_words=words + scores, keeps_scores=True)
            return
        inherited = frozenset(name for name in reads if name in resident)
        new = (name for name in reads if name not in resident and self.sizes[name])
        for copied in _subsets(new, self.most_resident - len(resident)):
            for left, saved in self.results([index], done):
                words = before + self.words(copied) + self.words(left) + self.staying_weight_words
                if words <= self.capacity:
                    yield Places(inherited, copied, left, saved, before, words, stays)

    def results(self, layers: Iterable[int], done: int) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Yield the results of layers that stay on the chip, and those of them that are copied to DRAM."""
        choices = []
        for name in (name for index in layers for name in self.layers[index].layer.writes):
            readers, options = self.readers(name, done), [(NOTHING, NOTHING)]
            tensor = frozenset({name})
            if any(map(self.can_be_resident, readers)):
                options.append((tensor, tensor))
                if name not in self.graph.returned and all(map(self.can_be_resident, readers)):
                    options.append((tensor, NOTHING))
            choices.append(options)
        for chosen in product(*choices):
            yield NOTHING.union(*(left for left, _ in chosen)), NOTHING.union(*(saved for _, saved in chosen))

    def afterwards(self, resident: Mapping[str, bool], places: Places, done: int) -> Iterator[dict[str, bool]]:
        """Yield the possible resident tensors after a layer: those with readers left, and any of the copies."""
        copies = dict.fromkeys(places.copied, True) | {name: name in places.saved for name in places.left}
        needed = {
            name: is_saved
            for name, is_saved in {**resident, **copies}.items()
            if any(map(self.can_be_resident, self.readers(name, done)))
        }
        saved = [name for name, is_saved in needed.items() if is_saved]
        for kept in _subsets(saved, self.most_resident - len(needed) + len(saved)):
            yield {name: is_saved for name, is_saved in needed.items() if not is_saved or name in kept}


def _subsets(names: Iterable[str], most: float) -> Iterator[frozenset[str]]:
    """Return the sets of at most so many of the names; none where ``most`` is negative."""
    known = tuple(names)
    counts = (count for count in range(len(known) + 1) if count <= most)
    return (frozenset(chosen) for count in counts for chosen in combinations(known, count))
