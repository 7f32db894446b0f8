"""The cycles of a layer on the engine, by its tiles: the kernel model of a plan for the engine as it is built.

Within a tile, the windows of the next ROWS pixels are gathered while the array computes on these. A fold along the
pixels takes

    max(folds along the channels * max(steps, R), words of the windows of R pixels) cycles.

Three things go on at the same time: a tile is computed, the next one is loaded, and the one before is stored. A load
waits until one half of its buffer is free, and so do the results. Loads and stores share the memory's bus: where both
are under way, their bursts take turns, and where both are in one bank, each closes the row of the other one. Nothing
hides the first load and the last store of a layer.

The host gives the descriptors of all units one after the other. Where the queue of a unit is full, it waits, and so
does all that it gives after that: the loads of a tile behind the many calls of the tile before, for example.

A transfer of n words takes n * c cycles of the bus, and the cycles of a miss for each row of memory that it opens: the
rows that are open in each bank follow from the addresses of all earlier transfers of the layer. All of that grows by
the share of time that refreshes take, each of which closes all rows. The latency of a transfer is added where the bus
was idle before.

Row-wise work reads each row once for each pass, a word per cycle, and works on the row's sums between two passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import ceil, inf

from common.fpga.rtl.engine.design import COMPUTE_WORDS, LOAD_WORDS, STORE_WORDS, EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming, OpenRows
from common.fpga.rtl.engine.network import EngineNetwork
from common.fpga.rtl.engine.places import MemoryPlaces, Transfer, loads_of, pixels_of
from common.fpga.rtl.engine.tiling import EngineTile, Tiling, tilings

# Cycles between the units, as the Verilog has them.
DESCRIPTOR_CYCLES = 4  # from the end of what a descriptor waits for to the first request
WINDOW_CYCLES = 3  # from the last word of the windows to the array's first step
RELEASE_CYCLES = 2  # from the array's last step on some windows to the gathering of others in their place
ANSWER_CYCLES = 2  # from the end of a store's last burst to that of its descriptor
UNDER_WAY = 8  # bursts of loads
RETURN_CYCLES = 4  # from the end of a burst to the request of the one that takes its place
BURST_CYCLES = 2  # between the requests of two bursts
HOST_CYCLES = 2  # for a word of a descriptor on the host's bus
QUEUE_WORDS = 512  # of descriptors of a unit that wait
UNIT_WORDS = {"load": LOAD_WORDS, "compute": COMPUTE_WORDS, "store": STORE_WORDS}
FIRST_GIVEN = -HOST_CYCLES * LOAD_WORDS  # the cycles of a network begin with its first descriptor
FETCH_CYCLES = COMPUTE_WORDS + 2  # from the begin of a call to that of the next one, whose descriptor waits
CALL_CYCLES = {True: 2, False: 3}  # from the last word of a call's windows to the first of the next: products, maxima
PASS_GAP_CYCLES = 7  # between two passes over a row
ROW_PASSES = {"table": (1, 0), "softmax": (3, 24), "normalization": (2, 41)}  # and cycles of the work on a row's sums
NO_CYCLES = 1e-9  # what is left of a transfer that is over
ROW_LATENCY_CYCLES = 7  # from the last pass to the end of the call


@dataclass(frozen=True, slots=True)
class PlannedCycles:
    """Cycles of a layer."""

    total: float  # from the end of the layer before to the end of its last store
    computing: float  # in which the array takes operands
    gathering: float  # in which it waits for windows


@dataclass
class DescriptorQueues:
    """The host, which gives descriptors in their order, and the units, which take them.

    Times are cycles since a layer began. A unit holds its next descriptor, and a ring of words those behind it.
    """

    now: float = -inf  # when the host has given all so far
    _coming: deque[str] = field(default_factory=deque)  # the units of what it gives next
    _given: dict[str, deque[float]] = field(default_factory=lambda: {unit: deque() for unit in UNIT_WORDS})
    _taken: dict[str, deque[float]] = field(
        default_factory=lambda: {unit: deque(maxlen=1 + QUEUE_WORDS // words) for unit, words in UNIT_WORDS.items()}
    )

    def add(self, units: Iterable[str]) -> None:
        """Let the host give a descriptor to each of some units."""
        self._coming.extend(units)

    def when(self, unit: str) -> float:
        """Return when a unit has its next descriptor; infinity if that depends on others that are not taken yet."""
        while not self._given[unit]:
            to = self._coming[0]
            words, given, taken = UNIT_WORDS[to], self._given[to], self._taken[to]
            makes_room = len(given) + len(taken) - (taken.maxlen or 0)  # index of the taken one whose slot becomes free
            if makes_room >= len(taken):
                return inf
            now = self.now + words * HOST_CYCLES
            if makes_room >= 0:
                now = max(now, taken[makes_room] + (words - QUEUE_WORDS % words) * HOST_CYCLES)
            self.now = now
            given.append(now)
            self._coming.popleft()
        return self._given[unit][0]

    def take(self, unit: str, time: float) -> None:
        """Let a unit take its next descriptor."""
        self._given[unit].popleft()
        self._taken[unit].append(time)

    def later(self, cycles: float) -> DescriptorQueues:
        """Return these queues with times that count from so many cycles later."""
        taken = {unit: deque((time - cycles for time in old), old.maxlen) for unit, old in self._taken.items()}
        return DescriptorQueues(self.now - cycles, _taken=taken)


def best_tilings(network: EngineNetwork, design: EngineDesign, timing: MemoryTiming) -> list[Tiling]:
    """Return the division of each layer that takes the fewest planned cycles.

    Raises:
        PipelineError: a layer does not fit the buffers.
    """
    places, queues, chosen = MemoryPlaces.of(network, design), DescriptorQueues(FIRST_GIVEN), []
    for layer in network.layers:
        planned = [
            (planned_cycles(tiling, timing, copy(places), queues.later(0)).total, tiling)
            for tiling in tilings(layer, design)
        ]
        _, best = min(planned, key=lambda pair: pair[0])
        taken = planned_cycles(best, timing, places, queues)  # it takes its room and its descriptors
        queues = queues.later(taken.total)
        chosen.append(best)
    return chosen


def network_cycles(network: EngineNetwork, divided: Sequence[Tiling], timing: MemoryTiming) -> list[PlannedCycles]:
    """Return the cycles of each layer of a network that is divided as given."""
    places, queues, found = MemoryPlaces.of(network, divided[0].design), DescriptorQueues(FIRST_GIVEN), []
    for tiling in divided:
        found.append(planned_cycles(tiling, timing, places, queues))
        queues = queues.later(found[-1].total)
    return found


def planned_cycles(
    tiling: Tiling, timing: MemoryTiming, places: MemoryPlaces | None = None, queues: DescriptorQueues | None = None
) -> PlannedCycles:
    """Return the cycles of a layer, whose loads begin when all before is over.

    Its weights and constants take room in ``places``, where the tensors of its network are. Its descriptors go through
    ``queues``; without these, the host is as far ahead as the queues have room.
    """
    clock = _Clock(tiling, timing, places or MemoryPlaces(tiling.design), queues or DescriptorQueues())
    return PlannedCycles(clock.run(), clock.computing, clock.gathering)


@dataclass
class _Job:
    """Transfers of a tile on the memory's bus, which follow one another."""

    begins: float  # when the first one may
    left: float  # cycles of the bus that they still take
    burst: float  # cycles of one of their bursts
    # Of each transfer, its share of the bursts and the banks whose rows it opens
    banks: list[tuple[float, frozenset[int]]]

    def closes(self, other: _Job) -> float:
        """Return the share of their turns in which one of two jobs closes the row of the other one."""
        return sum(
            own_share * other_share * len(own & banks) / (len(own) * len(banks))
            for own_share, own in self.banks
            for other_share, banks in other.banks
        )


