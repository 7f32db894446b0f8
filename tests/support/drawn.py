"""What a picture says, and where its texts end."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def texts(figure):
    """Every text of a picture."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def head(figure):
    """Title and subtitle."""
    return [text.get_text() for text in figure.texts[:2]]


def outside(figure):
    """Texts that reach beyond the picture; labels of ticks that no axis shows do not count."""
    FigureCanvasAgg(figure).draw()
    ticks = [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    texts_shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    shown = [text for text in texts_shown if text not in ticks]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in shown]
    return [words for words, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.width or box.y0 < 0]
