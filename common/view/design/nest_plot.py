"""The mapping of the contraction that takes most energy, drawn as a loop nest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from common.view.design.design_text import PICO
from common.view.style import BLUE, GREY, PALE, VERMILLION, new_figure
from common.view.text import MISSING, percent, quantity

MEANINGS = {
    **{"N": "images", "G": "groups of channels", "K": "output channels", "C": "input channels"},
    **{"P": "output rows", "Q": "output columns", "R": "rows of the window", "S": "columns of the window"},
}
OPERANDS = {"W": "weight", "I": "input", "O": "output"}
HEADS = (*OPERANDS.values(), "energy")
PLACES = (0.68, 0.78, 0.88, 0.98)  # right ends of the columns of numbers, as shares of the width
MEANING_AT = 0.4
INDENT, WIDEST_INDENTS = 0.022, 0.24  # of one loop, and of all together at most
LINES, FONT_POINTS = 24, 9.0  # a nest of fewer lines has the same spacing, one of more is set smaller
HEIGHT_POINTS, OF_LINE = 360, 0.8  # of the drawing, and the share of a line that its font may take


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops at one memory, from the outermost loop to the innermost: letter and count."""

    memory: str
    holds: tuple[str, ...]
    steps: tuple[tuple[str, int], ...]
    copies: tuple[tuple[str, int], ...]


class Sheet(NamedTuple):
    """The drawing: its axes, how far a loop is indented, and what writes a text into a line."""

    axes: Axes
    indent: float
    write: Callable[..., object]


def draw_design_nest(points: pd.DataFrame, mappings: pd.DataFrame) -> Figure | None:
    """Draw the loops of the best design's costliest row of design_mappings, and the words that each memory moves."""
    there = points[points["edp_pj_cycles"].notna()].sort_values("edp_pj_cycles", kind="stable")
    own = mappings[mappings["design"] == there.iloc[0]["design"]] if len(there) else mappings.head(0)
    if not len(own):
        return None
    energies = own["execution_count"] * own["modelled_energy_pj"]
    row = own.iloc[int(energies.to_numpy().argmax())].to_dict()
    figure = new_figure(_title(row, float(energies.max() / there.iloc[0]["modelled_energy_pj"])), _subtitle(row))
    axes = figure.add_axes((0.02, 0.03, 0.96, 0.84))
    axes.set_axis_off()
    levels = list(nest(row))
    loops = sum(len(level.steps) + len(level.copies) for level in levels)
    lines = max(LINES, 3.0 + 1.4 * len(levels) + loops)
    axes.set(xlim=(0, 1), ylim=(lines, 0))
    write = partial(axes.text, va="center", fontsize=min(FONT_POINTS, OF_LINE * HEIGHT_POINTS / lines))
    sheet = Sheet(axes, min(INDENT, WIDEST_INDENTS / (loops + 1)), write)
    axes.text((PLACES[0] + PLACES[2]) / 2 - 0.03, 0.0, "words read and written in one run", ha="center", color=GREY)
    for place, head in zip(PLACES, HEADS, strict=True):
        axes.text(place, 1.0, head, ha="right", va="center", fontweight="bold")
    line, depth = 1.6, 0
    for level in levels:
        line, depth = _draw_level(sheet, level, row, line, depth)
    sheet.write(sheet.indent * (depth + 1), line + 0.5, "multiply, and add to the output", color=GREY)
    return figure


def nest(row: Mapping[Any, Any]) -> Iterator[Loops]:
    """Yield what runs at each memory of a mapping, from DRAM inwards; loops of one step are left out."""
    memories = [name for name in row["energy_parts_pj"] if name != "multipliers"]
    for memory, part in zip(memories, row["mapping"].split(" - "), strict=True):
        name, *words = part.split()
        holds = tuple(OPERANDS[letter] for letter in name.partition("[")[2].rstrip("]"))
        steps = tuple((word[0], int(word[1:])) for word in words if not word.endswith("X") and word[1:] != "1")
        copies = tuple((word[0], int(word[1:-1])) for word in words if word.endswith("X"))
        yield Loops(memory, holds, steps, copies)


def _draw_level(sheet: Sheet, level: Loops, row: Mapping[Any, Any], line: float, depth: int) -> tuple[float, int]:
    """Draw a memory and its loops below it; return the next line and the depth there."""
    height = 1.2 + len(level.steps) + len(level.copies)
    box = Rectangle((0, line), 1, height - 0.05, facecolor="#F6F6F6", edgecolor=PALE, linewidth=0.5, clip_on=False)
    sheet.axes.add_patch(box)
    sheet.write(sheet.indent * (depth + 0.5), line + 0.6, level.memory, fontweight="bold")
    sheet.write(MEANING_AT, line + 0.6, f"holds {', '.join(level.holds)}", color=GREY)
    for right, text in zip(PLACES, _numbers(level.memory, row), strict=True):
        sheet.write(right, line + 0.6, text, ha="right")
    loops = [(*loop, False) for loop in level.steps] + [(*loop, True) for loop in level.copies]
    for number, (loop, count, is_spatial) in enumerate(loops):
        depth += 1
        text = f"{'in space' if is_spatial else 'for'} {loop.lower()} in {count}"
        look: dict[str, Any] = {"color": VERMILLION, "fontweight": "bold"} if is_spatial else {"color": BLUE}
        place = line + 1.6 + number
        sheet.write(sheet.indent * (depth + 0.5), place, text, family="monospace", **look)
        sheet.write(MEANING_AT, place, MEANINGS[loop], color=GREY)
    return line + height + 0.2, depth


def _numbers(memory: str, row: Mapping[Any, Any]) -> list[str]:
    """Return the words that a memory moves of each operand, and its share of the energy."""
    words = [row["moved_words"].get(f"{memory} {operand}") for operand in OPERANDS.values()]
    total = sum(row["energy_parts_pj"].values())
    share = percent(row["energy_parts_pj"][memory] / total if total else None, 0)
    return [*(MISSING if count is None else quantity(count, "") for count in words), share]


def _title(row: Mapping[Any, Any], share: float) -> str:
    use = percent(row["array_use_share"], 0)
    return f"{row['source_node']} takes {percent(share, 0)} of the energy, and uses {use} of the array"


def _subtitle(row: Mapping[Any, Any]) -> str:
    energy, cycles = quantity(row["modelled_energy_pj"] * PICO, "J"), quantity(row["modelled_cycles"], "")
    runs = f", {row['execution_count']} runs" if row["execution_count"] > 1 else ""
    costs = f"one contraction on {row['design']}: {energy} and {cycles} cycles{runs}"
    return f"{costs} · a loop runs step by step, or in space: side by side in the array"
