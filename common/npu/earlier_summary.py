"""An earlier summary of a profile, and how each of its figures changed since."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.errors import PipelineError
from common.npu.json_source import optional_number, read_json
from common.npu.summary_figures import SECTIONS

FILE = "npu_summary.json"
WHAT = "a folder that holds an npu_summary.json"
MOST_BYTES = 10_000_000
SAME = ("model", "is_emulated", "soc_models")  # where these differ, a change may have another cause

UNKNOWN: tuple[object, ...] = (None, [])


def read_baseline(folder: Path) -> dict[str, Any]:
    """Read the summary in a folder."""
    path = folder / FILE
    content = read_json(path, MOST_BYTES, WHAT)
    for title in SECTIONS:
        section = content.get(title)
        if not isinstance(section, dict):
            raise PipelineError(path, f"has no object {title!r}", f"give {WHAT}")
        for name in section:
            optional_number(path, section, name)
    return content


def since_baseline(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two summaries.

    Returns:
        ``changes``: a row for every figure that either knows, in the order of the new summary, with the change over
        the old value; ``doubts``: in what the profiles themselves differ.
    """
    names = ((title, name) for title in SECTIONS for name in dict.fromkeys((*now[title], *before[title])))
    rows = [_change(name, before[title].get(name), now[title].get(name)) for title, name in names]
    doubts = [
        f"the baseline has {name} {before.get(name)}, this profile {now[name]}"
        for name in SAME
        if before.get(name) not in UNKNOWN and now[name] not in UNKNOWN and before[name] != now[name]
    ]
    return {"changes": [row for row in rows if (row["before"], row["now"]) != (None, None)], "doubts": doubts}


def _change(name: str, before: float | None, now: float | None) -> dict[str, Any]:
    share = now / before - 1 if before and now is not None else None
    return {"figure": name, "before": before, "now": now, "change_share": share}
