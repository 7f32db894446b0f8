"""Rows of os_events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from common.os_events.events import INTERVALS, PSUTIL, TRACEFS, OsEvent

KEPT = tuple(field.name for field in fields(OsEvent) if field.name != "time_s")
FLAGS = ("is_main_thread", "is_own_thread")  # both false for an event without a thread


def event_rows(events: Iterable[OsEvent], origin_s: float) -> Iterator[dict[str, Any]]:
    """Yield a row per event, by time in µs since ``origin_s`` on the clock of ``time.perf_counter``."""
    for index, event in enumerate(events):
        row: dict[str, Any] = {
            "event_index": index,
            "event_source": TRACEFS if event.event_kind in INTERVALS else PSUTIL,
            "time_us": 1e6 * (event.time_s - origin_s),
        }
        kept = {name: getattr(event, name) for name in KEPT}
        yield row | kept | {name: bool(kept[name]) for name in FLAGS}
