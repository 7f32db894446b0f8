"""The layers of a foreign profile as op_latency and latency_summary; what it does not give is None."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from common.foreign_traces.layers import Layer, LayerProfile, total_us
from common.foreign_traces.matching import Matched
from common.graphs.graph import Graph, Shape
from common.latency.profiled_runs import figures_without_own_runs
from common.latency.slow_runs import leading_slow_runs
from common.latency.statistics import summary
from common.messages.errors import UnusableValueError
from common.table_rows import LatencySummaryDocument, OpLatencyRow

NO_PERCENTILES = "the profile has no unprofiled runs: their latency and its percentiles are unknown"
NOT_CORRECTED = "layer times are not corrected: what profiling added to them is unknown"
ONE_FIGURE = "the profile has one {figure} per layer: its other statistics are empty"


def latency_rows(profile: LayerProfile, graph: Graph, warmup: int) -> list[OpLatencyRow]:
    """Return a row of op_latency per layer; no statistic counts the ``warmup`` runs at the start."""
    return [_row(profile, layer, index, graph, warmup) for index, layer in enumerate(profile.layers)]


def _row(profile: LayerProfile, layer: Layer, index: int, graph: Graph, warmup: int) -> OpLatencyRow:
    node = graph.by_name[layer.name]
    outputs = [graph.tensors[name] for name in node.outputs]
    median_us, mean_us, min_us, p95_us, std_us = _statistics(layer, warmup)
    return {
        "executed_node": layer.name,
        "op_type": layer.layer_type,
        "domain": profile.domain,
        "provider": profile.program,
        "execution_index": index,
        "input_count": len(node.inputs),
        "uses_thread_pool": None,
        "input_shapes": [_extents(graph.tensors[name].shape) for name in node.inputs],
        "output_shapes": [_extents(tensor.shape) for tensor in outputs],
        "output_dtypes": [layer.dtype or tensor.dtype for tensor in outputs],
        "shape_variants": [],
        "sample_count": None if profile.run_count is None else profile.run_count - warmup,
        "pool_thread_count": None,
        "pool_balance_share": None,
        "pool_wait_us": None,
        "peak_memory_bytes": None,
        "live_memory_bytes": None,
        "allocated_bytes": None,
        "events_per_run_count": 1,
        "raw_median_us": median_us,
        "raw_mean_us": mean_us,
        "raw_min_us": min_us,
        "raw_p95_us": p95_us,
        "raw_std_us": std_us,
        "corrected_median_us": median_us,
        "corrected_mean_us": mean_us,
        "corrected_min_us": min_us,
        "corrected_p95_us": p95_us,
        "corrected_std_us": std_us,
        "correction_us": None,
        "correction_low_us": None,
        "correction_high_us": None,
        "is_correction_dominated": False,
        "raw_total_us": total_us(layer, warmup, profile.run_count),
    }


def _extents(shape: Shape) -> list[int | None] | None:
    return None if shape is None else [extent if isinstance(extent, int) else None for extent in shape]


def _statistics(layer: Layer, warmup: int) -> Iterator[float | None]:
    """Return median, mean, least, 95th percentile and deviation of a layer's time; one figure gives no others."""
    figures = {"raw_median_us": layer.median_us, "raw_mean_us": layer.mean_us}
    if layer.run_us:
        figures = summary(np.array(layer.run_us[warmup:]), "raw")
    return (figures.get(f"raw_{name}_us") for name in ("median", "mean", "min", "p95", "std"))


def summary_figures(profile: LayerProfile, matched: Matched, threads: int, warmup: int) -> LatencySummaryDocument:
    """Return the fields of latency_summary; those that need unprofiled runs are None."""
    counted = profile.run_us[warmup:]
    figures = {
        **figures_without_own_runs(),
        "provider": profile.program,
        "threads": threads,
        "profiled_sample_count": None if profile.run_count is None else profile.run_count - warmup,
        "profiled_median_us": float(np.median(counted)) if counted else None,
        "trace_total_us": sum(total_us(layer, warmup, profile.run_count) for layer in profile.layers),
        "trace_event_count": sum(max(1, len(layer.run_us)) for layer in profile.layers),
        **matched.figures,
    }
    return cast("LatencySummaryDocument", figures)  # names that are put together are no literals


def known_threads(profile: LayerProfile, given: int | None) -> int:
    """Return the host's threads; those that only start an accelerator are counted as one.

    Raises:
        UnusableValueError: the layers ran on the host, and the number is not given.
    """
    if given is None and not profile.is_of_device:
        raise UnusableValueError("threads", "is not given, and the profile does not say it", "give the recorded count")
    return given or 1


def warm_up(profile: LayerProfile, given: int | None) -> int:
    """Return the runs to leave out at the start: those given, else the first run and the slow ones right after it.

    Raises:
        UnusableValueError: they leave none, or the profile has no single runs.
    """
    if not profile.run_us:
        if given:
            raise UnusableValueError("warmup", "cannot be applied: the profile has no single runs", "leave it out")
        return 0
    if given is not None and given >= len(profile.run_us):
        raise UnusableValueError("warmup", f"{given} leaves none of the {len(profile.run_us)} runs", "give fewer")
    return leading_slow_runs(profile.run_us) if given is None else given


def limits(profile: LayerProfile, warmup: int) -> Iterator[str]:
    yield from (NO_PERCENTILES, NOT_CORRECTED)
    if warmup:
        yield f"the first {warmup} of {profile.run_count} runs count as warm-up"
    if profile.layers and not profile.layers[0].run_us:
        figure = "mean" if profile.layers[0].median_us is None else "median and one mean"
        yield ONE_FIGURE.format(figure=figure)
    if profile.run_count is None:
        yield "the profile does not say how many runs its means are over"
