"""The files of the page, read once: what a client names is looked up here and never becomes a path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
NAMES = ("index.html", "page.js", "charts.js", "page.css", "uplot.js", "uplot.css", "uplot.LICENSE.txt")


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Return the content and the type of each file by the path of its address; the page itself is ``/``."""
    files = {f"/{name}": ((FOLDER / name).read_bytes(), TYPES[Path(name).suffix]) for name in NAMES}
    return {"/": files.pop("/index.html"), **files}