@dataclass
class _Clock:
    tiling: Tiling
    timing: MemoryTiming
    places: MemoryPlaces
    queues: DescriptorQueues
    gathered: float = 0.0  # when the windows of the tiles so far are gathered
    fed: float = 0.0  # when the array has taken their operands
    freed: float = 0.0  # when the array had taken those of the rows before the last ones
    computing: float = 0.0
    gathering: float = 0.0
    taken: float = -inf  # when the last call was

    def __post_init__(self) -> None:
        # Of each tile, when it is loaded, computed and stored, and when the bus is free of its transfers.
        self.loaded: list[float] = []
        self.computed: list[float] = []
        self.stored: list[float] = []
        self.load_free = self.store_free = 0.0
        self.left = [0.0, 0.0]  # when the sums of each piece have left: of two, they may be under way
        self.rows, self.refreshes = OpenRows(self.timing), 0
        self.weights: dict[int, tuple[int, int]] = {}  # addresses of blocks, by their first fold
        self.moves: list[list[Transfer]] = []  # what each tile loads, of the tiles that the host knows

    def run(self) -> float:
        """Return when the last tile is stored."""
        load: _Job | None = None
        store: _Job | None = None
        now = 0.0
        while len(self.stored) < len(self.tiling.tiles):
            # Tiles that are loaded, and for whose results there is room.
            while len(self.computed) < min(len(self.loaded), len(self.stored) + 2):
                self.computed.append(self._computed(len(self.computed)))
            load, store = load or self._next_load(), store or self._next_store()
            now = self._advance(now, [job for job in (load, store) if job])
            if load and load.left <= 0:
                self.load_free, load = now, None
                self.loaded.append(now + self.timing.latency_cycles)
            if store and store.left <= 0:
                self.store_free, store = now, None
                self.stored.append(now + ANSWER_CYCLES)
        return self.stored[-1]

    def _advance(self, now: float, jobs: list[_Job]) -> float:
        """Let the bus work until a job begins or is over; return when that is. Bursts of two jobs take turns."""
        active = [job for job in jobs if job.begins <= now]
        coming = [job.begins for job in jobs if job.begins > now]
        if not active:
            return min(coming)
        turn = sum(job.burst for job in active)
        if len(active) > 1:
            turn += 2 * self.timing.row_miss_cycles * active[0].closes(active[1])
        step = min([*(job.left / (job.burst / turn) for job in active), *(begins - now for begins in coming)])
        for job in active:
            left = job.left - step * (job.burst / turn)
            job.left = left if left >= NO_CYCLES else 0.0
        return now + step

    def _next_load(self) -> _Job | None:
        """Return the loads of the next tile, which wait for the tile before the last one to be computed."""
        place = len(self.loaded)
        if place == len(self.tiling.tiles) or place > len(self.computed) + 1:
            return None
        free = self.computed[place - 2] if place > 1 else 0.0
        if place == len(self.moves):
            tile = self.tiling.tiles[place]
            loads = loads_of(self.tiling, tile, self.places, self._packed(tile))
            self.moves.append([load.joined(self._design.word_bytes) for load in loads])
            self.queues.add(["load"] * len(self.moves[-1]) + ["compute"] * len(tile.pieces) + ["store"])
        moves = self.moves[place]
        if not moves:
            self.loaded.append(max(free, self.loaded[-1]))
            return self._next_load()
        begins = max(max(free, self.queues.when("load")) + DESCRIPTOR_CYCLES, self.load_free)
        if begins == inf:
            return None
        for _ in moves:
            self.queues.take("load", max(begins, self.queues.when("load")))
        return self._job(begins, moves, self.timing.latency_cycles)

    def _next_store(self) -> _Job | None:
        place = len(self.stored)
        if place == len(self.computed):
            return None
        results = pixels_of(self.tiling, self.tiling.tiles[place], self.places, self.tiling.layer.y)
        move = results.joined(self._design.word_bytes)
        # A burst begins when all of its words are there.
        begins = max(self.computed[place], self.queues.when("store")) + DESCRIPTOR_CYCLES
        self.queues.take("store", begins)
        begins += min(move.words, self._design.burst_words)
        return self._job(max(begins, self.store_free), [move], 0.0)

    def _job(self, begins: float, moves: list[Transfer], latency: float) -> _Job:
        """Return transfers on the bus; where many short bursts have a long latency, they wait for each other."""
        timing, count = self.timing, sum(bursts_of(move, self._design) for move in moves)
        taken = {True: 0.0, False: 0.0}  # by short bursts and by long ones
        short = 0
        for move in moves:
            bursts, cycles = bursts_of(move, self._design), word_cycles(move, self._design, timing)
            is_short = cycles / bursts < (latency + RETURN_CYCLES) / UNDER_WAY
            taken[is_short] += cycles
            short += bursts if is_short else 0
        among = short + min(count - short, UNDER_WAY)  # what a short burst may wait for
        rounds = ceil(among / UNDER_WAY) - 1 if latency and short else 0
        waiting = rounds * (latency + RETURN_CYCLES + taken[True] / max(short, 1))
        left = taken[False] + max(taken[True], waiting)
        left += sum(self._misses(move, begins) for move in moves) * timing.row_miss_cycles
        if timing.refresh_interval_cycles:
            left /= 1 - timing.refresh_cycles / timing.refresh_interval_cycles
        banks = [(bursts_of(move, self._design) / count, self._banks(move)) for move in moves]
        return _Job(begins, left, left / count, banks)

    def _banks(self, move: Transfer) -> frozenset[int]:
        size = move.rows * max(move.words * self._design.word_bytes, move.stride_bytes)
        first, end = move.address // self.timing.row_bytes, (move.address + size - 1) // self.timing.row_bytes + 1
        count = self.timing.bank_count
        return frozenset(row % count for row in range(first, min(end, first + count)))

    def _misses(self, move: Transfer, start: float) -> int:
        """Return the rows that a transfer opens, and keep them."""
        timing, size = self.timing, self._design.word_bytes
        interval = timing.refresh_interval_cycles
        if interval and start // interval > self.refreshes:
            self.refreshes = int(start // interval)
            self.rows.close()
        return self.rows.misses(move.address, move.words * size, move.rows, move.stride_bytes)

    def _computed(self, place: int) -> float:
        """Return when a tile is computed."""
        tiling, tile = self.tiling, self.tiling.tiles[place]
        room = self.stored[place - 2] if place > 1 else 0.0
        start = max(self.loaded[place], self.gathered, room)
        if tiling.layer.rows:
            return self._take_call(max([start, *self.computed[-1:]])) + row_cycles(tiling, tile)
        pixels, is_product, first = tile.lines * tiling.layer.y.width, tiling.layer.is_product, True
        for piece in tile.pieces:
            gather = tiling.window * piece.words  # of the window of one pixel: a word per cycle
            steps = tiling.steps(piece) if is_product else 0
            feed = piece.folds * max(steps, self._design.rows) if is_product else 0
            self.gathered = self._take_call(max(start, self.gathered + CALL_CYCLES[is_product]))
            self.fed = max(self.fed, self.left[-2])
            for begun in range(0, pixels, self._design.rows):
                rows = min(self._design.rows, pixels - begun)
                # Two halves: these windows take the place of those before the last ones.
                self.gathered = max(self.gathered, self.freed) + gather * rows
                self.freed = self.fed + RELEASE_CYCLES
                begin = max(self.fed, self.gathered + WINDOW_CYCLES)
                self.gathering += begin - self.fed if not first else 0.0
                self.fed = begin + feed
                self.computing += piece.folds * steps
                first = False
            self.left.append(self.fed + (self._design.latency_cycles if is_product else 0))
        return self.left[-1]

    def _take_call(self, earliest: float) -> float:
        """Return when the compute unit takes its next descriptor."""
        self.taken = max(earliest, self.queues.when("compute"), self.taken + FETCH_CYCLES)
        self.queues.take("compute", self.taken)
        return self.taken

    @property
    def _design(self) -> EngineDesign:
        return self.tiling.design

    def _packed(self, tile: EngineTile) -> tuple[int, int]:
        """Return the addresses of a block's weights and constants, which it gets with its first tile."""
        if tile.loads_weights and tile.first_fold not in self.weights:
            words = self.tiling.packed_words(tile), self.tiling.constant_words(tile)
            first, second = (self.places.allocate(each * self._design.word_bytes) for each in words)
            self.weights[tile.first_fold] = first, second
        return self.weights.get(tile.first_fold, (0, 0))


def row_cycles(tiling: Tiling, tile: EngineTile) -> int:
    """Return the cycles of the row-wise work of a tile: for each row some passes, and the work on what they found."""
    work, words = tiling.layer.rows, tiling.pitch
    assert work is not None
    rows = tile.lines * tiling.layer.x.width
    if work.kind == "table":
        rows, words = 1, rows * words
    passes, scalar = ROW_PASSES[work.kind]
    return rows * (passes * (words + PASS_GAP_CYCLES) + scalar) + ROW_LATENCY_CYCLES


def bursts_of(move: Transfer, design: EngineDesign) -> int:
    return move.rows * ceil(move.words / design.burst_words)


def word_cycles(move: Transfer, design: EngineDesign, timing: MemoryTiming) -> float:
    """Return the cycles of the words of a transfer on the memory's bus, or of the requests of its bursts."""
    return max(move.rows * move.words * timing.word_cycles, bursts_of(move, design) * BURST_CYCLES)
