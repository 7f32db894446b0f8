"""One side of a comparison: what was measured of one model on one host, whatever files it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from common.comparison.alignment import Executed, Fingerprints, fingerprints
from common.latency.dependence import Samples
from common.table_rows import OpEdgesRow, OpMetricsRow

CLOCK_TOLERANCE = 0.02  # share by which a measured rate may differ before it is named
Statement = Mapping[str, Any]  # the figures of a document, or of a row, by the names of their columns


@dataclass(frozen=True)
class MeasuredSide:
    name: str  # its folder or its model
    model_id: str  # of the model; empty where no table names one
    dimensions: Mapping[str, int]
    latencies_us: Samples  # unprofiled runs in their order, without the warm-up, one session after the other
    nodes_us: Mapping[str, Samples]  # time of each executed node in each profiled run that counts
    executed: Executed  # which source nodes each executed node computes
    op_types: Mapping[str, str]
    metrics: Sequence[OpMetricsRow] = ()
    edges: Sequence[OpEdgesRow] = ()
    stated: Mapping[str, Mapping[str, Statement]] = field(default_factory=dict)  # by table, and by what a row is about
    conditions: Mapping[str, Any] = field(default_factory=dict)  # what it depends on: host, versions, settings, clocks
    doubts: Sequence[str] = ()  # why its times decide nothing
    plan_doubts: Sequence[str] = ()  # why its plan has no verdict; the gain of the plan is then not stated
    session_runs: Sequence[int] = ()  # how many of the latencies each session has; empty for one session
    settings: Mapping[str, Any] = field(default_factory=dict)  # what was asked of the measurement, by name

    @cached_property
    def fingerprints(self) -> Fingerprints:
        return fingerprints(self.metrics, self.edges)

    @property
    def sessions_us(self) -> list[Samples]:
        """The latencies of each session; none without unprofiled runs."""
        ends = np.cumsum(self.session_runs)[:-1]
        return [part for part in np.split(self.latencies_us, ends) if len(part)]

    @property
    def median_us(self) -> float | None:
        """Median latency; None without unprofiled runs."""
        return float(np.median(self.latencies_us)) if len(self.latencies_us) else None

    def time_of(self, nodes: Sequence[str]) -> Samples:
        """Return the time of several nodes together, run by run; nothing for no nodes."""
        known = [self.nodes_us[name] for name in nodes if name in self.nodes_us]
        return np.asarray(np.sum(known, axis=0)) if known else np.zeros(0)

    def has_times(self, nodes: Sequence[str]) -> bool:
        return not nodes or any(name in self.nodes_us for name in nodes)

    def by_op_type(self) -> dict[str, Samples]:
        """Return the time of all nodes of each operator type, run by run."""
        kinds = sorted({self.op_types[name] for name in self.nodes_us})
        return {kind: self.time_of([name for name in self.nodes_us if self.op_types[name] == kind]) for kind in kinds}


def pooled(sides: Sequence[MeasuredSide]) -> MeasuredSide:
    """Return several measurements of one thing as one with the sessions of all of them.

    Nodes that one of them did not execute are left out.
    """
    first = sides[0]
    if len(sides) == 1:
        return first
    nodes = [name for name in first.nodes_us if all(name in side.nodes_us for side in sides)]
    return replace(
        first,
        name=", ".join(side.name for side in sides),
        latencies_us=np.concatenate([side.latencies_us for side in sides]),
        nodes_us={name: np.concatenate([side.nodes_us[name] for side in sides]) for name in nodes},
        doubts=tuple(doubt for side in sides for doubt in side.doubts),
        plan_doubts=tuple(doubt for side in sides for doubt in side.plan_doubts),
        session_runs=tuple(len(session) for side in sides for session in side.sessions_us),
    )


def changed_conditions(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[str]:
    """Return what differs between two measurements besides what was measured, in words.

    An unknown is no difference: a side does not state the figures of a table or a flag that it lacks.
    """
    unknown = (None, "")
    return [
        f"{name.replace('_', ' ')}: {_spoken(value)} against {_spoken(candidate[name])}"
        for name, value in baseline.items()
        if value not in unknown and candidate.get(name) not in unknown and _differ(value, candidate[name])
    ]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > CLOCK_TOLERANCE * max(abs(one), abs(other))
    return bool(one != other)


def _spoken(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
