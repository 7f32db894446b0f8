"""Measured runs: when each ran, how long it took, and, where they are known, when each of its nodes ran.

All times are on the clock of ``time.perf_counter``. Runs are kept as arrays, since an hour has a million of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """One execution of a node, in µs; a node of a subgraph's body runs within the span of the owner of the body."""

    executed_node: str
    start_us: float
    end_us: float
    thread_id: int | None = None


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
        return self.start_s + 1e-6 * self.latency_us


@dataclass(frozen=True, slots=True)
class RunSeries:
    """Runs of one session, in their order: number from 0, start and duration of each.

    ``node_spans`` say when the nodes ran, by run index; only for the runs of interest.
    """

    is_profiled: bool
    run_indices: npt.NDArray[np.int64]
    starts_s: Samples
    latencies_us: Samples
    node_spans: Mapping[int, Sequence[NodeSpan]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.run_indices)

    def runs(self) -> Iterator[Run]:
        for position in range(len(self)):
            index, start_s = int(self.run_indices[position]), float(self.starts_s[position])
            spans = self.node_spans.get(index, ())
            yield Run(self.is_profiled, index, start_s, float(self.latencies_us[position]), spans)

    def where(self, chosen: npt.NDArray[np.bool_]) -> RunSeries:
        return replace(
            self,
            run_indices=self.run_indices[chosen],
            starts_s=self.starts_s[chosen],
            latencies_us=self.latencies_us[chosen],
        )
