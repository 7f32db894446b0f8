"""A record of a measurement: its figures, the commit that was measured, and the conditions of the figures."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.comparison.measured import MeasuredSide
from common.comparison.stated_figures import FIGURES, ComparedFigure

LATENCY = ComparedFigure("end_to_end", "run_latency", "p50_us", "single")
NODE = ComparedFigure("node", "op_latency", "node_latency_us", "single")
KNOWN = {(figure.kind, figure.name): figure for figure in (LATENCY, NODE, *FIGURES)}
UNKNOWN = "unknown"
WAIT_S = 30.0  # a status of a large tree on a slow disk
# Records that differ in one of these belong to different histories.
SERIES = ("hostname", "cpu_model", "provider", "graph_optimization", "threads")


@dataclass(frozen=True, slots=True)
class Revision:
    commit: str = UNKNOWN  # its full name, or ``unknown``
    is_dirty: bool | None = None  # whether tracked files differ from it; None where unknown


class FigureName(NamedTuple):
    """Which figure of a record it is; ``figure`` is the name of its column."""

    kind: str
    figure: str
    subject: str


@dataclass(frozen=True)
class Record:
    identity: str  # SHA-256 of its tables of times: a measurement that is recorded again is the same record
    revision: Revision
    folder: str
    model_id: str
    model_path: str
    dimensions: Mapping[str, int]
    conditions: Mapping[str, Any]  # what its figures depend on: host, versions, settings, clocks
    doubts: Sequence[str]  # why its times decide nothing
    figures: Mapping[FigureName, float] = field(default_factory=dict)
    number: int = 0  # its place in the history, counted from 1
    recorded_at: str = ""  # when it was recorded, in UTC

    def series(self, *, is_across_models: bool = False) -> tuple[Any, ...]:
        settings = tuple(self.conditions.get(name) for name in SERIES)
        model = "" if is_across_models else self.model_id
        return (model, *sorted(self.dimensions.items()), *settings)


def record_of(side: MeasuredSide, revision: Revision, digests: Sequence[str], model_path: str) -> Record:
    """Return a measurement as a record of the history, from the SHA-256 of its tables of times that it has."""
    return Record(
        sha256("".join(digests).encode()).hexdigest(),
        revision,
        side.name,
        side.model_id,
        model_path,
        side.dimensions,
        side.conditions,
        tuple(side.doubts),
        dict(_figures(side)),
    )


def _figures(side: MeasuredSide) -> Iterator[tuple[FigureName, float]]:
    """Yield the median latency, the median of each executed node, and what the tables state."""
    if side.median_us is not None:
        yield FigureName(LATENCY.kind, LATENCY.name, ""), side.median_us
    for node, times_us in side.nodes_us.items():
        if len(times_us):
            yield FigureName(NODE.kind, NODE.name, node), float(np.median(times_us))
    for figure in FIGURES:
        for subject, row in side.stated.get(figure.document, {}).items():
            if row.get(figure.name) is not None:
                yield FigureName(figure.kind, figure.name, subject), float(row[figure.name])


def revision_of(folder: Path) -> Revision:
    """Return the commit of the working tree that a folder is in; unknown without git, or outside of a tree."""
    commit = _answer(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return Revision()
    changes = _answer(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, None if changes is None else bool(changes))


def _answer(folder: Path, *words: str) -> str | None:
    command = ("git", "--no-optional-locks", *words)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()
