"""Style shared by all pictures: palette, sizes, layout, and files whose bytes depend on the tables alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from common.view.executed_nodes import KeyNode
from common.view.marks import Marks, mark_id, marked
from common.view.placing import Point, place_around
from common.view.text import quantity

# Okabe and Ito, Color Universal Design (2008): told apart with every common colour blindness.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"
GREY, PALE = "#767676", "#DDDDDD"
SIZE_IN = (11.0, 6.0)
PNG_DOTS_PER_INCH = 130
# Of title and subtitle; the end is a share of the width, because hints make a line of the PNG up to a fifteenth wider.
SMALLEST_POINTS, LINE_END = 7.0, 0.88
NUMBER_CLEARANCE_PX, NUMBER_LAYER = 15.0, 6  # of numbers beside marks
LIST_ROWS = 30  # lines of text that the side column holds
NO_MARKS = Marks()

mpl.rcdefaults()  # a user's matplotlibrc would change the bytes
mpl.rcParams.update(
    {
        "svg.hashsalt": "onnx-profile",
        "text.parse_math": False,  # a dollar in the name of a node is a dollar
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "grid.color": "#EBEBEB",
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
    }
)


def new_figure(title: str, subtitle: str = "") -> Figure:
    """Return an empty figure; its title states the finding, its subtitle how to read the picture."""
    figure = Figure(figsize=SIZE_IN)
    _write_line(figure, 0.965, title, 12.5, fontweight="bold")
    _write_line(figure, 0.918, subtitle, 9.0, color=GREY)
    return figure


def _write_line(figure: Figure, y: float, text: str, points: float, **look: str) -> None:
    """Write a line across the figure; a long one is set smaller and then broken, or it would end outside."""
    line, end = figure.text(0.02, y, text, fontsize=points, va="top", **look), LINE_END * figure.bbox.width  # type: ignore[arg-type]
    while points > SMALLEST_POINTS and line.get_window_extent().x1 > end:
        points -= 0.5
        line.set_fontsize(points)
    letters = len(text)
    while line.get_window_extent().x1 > end:
        letters -= 1
        line.set_text("\n".join(textwrap.wrap(text, letters, max_lines=2, placeholder=" …")))


def with_side_column(figure: Figure) -> tuple[Axes, Axes]:
    """Return axes for the drawing, and bare ones beside them for names and legend."""
    grid = GridSpec(1, 2, figure, width_ratios=(7, 3), left=0.075, right=0.985, bottom=0.1, top=0.86, wspace=0.04)
    axes, side = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    side.set_axis_off()
    side.set(xlim=(0, 1), ylim=(LIST_ROWS, 0))
    return axes, side


class LogLabels(LogFormatter):
    """Labels of a logarithmic axis in words of ours: matplotlib's own are formulas, and ``text.parse_math`` is off.

    Matplotlib decides which ticks have one: the powers of ten, and those between on an axis of less than a decade.
    """

    def __init__(self, write: Callable[[float], str]) -> None:
        super().__init__()
        self.write = write

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick, empty for one without."""
        return self.write(x) if super().__call__(x, pos) else ""


def log_scales(axes: Axes) -> None:
    """Make both axes of a roofline logarithmic."""
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major")
    label_log(axes.xaxis)
    label_log(axes.yaxis, lambda rate: quantity(rate, "", 1))


def label_log(axis: Axis, write: Callable[[float], str] = "{:g}".format) -> None:
    axis.set_major_formatter(LogLabels(write))
    axis.set_minor_formatter(LogLabels(write))


def on_screen(axes: Axes, places: Sequence[Point]) -> list[Point]:
    """Return places of the drawn data in pixels."""
    return [(float(x), float(y)) for x, y in axes.transData.transform(places)] if places else []


def number_marks(axes: Axes, places: Mapping[int, Point], radii: Sequence[float], others: Sequence[Point]) -> None:
    """Write a number beside each mark, clear of all others, with a line to it.

    ``places`` are in the drawn data; ``radii``, and ``others`` that no number may cover, are in pixels.
    """
    pixels = on_screen(axes, [*places.values()])
    box, per_point = axes.get_window_extent(), axes.figure.dpi / 72
    room = (box.x0 + 8, box.y0 + 8), (box.x1 - 8, box.y1 - 8)
    labels = place_around(pixels, radii, others, NUMBER_CLEARANCE_PX, *room)
    for (number, place), (x, y), (label_x, label_y) in zip(places.items(), pixels, labels, strict=True):
        offset = (label_x - x) / per_point, (label_y - y) / per_point
        line = {"arrowstyle": "-", "color": BLACK, "linewidth": 0.6, "shrinkA": 4, "shrinkB": 0}
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "fontweight": "bold"}
        look |= {"textcoords": "offset points", "zorder": NUMBER_LAYER, "arrowprops": line}
        axes.annotate(str(number), place, offset, **look)


def legend_mark(shape: str, label: str, **look: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker=shape, markersize=7, label=label, **look)  # type: ignore[arg-type]


def explain_marks(side: Axes, marks: Sequence[Line2D], height: float = 0.0) -> None:
    """Write a legend below the list beside a drawing, at a height in shares of it."""
    look = {"fontsize": 8, "borderpad": 0, "handletextpad": 0.2, "columnspacing": 0.8}
    side.legend(handles=marks, loc="lower left", bbox_to_anchor=(0.0, height), ncols=2, **look)


def list_keys(side: Axes, keys: Sequence[KeyNode], details: Mapping[str, str]) -> None:
    """List the key nodes by number and label, with a line of details for each; ``details`` is by node name."""
    list_entries(side, "Slowest nodes", [key.label for key in keys], [details[key.name] for key in keys])


def list_entries(side: Axes, title: str, labels: Sequence[str], details: Sequence[str]) -> None:
    """List labels by number, counted from 1, with a line of details for each."""
    if labels:
        side.text(0, 0, title, fontweight="bold")
    for rank, (label, detail) in enumerate(zip(labels, details, strict=True)):
        top = 1.3 + 1.85 * rank
        side.text(0.06, top, str(rank + 1), fontweight="bold", ha="right", va="top")
        side.text(0.09, top, label, va="top")
        side.text(0.09, top + 0.92, detail, va="top", fontsize=7.5, color=GREY)


def mark(artist: Artist, names: Iterable[Sequence[str]]) -> None:
    """Say which nodes, or items of the plan, each part of an artist shows, in the order drawn."""
    if shown := [*names]:
        artist.set_gid(mark_id(shown))


def render(figure: Figure, marks: Marks = NO_MARKS) -> dict[str, bytes]:
    """Return the figure as files, by suffix; in the SVG, points and bars say which nodes they show."""
    vector, raster = BytesIO(), BytesIO()
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(raster, format="png", dpi=PNG_DOTS_PER_INCH, metadata={"Software": None})
    drawing = marked(vector.getvalue().decode("utf-8"), marks).encode("utf-8")
    return {".svg": drawing, ".png": raster.getvalue()}
