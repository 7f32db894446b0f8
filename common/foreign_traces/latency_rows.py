"""The layers of a foreign profile as op_latency, run_latency and latency_summary; what it does not tell is None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import UnusableValueError
from common.foreign_traces.layers import Layer, LayerProfile, total_us
from common.graph import Graph
from common.latency.slow_runs import leading_slow_runs
from common.latency.statistics import QUANTILES, Estimate, estimate_columns, summary

NAMES = ("median", "mean", "min", "p95", "std")
UNKNOWN = (
    *("uses_thread_pool", "pool_thread_count", "pool_balance_share", "pool_wait_us", "peak_memory_bytes"),
    *("live_memory_bytes", "allocated_bytes", "correction_us", "correction_low_us", "correction_high_us"),
)
NO_PERCENTILES = "the profile has no unprofiled runs: their latency and its percentiles are unknown"
NOT_CORRECTED = "layer times are not corrected: what profiling added to them is unknown"
ONE_FIGURE = "the profile has one {figure} per layer: its other statistics are empty"


def latency_rows(profile: LayerProfile, graph: Graph, warmup: int) -> list[dict[str, Any]]:
    """Return a row of op_latency per layer."""
    return [_row(profile, layer, index, graph, warmup) for index, layer in enumerate(profile.layers)]


def _row(profile: LayerProfile, layer: Layer, index: int, graph: Graph, warmup: int) -> dict[str, Any]:
    node = graph.by_name[layer.name]
    outputs = [graph.tensors[name] for name in node.outputs]
    statistics = layer_statistics(layer, warmup)
    return {
        "executed_node": layer.name,
        "op_type": layer.layer_type,
        "domain": profile.domain,
        "provider": profile.program,
        "execution_index": index,
        "input_count": len(node.inputs),
        "input_shapes": [_extents(graph.tensors[name].shape) for name in node.inputs],
        "output_shapes": [_extents(tensor.shape) for tensor in outputs],
        "output_dtypes": [layer.dtype or tensor.dtype for tensor in outputs],
        "shape_variants": [],
        "sample_count": None if profile.run_count is None else profile.run_count - warmup,
        "events_per_run_count": 1,
        **{f"{kind}_{name}_us": statistics[name] for kind in ("raw", "corrected") for name in NAMES},
        "is_correction_dominated": False,
        "raw_total_us": total_us(layer, warmup, profile.run_count),
        **dict.fromkeys(UNKNOWN),
    }


def _extents(shape: Sequence[Any] | None) -> list[Any] | None:
    return None if shape is None else [extent if isinstance(extent, int) else None for extent in shape]


def layer_statistics(layer: Layer, warmup: int) -> dict[str, float | None]:
    """Return the statistics of a layer's time in one run; one figure alone gives no other one."""
    if not layer.run_us:
        return dict.fromkeys(NAMES) | {"median": layer.median_us, "mean": layer.mean_us}
    figures = summary(np.array(layer.run_us[warmup:]), "raw")
    return {name: figures[f"raw_{name}_us"] for name in NAMES}


def run_rows(profile: LayerProfile, warmup: int) -> list[dict[str, Any]]:
    """Return the rows of run_latency, from the start of the first run; none where the profile tells of no run."""
    return [
        {
            "is_profiled": True,
            "run_index": index,
            "is_warmup": index < warmup,
            "start_us": start_us - profile.run_start_us[0],
            "latency_us": duration_us,
        }
        for index, (start_us, duration_us) in enumerate(zip(profile.run_start_us, profile.run_us, strict=True))
    ]


def summary_figures(profile: LayerProfile, threads: int, warmup: int) -> dict[str, Any]:
    """Return the fields of latency_summary; those that need unprofiled runs are None."""
    unknown = Estimate(None, None, None)
    counted = profile.run_us[warmup:]
    return {
        "provider": profile.program,
        "threads": threads,
        "sample_count": 0,
        "profiled_sample_count": None if profile.run_count is None else profile.run_count - warmup,
        "warmup_count": 0,
        **{
            column: value
            for name in (*QUANTILES, "mean", "jitter")
            for column, value in estimate_columns(name, unknown).items()
        },
        "profiled_median_us": float(np.median(counted)) if counted else None,
        "trace_total_us": sum(total_us(layer, warmup, profile.run_count) for layer in profile.layers),
        "trace_event_count": sum(max(1, len(layer.run_us)) for layer in profile.layers),
        **dict.fromkeys(
            (
                *("graph_optimization", "steady_state", "steady_start_index", "session_creation_us", "first_run_us"),
                *("min_us", "max_us", "profiling_overhead_fraction", "pool_balance_share", "peak_memory_bytes"),
                *("arena_bytes", "peak_resident_bytes"),
            )
        ),
    }


def known_threads(profile: LayerProfile, given: int | None) -> int:
    """Return the host's threads; those that only start an accelerator are counted as one.

    Raises:
        UnusableValueError: the layers ran on the host, and the number is not given.
    """
    if given is None and not profile.is_of_device:
        raise UnusableValueError("threads", "is not given, and the profile does not tell it", "give the recorded count")
    return given or 1


def warm_up(profile: LayerProfile, given: int | None) -> int:
    """Return the runs to leave out at the start: those given, else the first run and the slow ones right after it.

    Raises:
        UnusableValueError: they leave none, or the profile does not tell of single runs.
    """
    if not profile.run_us:
        if given:
            raise UnusableValueError("warmup", "cannot be applied: the profile has no single runs", "leave it out")
        return 0
    if given is not None and given >= len(profile.run_us):
        raise UnusableValueError("warmup", f"{given} leaves none of the {len(profile.run_us)} runs", "give fewer")
    return leading_slow_runs(profile.run_us) if given is None else given


def limits(profile: LayerProfile, warmup: int) -> list[str]:
    notes = [NO_PERCENTILES, NOT_CORRECTED]
    if warmup:
        notes.append(f"the first {warmup} of {profile.run_count} runs count as warm-up")
    if profile.layers and not profile.layers[0].run_us:
        figure = "mean" if profile.layers[0].median_us is None else "median and one mean"
        notes.append(ONE_FIGURE.format(figure=figure))
    if profile.run_count is None:
        notes.append("the profile does not tell how many runs its means are over")
    return notes
