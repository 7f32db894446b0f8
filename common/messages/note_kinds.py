"""What a note endangers, and the one order of notes: by their effect on the verdict on the plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from common.messages.host_doubts import BUSY, NOT_JUDGED

MOST_OF_A_KIND = 2
BROKEN = "threshold broken"  # the exit code says so, too
# What a doubt endangers, in the order of its effect on the verdict, with a table of each stage whose notes do so.
ENDANGERED = {
    "everything": (),
    "every time": (),
    "plan": ("offload_plan", "overlay_summary", "kernels", "what_if_plans"),
    "times": ("op_latency",),
    "work": ("op_metrics", "op_roofline"),
    "energy": ("ops_profile",),
    "roofs": ("host_ceilings",),
    "chain": ("op_schedule",),
    "tails": (),
    "design": ("design_points", "design_engines", "engine_summary"),
    "NPU": ("npu_summary", "bottlenecks"),
    "load": (
        *("load_summary", "load_best", "load_fleet", "endurance_summary", "load_interference", "loadgen_summary"),
        *("load_endpoint", "provider_comparison"),
    ),
    "generation": ("generation_summary", "stream_summary", "decode_summary"),
    "accuracy": ("format_precision",),
    "comparison": ("comparison", "paired_comparison", "mend_trials", "run_history", "metrics"),
    "dashboard": ("dashboard_summary",),
    "single runs": (),
    "what is absent": (),
}
# The beginnings of notes that endanger something else than the other notes of their stage.
SUBJECTS = {
    "everything": re.compile(rf"{BROKEN}: |(.*: incomplete \()?(a signal|Ctrl-C) ended"),
    "every time": re.compile(BUSY),
    "single runs": re.compile(
        r"(profiled )?run \d+ \(|and \d+ more slow runs|tracefs: |(.*: incomplete \(.*)?os_events: "
    ),
    "energy": re.compile("(powercap|pyRAPL|nvml|power|energy): |energy counts|the energy speedup"),
    "tails": re.compile(r"p\d[\d.]*(, p\d[\d.]*)* (left empty|without an upper limit)"),
    "what is absent": re.compile("(absent|psutil|perf): "),
}


def kind_of(note: str, usual: str) -> str:
    """Return the kind of a note: what it casts doubt on; ``usual`` is the kind of most notes of its stage."""
    return next((name for name, pattern in SUBJECTS.items() if pattern.match(note)), usual)


def usual_kind(written: Iterable[str]) -> str:
    """Return the usual kind of notes of the stage of these artifacts; those of other programs doubt everything."""
    names = {*written}
    return next((kind for kind, tables in ENDANGERED.items() if names & {*tables}), "everything")


def first_of_each(by_kind: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all notes, the most important first: a few of each kind in turn, then the next few of each."""
    ordered = [
        (rank // MOST_OF_A_KIND, place, note)
        for place, notes in enumerate(by_kind.values())
        for rank, note in enumerate(notes)
    ]
    return [note for _, _, note in sorted(ordered, key=lambda entry: entry[:2])]


def ranked(notes: Iterable[str], written: Iterable[str]) -> list[str]:
    """Return the notes of one stage, the most important first; a note that nothing is judged precedes all doubts."""
    usual = usual_kind(written)
    by_kind: dict[str, list[str]] = {kind: [] for kind in (NOT_JUDGED, *ENDANGERED)}
    for note in notes:
        by_kind[NOT_JUDGED if note.startswith(NOT_JUDGED) else kind_of(note, usual)].append(note)
    return first_of_each(by_kind)
