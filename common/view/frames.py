"""Rows as a table of columns, for pictures, which compute on whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd


def frame_of(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return rows as a table; an unknown number is NaN, also where no row has one."""
    frame = pd.DataFrame([dict(row) for row in rows])
    return frame.astype({name: "float64" for name in frame if frame[name].isna().all()})
