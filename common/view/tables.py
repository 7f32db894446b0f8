"""A table as one specification: the header and the cell of each column; a terminal, a page and Markdown show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, TypeVar

from common.messages.names import printable
from common.view.html import html_table
from common.view.text import WIDTH, text_table

Row_contra = TypeVar("Row_contra", contravariant=True)  # a column of fewer keys serves rows of more


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[Row_contra]):
    """A column; its cell is the text of a row. It is aligned right or left, but on a page by what its cells hold."""

    header: str
    cell: Callable[[Row_contra], str]
    is_left: bool = False

    def called(self, header: str) -> TableColumn[Row_contra]:
        """Return the same column under another header."""
        return replace(self, header=header)


class Table(Generic[Row_contra]):
    """Columns in their order; the first one is aligned left."""

    def __init__(self, *columns: TableColumn[Row_contra]) -> None:
        self.columns = (replace(columns[0], is_left=True), *columns[1:])

    @property
    def header(self) -> list[str]:
        return [column.header for column in self.columns]

    def cells(self, rows: Iterable[Row_contra]) -> list[list[str]]:
        """Return the cells of each row, without line ends and marks of direction."""
        return [[printable(column.cell(row)) for column in self.columns] for row in rows]

    def text(
        self,
        rows: Iterable[Row_contra],
        *,
        first: Iterable[Sequence[str]] = (),
        last: Iterable[Sequence[str]] = (),
        width: int = WIDTH,
    ) -> str:
        """Return the table for a terminal of a width; the first cells are shortened where the table would be wider.

        ``first`` and ``last`` are cells of rows above and below, such as sums.
        """
        left = [place for place, column in enumerate(self.columns) if column.is_left]
        return text_table(self.header, [*first, *self.cells(rows), *last], left=left, width=width)

    def html(
        self,
        rows: Iterable[Row_contra],
        aside: str = "",
        nodes: Sequence[Sequence[int]] = (),
        *,
        last: Iterable[Sequence[str]] = (),
    ) -> str:
        """Return the table for a page, or nothing for no rows; ``nodes`` are the numbers of those of each row."""
        return html_table(self.header, [*self.cells(rows), *last], aside, nodes)

    def markdown(self, rows: Iterable[Row_contra]) -> str:
        marks = ["---" if column.is_left else "---:" for column in self.columns]
        lines = [self.header, marks, *self.cells(rows)]
        return "\n".join(f"| {' | '.join(map(escaped, cells))} |" for cells in lines)


def rows_left_out(shown: Sized, rows: Sized, file: str) -> str:
    """Return how many rows a table shows, if not all, and which file has them."""
    return f"{len(shown)} of {len(rows)} rows; all of them in {file}" if len(rows) > len(shown) else ""


def table_of_cells(*header: str, left: Iterable[int] = (0,)) -> Table[Sequence[str]]:
    """Return a table whose rows are their cells, because each row has its own meaning."""
    return Table(*(TableColumn(name, itemgetter(place), place in left) for place, name in enumerate(header)))


def escaped(text: str) -> str:
    """Return a text that stays in its cell of Markdown, and is no HTML."""
    safe = printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return safe.replace("`", "\\`").replace("*", "\\*").replace("_", "\\_") if safe.strip("-:") else safe
