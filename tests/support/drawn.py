"""What a picture says, and where its texts end."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def texts(figure):
    """Every text of a picture."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def head(figure):
    """Title and subtitle."""
    return [text.get_text() for text in figure.texts[:2]]


def boxes(figure):
    """Every visible text but the ticks', with its box as drawn."""
    FigureCanvasAgg(figure).draw()
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    ticks = {label for axis in axis_of(figure) for label in (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True))}
    return [(text, Text.get_window_extent(text)) for text in shown if text not in ticks]


def axis_of(figure):
    """Both axes of each drawing; not of a column of text."""
    return [axis for axes in figure.axes if axes.axison for axis in (axes.xaxis, axes.yaxis)]


def outside(figure):
    """Texts that end outside of the picture; ticks count as their axis shows them."""
    own = [(text.get_text(), box) for text, box in boxes(figure)]
    ticks = [(f"ticks of {axis.get_label_text()}", axis.get_tightbbox()) for axis in axis_of(figure)]
    own += [(name, box) for name, box in ticks if box is not None]  # of an axis that is shown
    page = figure.bbox
    return [name for name, box in own if box.x0 < 0 or box.x1 > page.x1 or box.y0 < 0 or box.y1 > page.y1]
