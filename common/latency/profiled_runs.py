"""The latency as a profile from elsewhere has it: runs with the profiler alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.latency.statistics import FIGURES, Estimate, estimate_columns
from common.table_rows import RunLatencyRow

# Fields of latency_summary that need runs without the profiler, or the process that ran them; the last six are in some
# profiles.
_OF_OWN_RUNS = (
    *("graph_optimization", "steady_state", "steady_start_index", "session_creation_us", "first_run_us"),
    *("min_us", "max_us", "profiling_overhead_fraction", "is_alternating", "peak_resident_bytes"),
    *("matched_time_share", "matched_contraction_share", "matched_operation_share"),
    *("pool_balance_share", "peak_memory_bytes", "arena_bytes"),
)


def figures_without_own_runs() -> dict[str, Any]:
    """Return the fields of latency_summary that need unprofiled runs: None, and no run counted."""
    unknown = {column: value for name in FIGURES for column, value in estimate_columns(name, Estimate()).items()}
    nothing: dict[str, Any] = {"sample_count": 0, "warmup_count": 0, "counts_for_limits": {}}
    return {**unknown, **nothing, **dict.fromkeys(_OF_OWN_RUNS)}


def profiled_run_rows(start_us: Sequence[float], latency_us: Sequence[float], warmup: int) -> list[RunLatencyRow]:
    """Return the rows of run_latency, from the start of the first run; none where the profile has no run."""
    return [
        {
            "is_profiled": True,
            "run_index": index,
            "is_warmup": index < warmup,
            "start_us": begin_us - start_us[0],
            "latency_us": duration_us,
        }
        for index, (begin_us, duration_us) in enumerate(zip(start_us, latency_us, strict=True))
    ]
