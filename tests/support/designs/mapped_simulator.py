"""Executes the schedule of a model on an accelerator with several memories, element by element, and counts words.

It knows no formula of traffic: a tile holds the elements that its points touch, and whatever is not on the chip is
moved. It fails where a layer reads what is not there, where sums leave the accumulators for a place that keeps final
results, or where a result is incomplete.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace

from common.design_space.groups.tiled_group import tiled_group
from tests.support.designs.tile_simulator import GroupRun

LOOPS = "NGKCPQRS"
MOVES = {"input": "NGCPQRS", "weight": "GKCRS", "output": "NGKPQ"}


@dataclass
class NestCounts:
    """Words at DRAM by operand, and the most words of the tiles in the scratchpad and in one accumulator."""

    dram: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MOVES, 0))
    scratchpad_peak: int = 0
    accumulator_peak: int = 0


@dataclass
class Counts:
    """What an execution moved at DRAM: one run of each nest by step, all else; and the most in the scratchpad."""

    nests: dict[int, dict[str, NestCounts]] = field(default_factory=dict)
    runs: Counter = field(default_factory=Counter)
    beside: Counter = field(default_factory=Counter)
    peak: int = 0


def run_schedule(graph, schedule):
    """Run the layers one after the other. Tensors leave the scratchpad when no later layer finds them there."""
    return Run(graph, schedule.steps).run()


class Run:
    """One execution: the words of the tensors that are resident as a whole, and the tensors that are in DRAM."""

    def __init__(self, graph, steps):
        self.graph, self.steps, self.counts = graph, steps, Counts()
        self.chip: dict[str, int] = {}
        self.memory = set(graph.consumers) - set(graph.producer)
        self.written: set[str] = set()

    def run(self):
        at = 0
        while at < len(self.steps):
            row_tiles = self.steps[at].option.row_tiles
            together = [at]
            while (
                row_tiles
                and together[-1] + 1 < len(self.steps)
                and self.steps[together[-1] + 1].option.row_tiles == row_tiles
            ):
                together.append(together[-1] + 1)
            if row_tiles:
                RowTiled(self, together, row_tiles).run()
            else:
                self.whole(at)
            at = together[-1] + 1
            later = self.steps[at:]
            self.chip = {tensor: words for tensor, words in self.chip.items() if is_found(tensor, later)}
        assert self.graph.returned <= self.memory
        assert self.written == set(self.graph.producer)
        return self.counts

    def measure(self, at, between, tiles):
        resident = sum(self.chip.values()) + between
        assert resident <= self.steps[at].option.places.resident_words
        self.counts.peak = max(self.counts.peak, resident + tiles)

    def nest(self, at, on_chip):
        """Run the nests of a step once; runs that are alike are counted, not repeated."""
        self.counts.runs[at] += 1
        if at not in self.counts.nests:
            points, nests = self.steps[at].points, self.steps[at].option.nests
            self.counts.nests[at] = {name: run_nest(nests[name], one.choice, on_chip) for name, one in points.items()}
        return max((nest.scratchpad_peak for nest in self.counts.nests[at].values()), default=0)

    def whole(self, at):
        """Run a whole layer."""
        step = self.steps[at]
        places, layer = step.option.places, step.layer
        assert places.inherited <= set(self.chip), "a layer finds on the chip what is not there"
        assert places.copied <= self.memory
        assert places.saved <= places.left <= set(layer.layer.writes)
        beside = layer.constants
        for tensor in places.copied:
            self.chip[tensor] = size_of(layer, tensor)
            beside += self.chip[tensor]
        for tensor in layer.layer.reads:
            assert tensor in self.memory | places.inherited, "a layer reads what is nowhere"
        here = places.inherited | places.copied
        beside += sum(words for tensor, words in layer.reads.items() if tensor not in here)
        self.chip |= {tensor: layer.layer.writes[tensor] for tensor in places.left}
        on_chip = {"input"} if layer.source in here else set()
        on_chip |= {"output"} if layer.source and places.left else set()
        tiles = self.nest(at, on_chip)
        for tensor, words in layer.layer.writes.items():
            self.written.add(tensor)
            if tensor not in places.left or tensor in places.saved:
                self.memory.add(tensor)
                beside += words if tensor in places.saved or not layer.nests else 0
        self.counts.beside[at] += beside
        self.measure(at, 0, tiles)


class RowTiled:
    """Layers in row tiles: of each map between them, the rows that are on the chip."""

    def __init__(self, run, together, row_tiles):
        self.run_of_all, self.graph, self.counts = run, run.graph, run.counts
        self.steps = {}
        self.weights, self.left, self.saved = 0, set(), set()
        for at in together:
            option = run.steps[at].option
            if not option.nests and run.steps[at].layer.nests:
                self.load(at)
            else:
                self.steps.setdefault(option.layer, []).append(at)
                self.saved |= option.places.saved
                self.left |= option.places.left
        self.layers = {index: run.steps[ats[0]].layer for index, ats in self.steps.items()}
        assert tuple(sorted(self.layers)) == row_tiles.layers
        written = {tensor: index for index, layer in self.layers.items() for tensor in layer.layer.writes}
        inside = {tensor for tensor in written if set(self.graph.consumers.get(tensor, ())) & set(self.layers)}
        self.written, self.inside = written, inside
        self.left -= inside
        outside = {name for layer in self.layers.values() for name in layer.layer.reads} - set(written)
        self.found = {name for name in outside if name in run.chip}
        group = tiled_group(self.graph, row_tiles.layers, self.found | self.left)
        self.rows = GroupRun(group, SimpleNamespace(keeps_halo=True, rows=row_tiles.rows))
        self.order = sorted(self.layers)
        self.stored = {tensor: set() for tensor in inside}

    def load(self, at):
        """Copy the weights that stay for all row tiles to the chip."""
        self.counts.beside[at] = sum(self.run_of_all.steps[at].option.side_words[0])
        self.weights += self.counts.beside[at]
        self.counts.nests[at], self.counts.runs[at] = {}, 1

    def run(self):
        run, sink = self.run_of_all, self.rows.maps[self.rows.outside + self.rows.sinks[0]]
        run.chip |= {tensor: self.extent(tensor).elements for tensor in self.left}
        resident = [
            index for index in self.order if "weight" in run.steps[self.steps[index][0]].option.setting[0].on_chip
        ]
        own = [nest.elements["weight"] for index in resident for nest in self.layers[index].nests.values()]
        assert self.weights == sum(own)
        for _ in range(sink.images):
            done, made = {}, {tensor: set() for tensor in self.written}
            for rows in self.stored.values():
                rows.clear()
            row_tiles = range(0, sink.rows, self.rows.tiling.rows)
            plans = [self.rows.plan(0, range(at, at + self.rows.tiling.rows), sink.rows, done) for at in row_tiles]
            for at, plan in enumerate(plans):
                for number in range(len(self.order)):
                    self.layer(number, plan, plans[at + 1 :], made)
            assert all(len(rows) == self.extent(tensor).rows for tensor, rows in made.items())
        for tensor in self.written:
            run.written.add(tensor)
            if tensor in self.saved or tensor not in self.left | self.inside or self.leaves(tensor):
                run.memory.add(tensor)

    def leaves(self, tensor):
        """Whether somebody needs a tensor in DRAM that the row tiles keep on the chip in part only."""
        readers = set(self.graph.consumers.get(tensor, ()))
        return tensor in self.inside and (tensor in self.graph.returned or bool(readers - set(self.layers)))

    def extent(self, tensor):
        return self.layers[self.written[tensor]].layer.form.result

    def layer(self, number, plan, later, made):
        """Run the rows of one layer that a row tile makes possible."""
        run, index = self.run_of_all, self.order[number]
        computed, reads, _ = plan
        layer, form, rows = self.layers[index], self.layers[index].layer.form, computed[number]
        (tensor,) = layer.layer.writes
        if not rows:
            self.drop(number, later)  # rows above that nobody reads wait no longer
            return
        ats = [at for at in self.steps[index] if not layer.nests or part(run.steps[at]).p == len(rows)]
        assert len(ats) == 1, "there is no mapping for these rows"
        beside = layer.constants if layer.nests or not made[tensor] else 0  # of a layer without a nest in one stream
        stage = self.rows.stages[number]
        kinds = {form.source: (stage.source, "window")} | {
            name: (at, "added") for name, at in zip(form.added, stage.added, strict=True)
        }
        for name, (at, kind) in kinds.items():
            lines = reads[number, at, kind]
            if name in self.inside:
                assert lines <= self.stored[name], "a row tile reads rows that are not there"
            else:
                assert name in run.memory | self.found
            if name not in self.inside | self.found and not (layer.nests and name == form.source):
                below = self.rows.maps[at]
                beside += len(lines) * below.columns * below.channels
        words = len(rows) * form.result.columns * form.result.channels
        is_kept = tensor in self.inside | self.left
        beside += words if tensor in self.saved or self.leaves(tensor) or not (is_kept or layer.nests) else 0
        self.counts.beside[ats[0]] += beside
        if tensor in self.inside:
            self.stored[tensor] |= rows
        assert not made[tensor] & rows
        made[tensor] |= rows
        weighs = "weight" in run.steps[ats[0]].option.setting[0].on_chip
        on_chip = {"input"} if form.source in self.inside | self.found else set()
        on_chip |= ({"output"} if is_kept else set()) | ({"weight"} if weighs else set())
        tiles = run.nest(ats[0], on_chip) if layer.nests else 0
        self.counts.nests.setdefault(ats[0], {})
        between = sum(len(lines) * self.width(name) for name, lines in self.stored.items())
        run.measure(ats[0], between + self.weights, tiles)
        self.drop(number, later)

    def width(self, tensor):
        return self.extent(tensor).columns * self.extent(tensor).channels

    def drop(self, number, later):
        """Drop rows that neither a later layer of this row tile nor a later row tile reads."""
        for tensor, rows in self.stored.items():
            at = self.rows.outside + self.order.index(self.written[tensor])
            if any(n > number for n, stage in enumerate(self.rows.stages) if at in (stage.source, *stage.added)):
                continue
            needed = [line for plan in later for line in plan[2][at]]
            rows.intersection_update({row for row in rows if needed and row >= min(needed)})


def part(step):
    (nest,) = step.option.nests.values()
    return nest


def size_of(layer, tensor):
    if tensor == layer.source:
        return layer.layer.form.below.elements
    return layer.layer.reads[tensor]


def is_found(tensor, later):
    """Whether a later layer finds a tensor on the chip, before another one copies it there again."""
    for step in later:
        if tensor in step.option.places.inherited:
            return True
        if tensor in step.option.places.copied:
            return False
    return False


# --- one nest ---------------------------------------------------------------------------------------------------------


def parsed(mapping):
    """The loops at DRAM, then those at the scratchpad, from the outermost inwards, each with its steps.

    Also the extents of the tiles in the scratchpad and in all accumulators, and the columns of a tile.
    """
    loops, tiles, columns = ([], []), (dict.fromkeys(LOOPS, 1), dict.fromkeys(LOOPS, 1)), 1
    for level, part in enumerate(mapping.split(" - ")):
        for word in part.split()[1:]:
            loop, factor, spatial = re.fullmatch(r"([A-Z])(\d+)(X?)", word).groups()
            if level < 2 and not spatial and int(factor) > 1:
                loops[level].append((loop, int(factor)))
            if level > 0:
                tiles[0][loop] *= int(factor)
            if level > 1 or (level == 1 and spatial):
                tiles[1][loop] *= int(factor)
            if spatial and loop == "K":
                columns *= int(factor)
    return loops, tiles, columns


def run_nest(nest, mapping, on_chip):
    """Run the steps of one nest, with some of its operands on the chip. Zeros of a padding are words like others."""
    nest = replace(nest, pad_p=0, pad_q=0, height=0, width=0)
    (outer, inner), (tile, part), columns = parsed(mapping)
    counts, sums = NestCounts(), {}
    held = dict.fromkeys(MOVES, frozenset())
    before, innermost = None, outer[-1][0] if outer else ""
    for steps in product(*(range(count) for _, count in (*outer, *inner))):
        at = [dict.fromkeys(LOOPS, 0), dict.fromkeys(LOOPS, 0)]
        for number, ((loop, _), step) in enumerate(zip((*outer, *inner), steps, strict=True)):
            at[number >= len(outer)][loop] = step
        ranges = {
            loop: range(at[0][loop] * tile[loop], min((at[0][loop] + 1) * tile[loop], extent))
            for loop, extent in nest.bounds.items()
        }
        begin = {loop: at[0][loop] * tile[loop] + at[1][loop] * part[loop] for loop in LOOPS}
        inside = {
            loop: range(begin[loop], max(begin[loop], min(begin[loop] + part[loop], extent)))
            for loop, extent in nest.bounds.items()
        }
        needed = elements_of(nest, ranges) | {"output": results_of(inside)}
        changed = {loop for loop in LOOPS if before is not None and before[0][loop] != at[0][loop]}
        steps_inside = {loop for loop in LOOPS if before is not None and before[1][loop] != at[1][loop]}
        for operand, moves in MOVES.items():
            of_operand = changed | steps_inside if operand == "output" else changed
            if before is not None and not of_operand & set(moves):
                continue  # in place
            keeps = operand == "input" and changed == {innermost} and at[0][innermost] == before[0][innermost] + 1
            stays = held[operand] if keeps and innermost in "PQRS" else frozenset()
            if operand == "output":
                leave(nest, held[operand], sums, counts, on_chip)
                counts.dram["output"] += sum(element in sums for element in needed["output"])  # sums that come back
                assert "output" not in on_chip or not any(element in sums for element in needed["output"])
            elif operand not in on_chip:
                counts.dram[operand] += len(needed[operand] - stays)
            held[operand] = needed[operand]
        add_up(nest, inside, held, sums)
        tiles = sum(len(held[operand]) for operand in ("weight", "input") if operand not in on_chip)
        counts.scratchpad_peak = max(counts.scratchpad_peak, tiles)
        counts.accumulator_peak = max(counts.accumulator_peak, column_words(nest, inside, columns))
        before = at
    leave(nest, held["output"], sums, counts, on_chip)
    assert len(sums) == nest.elements["output"]
    assert set(sums.values()) == {nest.c * nest.r * nest.s}
    return counts


def column_words(nest, ranges, columns):
    """The results of one tile in the accumulator of the fullest column: each takes consecutive output channels."""
    in_column = -(-len(ranges["K"]) // columns)
    return in_column * len(list(product(*(ranges[loop] for loop in "NGPQ"))))


def leave(nest, tile, sums, counts, on_chip):
    """Let a tile of results leave the accumulators: to DRAM as it is, to the scratchpad only when it is complete."""
    if "output" in on_chip:
        assert all(sums[element] == nest.c * nest.r * nest.s for element in tile)
    else:
        counts.dram["output"] += len(tile)


def elements_of(nest, ranges):
    """The elements of each operand that the points of a tile touch, from the first to the last line of a window."""
    rows = hull(ranges["P"], ranges["R"], nest.stride_p, nest.dilation_r)
    columns = hull(ranges["Q"], ranges["S"], nest.stride_q, nest.dilation_s)
    return {
        "input": frozenset(product(ranges["N"], ranges["G"], ranges["C"], rows, columns)),
        "weight": frozenset(product(*(ranges[loop] for loop in "GKCRS"))),
        "output": results_of(ranges),
    }


def results_of(ranges):
    """The results of a tile; none where it is empty, as the last step of a ragged tile may be."""
    return frozenset(product(*(ranges[loop] for loop in MOVES["output"])))


def hull(outputs, taps, stride, dilation):
    return range(outputs[0] * stride + taps[0] * dilation, outputs[-1] * stride + taps[-1] * dilation + 1)


def add_up(nest, ranges, held, sums):
    for n, g, k, c, p, q, r, s in product(*(ranges[loop] for loop in LOOPS)):
        y, x = p * nest.stride_p + r * nest.dilation_r, q * nest.stride_q + s * nest.dilation_s
        assert y < nest.stored_height
        assert x < nest.stored_width
        assert (n, g, c, y, x) in held["input"]
        assert (g, k, c, r, s) in held["weight"]
        sums[n, g, k, p, q] = sums.get((n, g, k, p, q), 0) + 1
