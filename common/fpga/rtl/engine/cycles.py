"""The cycles of a layer on the engine, by its tiles: the kernel model of a plan for the engine as it is built.

Within a tile, the windows of the next ROWS pixels are gathered while the array computes on these. A fold along the
pixels takes

    max(folds along the channels * max(steps, R), words of the windows of R pixels) cycles.

Between tiles, three things go on at the same time: the tile after is loaded, the tile is computed, the one before is
stored; a tile's load waits for the halves of the buffers, its results for the halves of theirs. Loads and stores share
the memory's bus, in the order in which they may begin; where both begin together, its bursts take turns. The first load
and the last store of a layer are in the open.

A transfer of n words takes n * c cycles of the bus, and a miss more for each row of memory that it opens: one at least
for each of its parts that lie apart. All of that grows by the share of time that refreshes take. The latency of a
transfer is added where the bus was idle before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import EngineLayer, EngineNetwork
from common.fpga.rtl.engine.tiling import EngineTile, Piece, Tiling, tilings

# Cycles between the units, as the Verilog has them.
DESCRIPTOR_CYCLES = 4  # from the end of what a descriptor waits for to the first request
WINDOW_CYCLES = 3  # from the last word of the windows to the array's first step
RELEASE_CYCLES = 2  # from the array's last step on some windows to the gathering of others in their place
BURST_CYCLES = 2  # between the requests of two bursts


@dataclass(frozen=True, slots=True)
class PlannedCycles:
    """Cycles of a layer.

    Attributes:
        total: from the end of the layer before to the end of its last store.
        computing: in which the array takes operands.
        gathering: in which it waits for windows.
    """

    total: float
    computing: float
    gathering: float


def best_tilings(network: EngineNetwork, design: EngineDesign, timing: MemoryTiming) -> list[Tiling]:
    """Return the division of each layer that takes the fewest planned cycles.

    Raises:
        PipelineError: a layer does not fit the buffers.
    """
    return [best_tiling(layer, design, timing) for layer in network.layers]


def best_tiling(layer: EngineLayer, design: EngineDesign, timing: MemoryTiming) -> Tiling:
    return min(tilings(layer, design), key=lambda tiling: planned_cycles(tiling, timing).total)


def planned_cycles(tiling: Tiling, timing: MemoryTiming) -> PlannedCycles:
    """Return the cycles of a layer, whose loads begin when all before is over."""
    clock = _Clock(tiling, timing)
    for tile in tiling.tiles:
        clock.compute(tile)
    return PlannedCycles(clock.finish(), clock.computing, clock.gathering)


@dataclass
class _Clock:
    tiling: Tiling
    timing: MemoryTiming
    bus: float = 0.0  # when the memory's bus is free
    gathered: float = 0.0  # when the windows of the tiles so far are gathered
    fed: float = 0.0  # when the array has taken their operands
    freed: float = 0.0  # when the array had taken those of the rows before the last ones
    stored: float = 0.0
    computing: float = 0.0
    gathering: float = 0.0

    def __post_init__(self) -> None:
        self.computed = [0.0, 0.0]
        self.stores = [0.0, 0.0]
        self.waiting: list[tuple[float, EngineTile]] = []  # stores that may begin, and when

    def compute(self, tile: EngineTile) -> None:
        begun = self.computed[-2] + DESCRIPTOR_CYCLES
        loads = self._loads(tile)
        beside = self._bus_cycles(loads)
        # Where loading takes longer than computing, the loads of the tile after follow at once.
        self._store(before=begun, beside=beside if beside < self._array_cycles(tile) else 2 * beside)
        there = self._moved(begun, loads)
        start = max(there, self.gathered, self.stores[-2])
        first = True
        for piece in tile.pieces:
            gather, feed = self._gather_cycles(tile, piece), self._feed_cycles(piece)
            for rows in self._row_counts(tile):
                # Two halves: these windows take the place of those before the last ones.
                self.gathered = max(self.gathered, start, self.freed) + gather * rows
                self.freed = self.fed + RELEASE_CYCLES
                begin = max(self.fed, self.gathered + WINDOW_CYCLES)
                self.gathering += begin - self.fed if not first else 0.0
                self.fed = begin + feed
                self.computing += self._step_cycles(piece)
                first = False
        self.computed.append(self.fed + self._design.latency_cycles)
        self.waiting.append((self.computed[-1] + DESCRIPTOR_CYCLES, tile))

    def finish(self) -> float:
        self._store(before=float("inf"))
        return self.stored

    @property
    def _design(self) -> EngineDesign:
        return self.tiling.design

    def _store(self, before: float, beside: float = 0.0) -> None:
        """Store what may begin before a time; memory serves it in turns with loads of so many cycles ``beside`` it."""
        while self.waiting and self.waiting[0][0] <= before:
            begun, tile = self.waiting.pop(0)
            layer = self.tiling.layer
            words = self.tiling.result_words(tile)
            rows = 1 if tile.folds * self._design.cols >= layer.y.channels else tile.lines * layer.y.width
            self.stored = self._moved(max(begun, self.stored), [(words, rows)])
            bursts = rows * ceil(words / rows / self._design.burst_words)
            self.stored += min(beside, bursts * self._design.burst_words * self.timing.word_cycles)
            self.stores.append(self.stored)

    def _loads(self, tile: EngineTile) -> list[tuple[int, int]]:
        """Return the words and the rows of each load of a tile."""
        tiling, layer = self.tiling, self.tiling.layer
        loads = []
        if tile.loads_weights:
            loads += [(tiling.weight_words(tile), 1), (tiling.constant_words(tile), 1)]
        if tile.loads_input:
            loads.append((tiling.input_words(tile), 1))
        if layer.residual:
            is_whole = tile.folds * self._design.cols >= layer.y.channels
            loads.append((tiling.result_words(tile), 1 if is_whole else tile.lines * layer.y.width))
        return loads

    def _moved(self, begun: float, moves: list[tuple[int, int]]) -> float:
        """Return when the last of several transfers is over that may begin at a time; they use the bus."""
        if not moves:
            return begun
        start = max(begun, self.bus)
        self.bus = start + self._bus_cycles(moves)
        return self.bus + self.timing.latency_cycles

    def _bus_cycles(self, moves: list[tuple[int, int]]) -> float:
        return sum(transfer_cycles(words, rows, self._design, self.timing) for words, rows in moves)

    def _array_cycles(self, tile: EngineTile) -> int:
        return self.tiling.row_folds(tile) * sum(self._feed_cycles(piece) for piece in tile.pieces)

    def _row_counts(self, tile: EngineTile) -> list[int]:
        pixels, rows = tile.lines * self.tiling.layer.y.width, self._design.rows
        return [min(rows, pixels - start) for start in range(0, pixels, rows)]

    def _gather_cycles(self, tile: EngineTile, piece: Piece) -> int:
        """Return the cycles to gather the window of one pixel: a word per cycle."""
        return self.tiling.window * piece.words

    def _feed_cycles(self, piece: Piece) -> int:
        if self.tiling.layer.weights is None:
            return 0
        return piece.folds * max(self.tiling.steps(piece), self._design.rows)

    def _step_cycles(self, piece: Piece) -> int:
        return 0 if self.tiling.layer.weights is None else piece.folds * self.tiling.steps(piece)


def transfer_cycles(words: int, rows: int, design: EngineDesign, timing: MemoryTiming) -> float:
    """Return the cycles of the memory's bus for some words, in ``rows`` that lie apart."""
    per_row = ceil(words / rows)
    bursts = rows * ceil(per_row / design.burst_words)
    opened = max(rows, words * design.word_bytes / timing.row_bytes)
    moving = max(words * timing.word_cycles, bursts * BURST_CYCLES) + opened * timing.row_miss_cycles
    interval = timing.refresh_interval_cycles
    return moving / (1 - timing.refresh_cycles / interval) if interval else moving
