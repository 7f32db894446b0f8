"""The graph of the model by blocks: modules of the model in the order of computation, and the tensors between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from common.messages.names import shorten
from common.table_rows import ExecutedEdgesRow, OpRooflineRow
from common.view.executed_nodes import main_bound
from common.view.text import duration, percent, quantity

FEW_BLOCKS, MOST_BLOCKS = 12, 40
# A block that takes less of the latency is not split into its modules: while there are few blocks, and later.
TINY_SHARE, WHOLE_SHARE = 0.005, 0.12
Path = tuple[str, ...]
WIDTH, ROW_HEIGHT, BOX_HEIGHT, GAP = 1100.0, 56.0, 38.0, 26.0
ROWS_OF_A_COLUMN, MOST_COLUMNS = 14, 3
CHARACTER_WIDTH = 7.2
LANES = 5  # of lines beside a column
STEPS = 5  # shades of the time


@dataclass(frozen=True, slots=True)
class Block:
    """A module of the model, or some nodes that follow one another, in the order of execution.

    ``bound`` is that of most of the time, if known; ``card_share`` is what a plan takes to the card, None without one.
    """

    name: str
    nodes: tuple[str, ...]
    latency_us: float
    latency_share: float
    bound: str
    card_share: float | None


@dataclass(frozen=True, slots=True)
class Box:
    """Place of a block in the drawing; ``column_right`` is where its column ends."""

    left: float
    top: float
    width: float
    column: int
    column_right: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def blocks_of(
    roofline: Iterable[OpRooflineRow], modules: Mapping[str, Path], on_card: Iterable[str] | None
) -> list[Block]:
    """Return the blocks of a model in the order of execution.

    ``modules`` are those of each executed node, the outermost first; ``on_card`` is None without a plan.
    """
    nodes = [row for row in roofline if row["row_kind"] != "gap"]
    nodes.sort(key=lambda row: math.inf if row["execution_index"] is None else row["execution_index"])
    if not nodes:
        return []
    share = {row["executed_node"]: row["latency_share"] for row in nodes}
    groups = _in_stretches(_by_module([*share], modules, share))
    by_name, card = {row["executed_node"]: row for row in nodes}, None if on_card is None else set(on_card)
    named = ((path or "outside the modules", [by_name[name] for name in names]) for path, names in groups)
    return [_block(path, rows, card) for path, rows in named]


def _by_module(
    names: Sequence[str], modules: Mapping[str, Path], share: Mapping[str, float]
) -> list[tuple[Path, list[str]]]:
    """Split the model into its modules, the one that takes most time first, as long as there are not too many."""
    groups: dict[Path, list[str]] = {(): list(names)}
    whole: set[Path] = set()
    while True:
        sums = {path: sum(share[name] for name in group) for path, group in groups.items() if path not in whole}
        path = max(sums, key=lambda path: sums[path], default=None)
        enough = TINY_SHARE if len(groups) < FEW_BLOCKS else WHOLE_SHARE
        if path is None or (path and sums[path] < enough):
            return sorted(groups.items(), key=lambda entry: names.index(entry[1][0]))
        parts: dict[Path, list[str]] = {}
        for name in groups[path]:
            parts.setdefault(modules.get(name, ())[: len(path) + 1], []).append(name)
        if path and (len(groups) + len(parts) - 1 > MOST_BLOCKS or parts.keys() == {path}):
            whole.add(path)
            continue
        del groups[path]
        groups |= parts
        whole |= parts.keys() & {path}


def _in_stretches(groups: Sequence[tuple[Path, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Yield blocks that are too many as a few stretches of neighbours, each named after its first and last one."""
    size = -(-len(groups) // MOST_BLOCKS)
    for start in range(0, len(groups), size):
        part = groups[start : start + size]
        ends = dict.fromkeys(("/".join(part[0][0]), "/".join(part[-1][0])))
        yield " … ".join(ends), [name for _, names in part for name in names]


def _block(name: str, rows: Sequence[OpRooflineRow], on_card: set[str] | None) -> Block:
    total_us = sum(row["node_latency_us"] for row in rows)
    card_us = sum(row["node_latency_us"] for row in rows if on_card and row["executed_node"] in on_card)
    return Block(
        name,
        tuple(row["executed_node"] for row in rows),
        total_us,
        sum(row["latency_share"] for row in rows),
        main_bound(rows),
        None if on_card is None else card_us / total_us if total_us else 0.0,
    )


def edges_between(blocks: Sequence[Block], edges: Iterable[ExecutedEdgesRow]) -> dict[tuple[int, int], float]:
    """Return the bytes that pass between two blocks, by their places."""
    place = {name: index for index, block in enumerate(blocks) for name in block.nodes}
    tensors: dict[tuple[int, int], dict[str, float]] = {}  # each passes between two blocks once
    for edge in edges:
        first, last = place.get(edge["producer"]), place.get(edge["consumer"])
        if first is not None and last is not None and first != last:
            tensors.setdefault((first, last), {}).setdefault(edge["tensor"], edge["tensor_bytes"] or 0.0)
    return {ends: sum(sizes.values(), 0.0) for ends, sizes in tensors.items()}


def levels(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the level of each block: one below the lowest of those before it that it reads."""
    level = [0] * count
    for first, last in sorted(edges, key=lambda edge: edge[1]):
        if first < last:
            level[last] = max(level[last], level[first] + 1)
    return level


def block_graph(blocks: Sequence[Block], edges: Iterable[ExecutedEdgesRow], numbers: Mapping[str, int]) -> str:
    """Return the graph as HTML: boxes coloured by time, bound or plan, chosen without a script."""
    if not blocks:
        return ""
    between = edges_between(blocks, edges)
    level = levels(len(blocks), between) if between else [*range(len(blocks))]
    places, height = _places(level)
    lines = [
        _edge(places[first], places[last], level[last] - level[first] == 1, size, count)
        for count, ((first, last), size) in enumerate(between.items())
    ]
    most_us = max(block.latency_us for block in blocks) or 1.0
    boxes = [_box(block, place, most_us, numbers) for block, place in zip(blocks, places, strict=True)]
    head = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="Graph of the model by blocks">'
    drawing = "\n".join([head, *lines, *boxes, "</svg>"])
    has_plan = any(block.card_share is not None for block in blocks)
    return f'<div class="choose">{_choice(has_plan)}\n<div class="blocks">{drawing}</div></div>'


def _choice(has_plan: bool) -> str:
    """Return the buttons that choose the colour, and the legend of each."""
    steps = "".join(f'<i class="t{step}"></i>' for step in range(1, STEPS + 1))
    legends = {
        "time": f"{steps} little to most time",
        "bound": '<i class="compute"></i>compute-bound <i class="memory"></i>memory-bound <i class="none"></i>unknown',
        "plan": '<i class="card"></i>on the card <i class="part"></i>in part <i class="none"></i>on the host',
    }
    kinds = [kind for kind in legends if has_plan or kind != "plan"]
    buttons = "".join(
        f'<input type="radio" name="colour" id="by-{kind}"{" checked" if kind == "time" else ""}>'
        f'<label for="by-{kind}">by {kind}</label>'
        for kind in kinds
    )
    return buttons + "".join(f'<p class="legend aside {kind}">{legends[kind]}</p>' for kind in kinds)


def _places(level: Sequence[int]) -> tuple[list[Box], float]:
    """Return the place of each box, and the height of the drawing; long graphs go on in further columns."""
    count = max(level) + 1
    columns = min(-(-count // ROWS_OF_A_COLUMN), MOST_COLUMNS)
    rows = -(-count // columns)
    whole = WIDTH / columns
    places: dict[int, Box] = {}
    for at in sorted({*level}):
        beside = [index for index, of_box in enumerate(level) if of_box == at]
        column, row = divmod(at, rows)
        width = (whole - GAP * (len(beside) + 1)) / len(beside)
        for order, index in enumerate(beside):
            left = column * whole + GAP + order * (width + GAP)
            places[index] = Box(left, 8 + row * ROW_HEIGHT, width, column, (column + 1) * whole)
    return [places[index] for index in range(len(level))], 16 + rows * ROW_HEIGHT


def _edge(start: Box, end: Box, is_next: bool, size: float, count: int) -> str:
    """Return a line from the bottom of a box to the top of the next one, or beside the column to one further below.

    Boxes are drawn over it. ``count`` keeps such lines apart.
    """
    if is_next and start.column == end.column:
        x0, y0, x1, y1 = start.middle, start.top + BOX_HEIGHT, end.middle, end.top
        line = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + 9:.1f} {x1:.1f} {y1 - 9:.1f} {x1:.1f} {y1:.1f}"
    else:
        y0, y1 = (box.top + BOX_HEIGHT / 2 for box in (start, end))
        gutter = start.column_right - GAP + 5 + 4 * (count % LANES)
        line = f"M{start.middle:.1f} {y0:.1f}H{gutter:.1f}V{y1:.1f}H{end.middle:.1f}"
    return f'<path d="{line}"><title>{escape(quantity(size, "B"))}</title></path>'


def _box(block: Block, place: Box, most_us: float, numbers: Mapping[str, int]) -> str:
    left, top, width = place.left, place.top, place.width
    step = max(1, min(STEPS, -int(-STEPS * block.latency_us // most_us)))
    share = block.card_share
    plan = "" if share is None else "card" if share > 0.99 else "part" if share > 0.01 else "host"
    about = " ".join(str(numbers[name]) for name in block.nodes)
    room = int((width - 8) / CHARACTER_WIDTH)
    name = shorten(block.name, max(room, 2))
    detail = f"{duration(block.latency_us)}, {percent(block.latency_share)}"
    return (
        f'<g class="block t{step} {block.bound or "unknown"} {plan}" data-n="{about}">'
        f"<title>{escape(_title(block))}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BOX_HEIGHT:g}" rx="4"/>'
        f'<text x="{left + 5:.1f}" y="{top + 16:.1f}">{escape(name)}</text>'
        + (f'<text x="{left + 5:.1f}" y="{top + 31:.1f}">{escape(detail)}</text>' if len(detail) <= room else "")
        + "</g>"
    )


def _title(block: Block) -> str:
    count = f"{len(block.nodes)} node{'s' * (len(block.nodes) > 1)}"
    parts = [count, duration(block.latency_us), f"{percent(block.latency_share)} of the latency"]
    parts += [f"mostly {block.bound}-bound"] if block.bound else []
    parts += [] if block.card_share is None else [f"{percent(block.card_share, 0)} of its time on the card"]
    return f"{block.name}: {', '.join(parts)}"
