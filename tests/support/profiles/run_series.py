"""The two series of a measurement, from runs that a test writes out one by one."""

from collections.abc import Iterator, Sequence

import numpy as np

from common.latency.run import Run, RunSeries


def series_of(runs: Sequence[Run]) -> Iterator[RunSeries]:
    """Yield the unprofiled runs and the profiled ones."""
    for is_profiled in (False, True):
        chosen = [run for run in runs if run.is_profiled == is_profiled]
        columns = [np.array([getattr(run, name) for run in chosen]) for name in ("run_index", "start_s", "latency_us")]
        yield RunSeries(is_profiled, *columns, {run.run_index: run.node_spans for run in chosen})
