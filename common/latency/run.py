"""A measured run: when it ran, how long it took, and, where they are known, when each of its nodes ran.

All times are on the clock of ``time.perf_counter``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """One execution of a node, in µs; a node of a subgraph's body runs within the span of the owner of the body."""

    executed_node: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run; ``run_index`` counts from 0 in each of the two series, profiled and unprofiled.

    ``node_spans`` is empty where the times of the nodes were not recorded or not looked up.
    """

    is_profiled: bool
    run_index: int
    start_s: float
    latency_us: float
    node_spans: Sequence[NodeSpan] = ()

    @property
    def end_s(self) -> float:
        """End of the run in s."""
        return self.start_s + 1e-6 * self.latency_us
