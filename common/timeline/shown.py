"""A profiled run whose nodes a timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.latency.run import NodeSpan


@dataclass(frozen=True, slots=True)
class Shown:
    """A profiled run whose nodes are shown; ``role`` says why."""

    run_index: int
    role: str
    spans: Sequence[NodeSpan]
