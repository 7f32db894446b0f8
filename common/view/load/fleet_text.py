"""Load tests of many models as text: what each model delivers, and on which host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from common.view.load.search_text import setup_label
from common.view.text import MISSING, duration, significant, table

FLEET_HEAD = ("model", "host", "requests/s", "answered", "p50", "p99", "set up as, or what is wrong")


def fleet_report(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a line per model."""
    return table(FLEET_HEAD, [fleet_line(row) for row in rows])


def fleet_line(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a model, under ``FLEET_HEAD``."""
    place = [Path(row["model_file"]).name, row["hostname"]]
    if not row["sent_count"]:
        return [*place, *[MISSING] * 4, row["validity_reason"] or "no request came"]
    figures = [significant(row[name]) for name in ("offered_requests_per_s", "answered_requests_per_s")]
    times = [duration(row[name]) for name in ("request_p50_us", "request_p99_us")]
    end = setup_label(row) if row["validity"] == "valid" else f"{row['validity']}: {row['validity_reason']}"
    return [*place, *figures, *times, end]
