"""The cycles of a layer on the engine, by its tiles: the kernel model of a plan for the engine as it is built.

Within a tile, the windows of the next ROWS pixels are gathered while the array computes on these. A fold along the
pixels takes

    max(folds along the channels * max(steps, R), words of the windows of R pixels) cycles.

Between tiles, three things go on at the same time: the tile after is loaded, the tile is computed, the one before is
stored; a tile's load waits for the halves of the buffers, its results for the halves of theirs. Loads and stores share
the memory's bus, in the order in which they may begin; where both begin together, its bursts take turns. The first load
and the last store of a layer are in the open.

A transfer of n words takes n * c cycles of the bus, and a miss more for each row of memory that it opens: of parts that
lie apart, one for each row between the first and the last of them, and at most one for each part. All of that grows by
the share of time that refreshes take. The latency of a transfer is added where the bus was idle before.

Row-wise work reads each row once for each pass, a word per cycle, and works on the row's sums between two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from common.fpga.rtl.engine.design import EngineDesign, words_of
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import EngineLayer, EngineNetwork, EngineTensor
from common.fpga.rtl.engine.tiling import EngineTile, Piece, Tiling, tilings

# Cycles between the units, as the Verilog has them.
DESCRIPTOR_CYCLES = 4  # from the end of what a descriptor waits for to the first request
WINDOW_CYCLES = 3  # from the last word of the windows to the array's first step
RELEASE_CYCLES = 2  # from the array's last step on some windows to the gathering of others in their place
BURST_CYCLES = 2  # between the requests of two bursts
PASS_GAP_CYCLES = 7  # between two passes over a row
ROW_PASSES = {"table": (1, 0), "softmax": (3, 24), "normalization": (2, 41)}  # and cycles of the work on a row's sums
ROW_LATENCY_CYCLES = 7  # from the last pass to the end of the call


@dataclass(frozen=True, slots=True)
class Move:
    """Words that are loaded or stored, in ``rows`` that begin so many bytes one behind the other."""

    words: int
    rows: int = 1
    stride_bytes: int = 0


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
        if self.tiling.layer.rows:
            self._over(tile, max(start, self.computed[-1]) + row_cycles(self.tiling, tile))
            return
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
        self._over(tile, self.fed + self._design.latency_cycles)

    def _over(self, tile: EngineTile, cycle: float) -> None:
        self.computed.append(cycle)
        self.waiting.append((cycle + DESCRIPTOR_CYCLES, tile))

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
            move = self._results(tile)
            self.stored = self._moved(max(begun, self.stored), [move])
            bursts = move.rows * ceil(move.words / move.rows / self._design.burst_words)
            self.stored += min(beside, bursts * self._design.burst_words * self.timing.word_cycles)
            self.stores.append(self.stored)

    def _loads(self, tile: EngineTile) -> list[Move]:
        tiling, layer = self.tiling, self.tiling.layer
        loads = []
        if tile.loads_weights:
            if layer.second:
                each = [tiling.second_rows(*place) for place in tiling.second_loads(tile)]
                loads += [self._move(layer.second.tensor, rows, words) for rows, words in each]
            elif layer.rows:
                if layer.rows.table.size:
                    loads.append(Move(layer.rows.table.nbytes // self._design.word_bytes))
            else:
                loads.append(Move(tiling.weight_words(tile)))
            loads.append(Move(tiling.constant_words(tile)))
        if tile.loads_input:
            _, lines = tiling.band(tile)
            loads.append(self._move(layer.x, lines * layer.x.width, tiling.pitch))
        if layer.residual:
            loads.append(self._results(tile))
        return loads

    def _results(self, tile: EngineTile) -> Move:
        y = self.tiling.layer.y
        return self._move(y, tile.lines * y.width, tile.folds * self._design.words_per_fold)

    def _move(self, tensor: EngineTensor, rows: int, words: int) -> Move:
        """Return the transfer of so many words of each of some pixels of a tensor."""
        stride = words_of(tensor.whole.channels, self._design)
        return Move(rows * words) if words == stride else Move(rows * words, rows, stride * self._design.word_bytes)

    def _moved(self, begun: float, moves: list[Move]) -> float:
        """Return when the last of several transfers is over that may begin at a time; they use the bus."""
        if not moves:
            return begun
        start = max(begun, self.bus)
        self.bus = start + self._bus_cycles(moves)
        return self.bus + self.timing.latency_cycles

    def _bus_cycles(self, moves: list[Move]) -> float:
        return sum(transfer_cycles(move, self._design, self.timing) for move in moves)

    def _array_cycles(self, tile: EngineTile) -> int:
        if self.tiling.layer.rows:
            return row_cycles(self.tiling, tile)
        return self.tiling.row_folds(tile) * sum(self._feed_cycles(piece) for piece in tile.pieces)

    def _row_counts(self, tile: EngineTile) -> list[int]:
        pixels, rows = tile.lines * self.tiling.layer.y.width, self._design.rows
        return [min(rows, pixels - start) for start in range(0, pixels, rows)]

    def _gather_cycles(self, tile: EngineTile, piece: Piece) -> int:
        """Return the cycles to gather the window of one pixel: a word per cycle."""
        return self.tiling.window * piece.words

    def _feed_cycles(self, piece: Piece) -> int:
        if not self.tiling.layer.is_product:
            return 0
        return piece.folds * max(self.tiling.steps(piece), self._design.rows)

    def _step_cycles(self, piece: Piece) -> int:
        return piece.folds * self.tiling.steps(piece) if self.tiling.layer.is_product else 0


def row_cycles(tiling: Tiling, tile: EngineTile) -> int:
    """Return the cycles of the row-wise work of a tile: for each row some passes, and the work on what they found."""
    work, words = tiling.layer.rows, tiling.pitch
    assert work is not None
    rows = tile.lines * tiling.layer.x.width
    if work.kind == "table":
        rows, words = 1, rows * words
    passes, scalar = ROW_PASSES[work.kind]
    return rows * (passes * (words + PASS_GAP_CYCLES) + scalar) + ROW_LATENCY_CYCLES


def transfer_cycles(move: Move, design: EngineDesign, timing: MemoryTiming) -> float:
    """Return the cycles of the memory's bus for a transfer."""
    bursts = move.rows * ceil(move.words / move.rows / design.burst_words)
    spread = 1 + (move.rows - 1) * min(1.0, move.stride_bytes / timing.row_bytes)
    opened = max(spread, move.words * design.word_bytes / timing.row_bytes)
    moving = max(move.words * timing.word_cycles, bursts * BURST_CYCLES) + opened * timing.row_miss_cycles
    interval = timing.refresh_interval_cycles
    return moving / (1 - timing.refresh_cycles / interval) if interval else moving
