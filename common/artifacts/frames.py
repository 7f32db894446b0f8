"""Conversion between rows and tables, without loss and fast enough for a hundred thousand rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd


def frame_of(rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> pd.DataFrame:
    """Make a table of rows with the same keys. The rows are consumed one at a time.

    Cells keep Python's types, except flags: pandas would turn whole numbers beside an unknown into floats, which are
    rounded above 2**53. Without a row, the columns are ``names``.
    """
    columns: dict[str, list[Any]] = {}
    for row in rows:
        columns = columns or {name: [] for name in row}
        for name, cells in columns.items():
            cells.append(row[name])
    columns = columns or {name: [] for name in names}
    flags = [name for name, cells in columns.items() if cells and all(isinstance(cell, bool) for cell in cells)]
    return pd.DataFrame(columns, dtype="object").astype(dict.fromkeys(flags, "bool"))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings, with None for an unknown."""
    names = [str(name) for name in frame.columns]
    columns = (_plain_cells(frame[name]) for name in frame.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain_cells(column: pd.Series[Any]) -> list[Any]:
    """Return the cells in Python's own types, with None for an unknown."""
    cells, unknown = column.tolist(), column.isna()
    if not unknown.any():
        return cells
    return [None if is_unknown else cell for cell, is_unknown in zip(cells, unknown.tolist(), strict=True)]
