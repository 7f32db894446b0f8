"""Executes loop nests and fused groups tile by tile on sets of elements, and counts what moves and what is on the chip.

It knows no formula: a tile holds the elements that its points touch, and whatever is not on the chip is moved. It fails
where a point reads an element that is not there, or where an element of the result is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product


@dataclass
class Counted:
    """What an execution moved and computed, and the most that was on the chip."""

    moved: dict[str, int]
    macs: int = 0
    peak: int = 0

    @property
    def moved_bits(self) -> int:
        return sum(self.moved.values())


# --- one contraction --------------------------------------------------------------------------------------------------


def pieces(extent, size):
    return [range(begin, min(begin + size, extent)) for begin in range(0, extent, size)]


def touched(outputs, taps, stride, dilation, pad, extent):
    """Stored lines from the first to the last that a window touches."""
    lines = {x * stride + t * dilation - pad for x in outputs for t in range(taps)}
    inside = [line for line in range(min(lines), max(lines) + 1) if 0 <= line < extent]
    return frozenset(inside)


def run_nest(nest, tile, order):
    """Run the loops over tiles in an order; each operand has room for one tile."""
    bits = {"input": nest.input_bits, "weight": nest.weight_bits, "output": nest.output_bits}
    counted = Counted(dict.fromkeys(bits, 0))
    loops = {
        "N": pieces(nest.n, 1),
        "K": pieces(nest.k, tile[0]),
        "C": pieces(nest.c, tile[1]),
        "P": pieces(nest.p, tile[2]),
        "Q": pieces(nest.q, tile[3]),
    }
    for _ in range(nest.groups):
        run_group_of_channels(nest, loops, order, bits, counted)
    return counted


def run_group_of_channels(nest, loops, order, bits, counted):
    held = {"input": frozenset(), "weight": frozenset(), "output": frozenset()}
    sums: dict[tuple, int] = {}
    before = None
    for steps in product(*(range(len(loops[loop])) for loop in order)):
        at = dict(zip(order, steps, strict=True))
        n, k, c, p, q = (loops[loop][at[loop]] for loop in "NKCPQ")
        rows = touched(p, nest.r, nest.stride_p, nest.dilation_r, nest.pad_p, nest.stored_height)
        columns = touched(q, nest.s, nest.stride_q, nest.dilation_s, nest.pad_q, nest.stored_width)
        needed = {
            "input": frozenset(product(n, c, rows, columns)),
            "weight": frozenset(product(k, c, range(nest.r), range(nest.s))),
            "output": frozenset(product(n, k, p, q)),
        }
        if before is None or any(before[loop] != at[loop] for loop in "NCPQ"):  # another tile, if of the same lines
            stays = held["input"] if goes_on(loops, order, before, at) else frozenset()
            counted.moved["input"] += bits["input"] * len(needed["input"] - stays)
        if needed["weight"] != held["weight"]:
            counted.moved["weight"] += bits["weight"] * len(needed["weight"])
        if needed["output"] != held["output"]:
            counted.moved["output"] += bits["output"] * len(held["output"])  # written
            counted.moved["output"] += bits["output"] * sum(element in sums for element in needed["output"])  # read
        held, before = needed, at
        multiply(nest, held, (n, k, c, p, q), sums, counted)
        counted.peak = max(counted.peak, sum(bits[operand] * len(tile) for operand, tile in held.items()))
    counted.moved["output"] += bits["output"] * len(held["output"])
    assert set(sums) == set(product(range(nest.n), range(nest.k), range(nest.p), range(nest.q)))
    assert set(sums.values()) == {nest.c * nest.r * nest.s}


def goes_on(loops, order, before, at):
    """Whether only the innermost of the loops that move the input went one tile further down the rows or columns."""
    if before is None:
        return False
    moving = [loop for loop in order if loop != "K" and len(loops[loop]) > 1]
    changed = [loop for loop in moving if before[loop] != at[loop]]
    last = moving[-1] if moving else ""
    return changed == [last] and last in "PQ" and at[last] == before[last] + 1


def multiply(nest, held, ranges, sums, counted):
    n, k, c, p, q = ranges
    for image, channel, row, column, r, s in product(n, c, p, q, range(nest.r), range(nest.s)):
        y = row * nest.stride_p + r * nest.dilation_r - nest.pad_p
        x = column * nest.stride_q + s * nest.dilation_s - nest.pad_q
        inside = 0 <= y < nest.stored_height and 0 <= x < nest.stored_width
        assert not inside or (image, channel, y, x) in held["input"]
        for result in k:
            assert (result, channel, r, s) in held["weight"]
            sums[image, result, row, column] = sums.get((image, result, row, column), 0) + 1
            counted.macs += 1


# --- a fused group ----------------------------------------------------------------------------------------------------


def run_group(group, tiling):
    """Run a fused group: strips of columns, in each of them tiles of rows, in each of them stage by stage."""
    return GroupRun(group, tiling).run()


class GroupRun:
    """One execution. A position is a row and a column of a map, with all of its channels."""

    def __init__(self, group, tiling):
        self.group, self.tiling = group, tiling
        self.stages, self.maps = group.stages, group.maps
        self.outside = len(self.maps) - len(self.stages)
        self.counted = Counted({"read": 0, "weight": 0, "written": 0})
        self.on_chip = {index: set() for index in range(len(self.maps))}  # positions of held maps
        self.made = {}  # positions of whole maps and of written results
        read = {index for stage in self.stages for index in (stage.source, *stage.added)}
        self.sinks = [n for n in range(len(self.stages)) if self.outside + n not in read]

    def is_resident(self, index):
        return bool(self.group.resident) and self.group.resident[index]

    def width(self, index):
        return self.maps[index].channels * self.maps[index].bits

    def run(self):
        sink = self.maps[self.outside + self.sinks[0]]
        for number, stage in enumerate(self.stages):
            if self.tiling.resident_weights[number]:
                self.counted.moved["weight"] += stage.weight_bits
        for _ in range(sink.images):
            self.made = {index: set() for index in range(len(self.maps))}
            for columns in pieces(sink.columns, self.tiling.columns):
                self.strip(pieces(sink.rows, self.tiling.rows), columns, sink)
            for number in range(len(self.stages)):
                extents = self.maps[self.outside + number]
                assert self.made[self.outside + number] == set(product(range(extents.rows), range(extents.columns)))
        return self.counted

    def strip(self, tiles, columns, sink):
        """Plan the tiles of a strip from what each of them must have, then run them."""
        for positions in self.on_chip.values():
            positions.clear()
        column_plan = self.plan(1, columns, sink.columns, {})
        done: dict[int, int] = {}
        plans = [self.plan(0, rows, sink.rows, done if self.tiling.keeps_halo else {}) for rows in tiles]
        for at, plan in enumerate(plans):
            later = plans[at + 1 :] if self.tiling.keeps_halo else []
            self.tile(plan, column_plan, later)

    def plan(self, axis, lines, sink_extent, done):
        """Lines that each stage computes, and lines of each map that each stage reads: (computed, reads)."""
        extent = [(one.rows, one.columns)[axis] for one in self.maps]
        wanted = {index: set() for index in range(len(self.maps))}
        computed, reads = {}, {}
        for number in reversed(range(len(self.stages))):
            stage, own = self.stages[number], self.outside + number
            share = {
                line for line in range(extent[own]) if any(in_share(line, at, extent[own], sink_extent) for at in lines)
            }
            needed = wanted[own] | share
            if number in done or (axis == 0 and self.tiling.keeps_halo):
                begin = done.get(number, 0)
                end = max(needed, default=-1) + 1
                computed[number] = set(range(begin, max(begin, end)))
                done[number] = max(begin, end)
            else:
                computed[number] = filled(needed)
            below = set()
            if computed[number]:
                window = stage.window
                sizes = [one[axis] for one in (window.taps, window.strides, window.dilations, window.pads)]
                below = set(touched(computed[number], *sizes, extent[stage.source]))
            reads[number, stage.source, "window"] = below
            wanted[stage.source] |= below
            for tensor in stage.added:
                reads[number, tensor, "added"] = set(computed[number])
                wanted[tensor] |= computed[number]
        return computed, reads, {index: filled(lines) for index, lines in wanted.items()}

    def tile(self, plan, column_plan, later):
        computed, _, wanted = plan
        columns, _, wanted_columns = column_plan
        for number, stage in enumerate(self.stages):
            own = self.outside + number
            room = stage.kernel_bits
            if not self.tiling.resident_weights[number]:
                self.counted.moved["weight"] += stage.weight_bits
            for index, kind in ((stage.source, "window"), *((tensor, "added") for tensor in stage.added)):
                room += self.read(number, index, kind, plan, column_plan)
            fresh = set(product(computed[number], columns[number]))
            self.counted.macs += (
                len(fresh) * stage.macs // (self.maps[own].images * self.maps[own].rows * self.maps[own].columns)
            )
            if self.group.leaving[number] and not self.is_resident(own):
                self.counted.moved["written"] += len(fresh - self.made[own]) * self.width(own)
            self.made[own] |= fresh
            if number in self.sinks:
                room += self.room_of_sink(number, len(fresh))
            elif not self.is_resident(own):
                self.on_chip[own] |= fresh
            self.measure(room)
            self.drop(number, later)
        assert wanted is not None and wanted_columns is not None

    def room_of_sink(self, number, positions):
        """A result that leaves at once: a channel of it, or as many as one streamed input channel adds to."""
        own, stage = self.outside + number, self.stages[number]
        if self.is_resident(own):
            return 0
        streams = stage.source < self.outside and not self.tiling.held[stage.source]
        channels = self.maps[own].channels // stage.groups if streams else 1
        return positions * channels * self.maps[own].bits

    def read(self, number, index, kind, plan, column_plan):
        """Have the positions that a stage reads on the chip, and return the room of a channel that is streamed."""
        rows, columns = plan[1][number, index, kind], column_plan[1][number, index, kind]
        positions = set(product(rows, columns))
        if self.is_resident(index):
            assert index < self.outside or positions <= self.made[index]
            return 0
        if index >= self.outside:
            assert positions <= self.on_chip[index]
            return 0
        if not self.tiling.held[index]:
            self.counted.moved["read"] += len(positions) * self.width(index)
            return len(positions) * self.maps[index].bits
        everything = set(product(plan[2][index], column_plan[2][index]))
        assert positions <= everything | self.on_chip[index]
        self.counted.moved["read"] += len(everything - self.on_chip[index]) * self.width(index)
        self.on_chip[index] |= everything
        return 0

    def measure(self, room):
        held = sum(len(positions) * self.width(index) for index, positions in self.on_chip.items())
        whole = sum(
            self.width(index) * one.images * one.rows * one.columns
            for index, one in enumerate(self.maps)
            if self.is_resident(index)
        )
        stays = sum(
            s.weight_bits
            for s, resident_weights in zip(self.stages, self.tiling.resident_weights, strict=True)
            if resident_weights
        )
        self.counted.peak = max(self.counted.peak, held + whole + stays + room)

    def drop(self, number, later):
        """Drop what neither a later stage of this tile nor a later tile reads."""
        for index, positions in self.on_chip.items():
            readers = [n for n, stage in enumerate(self.stages) if index in (stage.source, *stage.added)]
            if not readers or max(readers) > number:
                continue
            needed = [line for plan in later for line in plan[2][index]]
            first = min(needed, default=None)
            keep = {at for at in positions if first is not None and at[0] >= first}
            positions.intersection_update(keep)


def in_share(line, at, extent, sink_extent):
    """Whether a line belongs to the share of a sink's line: both maps are cut in proportion."""
    return -(-at * extent // sink_extent) <= line < -(-(at + 1) * extent // sink_extent)


def filled(lines):
    return set(range(min(lines), max(lines) + 1)) if lines else set()
