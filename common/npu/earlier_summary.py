"""An earlier summary of a profile, and how each of its figures changed since."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from common.messages.errors import PipelineError
from common.npu.source_file import optional_number, read_json
from common.npu.summary_figures import SECTIONS

FILE = "npu_summary.json"
WHAT = "a folder that holds an npu_summary.json"
MOST_BYTES = 10_000_000
SAME = ("model", "is_emulated", "soc_models")  # where these differ, a change may have another cause

UNKNOWN: tuple[object, ...] = (None, [])


class FigureChange(TypedDict):
    """A figure of two summaries, and the change over the old value."""

    figure: str
    before: float | None
    now: float | None
    change_share: float | None


class SinceBaseline(TypedDict):
    """The figures that either summary knows, in the order of the new one; in what the profiles themselves differ."""

    changes: list[FigureChange]
    doubts: list[str]


def read_baseline(folder: Path) -> dict[str, object]:
    path = folder / FILE
    content = read_json(path, MOST_BYTES, WHAT)
    for title in SECTIONS:
        section = content.get(title)
        if not isinstance(section, dict):
            raise PipelineError(path, f"has no object {title!r}", f"give {WHAT}")
        for name in section:
            optional_number(path, section, name)
    return content


def since_baseline(before: Mapping[str, object], now: Mapping[str, object]) -> SinceBaseline:
    rows = []
    for title in SECTIONS:
        old, new = _section(before, title), _section(now, title)
        rows += [_change(name, old.get(name), new.get(name)) for name in dict.fromkeys((*new, *old))]
    doubts = [
        f"the baseline has {name} {before.get(name)}, this profile {now[name]}"
        for name in SAME
        if before.get(name) not in UNKNOWN and now[name] not in UNKNOWN and before[name] != now[name]
    ]
    return {"changes": [row for row in rows if (row["before"], row["now"]) != (None, None)], "doubts": doubts}


def _section(summary: Mapping[str, object], title: str) -> dict[str, float | None]:
    section = summary[title]
    return section if isinstance(section, dict) else {}


def _change(name: str, before: float | None, now: float | None) -> FigureChange:
    share = now / before - 1 if before and now is not None else None
    return {"figure": name, "before": before, "now": now, "change_share": share}
