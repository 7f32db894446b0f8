"""The profiled runs whose nodes a timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from common.errors import PipelineError
from common.latency.run import NodeSpan


@dataclass(frozen=True, slots=True)
class Shown:
    """A profiled run whose nodes are shown; ``role`` says why."""

    run_index: int
    role: str
    spans: Sequence[NodeSpan]


def choose_runs(latencies_us: Sequence[float], warmup_count: int, *, every: bool = False) -> dict[int, str]:
    """Return the first run, and the median and the slowest one after the warm-up, by index with their roles.

    ``every`` returns all the others too, without a role.

    Raises:
        PipelineError: there is no run.
    """
    if not latencies_us:
        raise PipelineError("<run_latency>", "holds no profiled run", "measure again")
    counted = [*enumerate(latencies_us)][warmup_count:] or [*enumerate(latencies_us)]
    middle = median_low(latency_us for _, latency_us in counted)
    roles: dict[int, list[str]] = {0: ["first"]}
    roles.setdefault(next(index for index, latency_us in counted if latency_us == middle), []).append("median")
    roles.setdefault(max(counted, key=lambda run: run[1])[0], []).append("slowest")
    named = {index: ", ".join(names) for index, names in sorted(roles.items())}
    return {index: named.get(index, "") for index in range(len(latencies_us))} if every else named
