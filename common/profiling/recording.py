"""A trace that was recorded elsewhere: which of its runs count, and the figures that it gives.

A trace holds profiled runs only, so it gives no latency of unprofiled runs. Nobody measured the cost of profiling on
the recording machine, so the nodes' times are not corrected. Such figures are left empty.

Unless the warm-up is given, it is the first run, in which the runtime allocates its memory, and the slow runs right
after it (slow as in :mod:`common.latency.slow_runs`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, cast

from common.graphs.graph import Graph
from common.graphs.grouping import grouped
from common.graphs.operators import CONTRACTIONS
from common.latency.profiled_runs import figures_without_own_runs
from common.latency.slow_runs import leading_slow_runs
from common.messages.errors import PipelineError, UnusableValueError
from common.profiling.correction import NodeLatency, node_latency, traced_input_counts
from common.profiling.trace.events import RUNTIME_CUT, read_events
from common.profiling.trace.nesting import Bodies
from common.profiling.trace.reader import Trace, collect, keep_runs
from common.profiling.trace.utilization import run_utilization
from common.table_rows import LatencySummaryDocument

NOT_CORRECTED = "node times are not corrected: the cost of profiling on the recording machine is unknown"
NO_PERCENTILES = "the trace has profiled runs only: the latency of unprofiled runs and its percentiles are unknown"
# Providers whose kernels a node only starts, unless it must wait for a result.
ASYNCHRONOUS = ("CUDA", "ROCM", "MIGraphX", "Dml", "Js", "WebGpu")
# The blocked layout of ONNX Runtime fills up the channels of what a node writes: how the names of such nodes end, and
# the most channels of a block (MlasNchwcGetBlockSize).
BLOCKED, BLOCK = "_nchwc", 16
_SUFFIX = re.compile(r"_(nchwc|bn|mul|nhwc|token_\d+|fused|quant)$")
_FUSION = re.compile(r"/\w+Fusion/?$")
EMPTY = (
    "a trace does not contain these, so they are empty: provider_layers, power_samples, host_samples, os_events, "
    "run_disturbances, hardware_counters"
)


@dataclass(frozen=True, slots=True)
class Recording:
    """The sound runs of a recorded trace, of which the first ``warmup`` are in no statistic."""

    trace: Trace
    warmup: int
    threads: int
    provider: str  # the execution provider that took the most kernel time
    lacks: tuple[str, ...]  # why the trace is incomplete
    notes: tuple[str, ...]  # limits of the figures, for their reader

    @property
    def run_count(self) -> int:
        return self.trace.run_count - self.warmup

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "event_count": self.trace.recorded_count,
            "run_count": self.trace.run_count,
            "provider": self.provider,
            "threads": self.threads,
            "warmup": self.warmup,
        }

    @property
    def median_us(self) -> float:
        """Median duration of the runs after the warm-up."""
        return statistics.median(self.trace.run_duration_us[self.warmup :])


def read_recorded_trace(path: Path, bodies: Bodies | None = None) -> Trace:
    """Read all runs of a recorded trace; refuse a file that is no trace, is cut short, or has no complete run.

    ``bodies`` are as in :func:`common.profiling.trace.reader.read_trace`.
    """
    try:
        trace = collect(read_events(path), bodies)
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", "give a trace of ONNX Runtime") from error
    if trace.cut and trace.cut != RUNTIME_CUT:
        raise PipelineError(path, f"is cut short ({trace.cut})", "copy it again, or record it again")
    if not trace.nodes:
        raise PipelineError(path, "has no complete run with nodes", "record at least one run with profiling enabled")
    return trace


def conclude_recording(path: Path, recorded: Trace, threads: int | None, warmup: int | None) -> Recording:
    """Find out which runs of a recorded trace count.

    Without a thread count, that of the trace holds; without a number of warm-up runs, the module's rule. PipelineError:
    runs overlap in time, or the clock was set back in every run. UnusableValueError: the thread count is unknown or
    contradicts the trace, or the warm-up leaves no run.
    """
    trace = keep_runs(recorded, recorded.run_is_orderly)
    if not trace.nodes:
        raise PipelineError(path, "has no run in which the clock was not set back", "record it again")
    spans = zip(trace.run_start_us, trace.run_duration_us, strict=True)
    if any(start_us + duration_us > later_us + 1 for (start_us, duration_us), (later_us, _) in pairwise(spans)):
        problem = "has runs that overlap in time: several ran at once, or the clock was set back"
        raise PipelineError(path, problem, "record one run after the other")
    if warmup is None:
        warmup = leading_slow_runs(trace.run_duration_us)
    elif warmup >= trace.run_count:
        raise UnusableValueError("warmup", f"{warmup} leaves none of the trace's {trace.run_count} runs", "give fewer")
    spoiled = recorded.run_count - trace.run_count
    lacks = [f"the trace has {recorded.run_count} complete runs only: {RUNTIME_CUT}"] if trace.cut else []
    lacks += [f"the clock was set back in {spoiled} runs, which are left out"] if spoiled else []
    providers = grouped((node.provider, sum(node.run_us)) for node in trace.nodes.values())
    busiest = max(providers, key=lambda name: sum(providers[name]))
    notes = tuple(_notes(trace, warmup, sorted(providers)))
    return Recording(trace, warmup, _threads(trace, threads), busiest, tuple(lacks), notes)


def _threads(trace: Trace, given: int | None) -> int:
    """Return the thread count; a trace does not state the one thread of a session without a pool.

    Threads that never started share one entry in the trace, so that more may be given than the trace has.
    """
    traced = max((node.pool.pool_size for node in trace.nodes.values() if node.pool), default=None)
    if given is None and traced is None:
        raise UnusableValueError("threads", "is not given, and the trace does not state it", "give the recorded count")
    if given and traced and given < traced:
        raise UnusableValueError("threads", f"{given} contradicts the trace: its thread pool has {traced} threads")
    return given or traced or 1


def _notes(trace: Trace, warmup: int, providers: Sequence[str]) -> Iterator[str]:
    yield from (NO_PERCENTILES, NOT_CORRECTED, EMPTY)
    yield f"the first {warmup} of {trace.run_count} runs count as warm-up"
    if not warmup and trace.run_count == 1:
        yield "the trace has one run only, which is a cold one"
    if not any(node.output_shapes for node in trace.nodes.values()):
        yield "the trace has no shapes (ONNX Runtime before 1.11), so work by executed shapes is unknown"
    if asynchronous := [name for name in providers if name.startswith(ASYNCHRONOUS)]:
        yield f"{', '.join(asynchronous)} computes after a node returned: a node's time is that of starting it"
    if len(providers) > 1:
        yield f"several providers ran nodes: {', '.join(providers)}"
    kernel_us = sum(sum(node.run_us) for node in trace.nodes.values())
    if kernel_us > sum(trace.run_duration_us) + trace.event_count:  # each time is cut to whole microseconds
        yield "the nodes take longer than the runs: several ran at once, so their times do not add up to a run"


def require_graph_of(path: Path, executed: Graph, trace: Trace) -> None:
    """Refuse a trace, of the file ``path``, with nodes that the graph lacks, or has with another operator.

    The PipelineError names them.
    """
    known = {(node.name, node.op_type) for node in executed.nodes}
    strangers = [node.name for node in trace.nodes.values() if (node.name, node.op_type) not in known]
    if strangers:
        problem = f"has nodes that the executed graph lacks: {', '.join(strangers[:5])}"
        raise PipelineError(path, problem, "give the graph that the recorded session saved")


def require_model_of(executed_path: Path, executed: Graph, model: Graph) -> None:
    """Refuse an executed graph whose inputs or outputs are not those of the model that it was made from.

    The PipelineError names those that only one of them has.
    """
    differing = {"input": _inputs(executed) ^ _inputs(model), "output": {*executed.outputs} ^ {*model.outputs}}
    for kind, names in differing.items():
        if names:
            problem = f"is not of this model: only one of them has the {kind} {', '.join(sorted(names)[:5])}"
            raise PipelineError(executed_path, problem, "give the model that was recorded")


def _inputs(graph: Graph) -> set[str]:
    return {name for name, tensor in graph.tensors.items() if tensor.kind == "input"}


def require_dimensions_of(path: Path, model: Graph, executed: Graph, trace: Trace) -> None:
    """Refuse a trace, of the file ``path``, in which an input or output of the model has another shape.

    The PipelineError says that the recorded sizes are to be given.
    """
    ends = {*model.outputs, *_inputs(model)}
    for name, traced in _traced_shapes(executed, trace):
        bound = model.tensors[name].shape if name in ends else None
        pairs = zip(bound or (), traced, strict=False)
        has_other_size = any(isinstance(size, int) and size != extent for size, extent in pairs)
        if bound is not None and len(bound) == len(traced) and has_other_size:
            problem = f"was recorded with {name} of shape {traced}, the model has {[*bound]}"
            raise PipelineError(path, problem, "give the recorded sizes with <dim>")


def require_sizes_of(path: Path, model: Graph, executed: Graph, trace: Trace) -> None:
    """Refuse a trace where half or more of the comparable contractions wrote other sizes: exporters reuse names.

    Raises:
        PipelineError: they did.
    """
    compared = [*_written_contractions(model, executed, trace)]
    strange = [entry for entry in compared if prod(entry[1]) != prod(entry[2])]  # a fused node may have another rank
    if strange and 2 * len(strange) >= len(compared):
        name, bound, traced = strange[0]
        problem = f"was recorded with {name} of shape {traced}, the model has {bound}"
        raise PipelineError(path, problem, "give the model that was recorded, or <accept_partial>")


def _written_contractions(model: Graph, executed: Graph, trace: Trace) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield the tensor that each contraction of the trace wrote: its name, its shape in the model and in the trace."""
    for traced in trace.nodes.values():
        if traced.op_type in CONTRACTIONS and traced.output_shapes:
            names = (*executed.by_name[traced.name].outputs[:1], *model_names(traced.name))
            known = next((name for name in names if name in model.tensors), "")
            shape, written = model.tensors[known].shape if known else None, [*traced.output_shapes[0]]
            bound = [extent for extent in shape or () if isinstance(extent, int)]
            if shape is not None and len(bound) == len(shape):
                is_filled = traced.name.endswith(BLOCKED) and len(written) == len(bound) > 1
                if is_filled and bound[1] <= written[1] < bound[1] + BLOCK:
                    written[1] = bound[1]
                yield known, bound, written


def model_names(traced: str) -> tuple[str, ...]:
    """Return the names of the model that a traced name may denote, the longest first.

    The runtime names what it fuses or moves to another layout after a node or a tensor of the model:
    ``<tensor>[_bn|_mul]_nchwc``, ``<node>_token_<number>``, ``<node>/<name of the fusion>``, ``fused <node>``,
    ``Inserted…Cast_<tensor>``. A node that it inserted between two others has no name of the model.
    """
    return tuple(dict.fromkeys(_readings(traced.removeprefix("fused "))))


def _readings(name: str) -> Iterator[str]:
    yield name
    for pattern in (_SUFFIX, _FUSION):
        if (shorter := pattern.sub("", name)) not in ("", name):
            yield from _readings(shorter)


def _traced_shapes(executed: Graph, trace: Trace) -> Iterator[tuple[str, list[Any]]]:
    """Yield each tensor whose shape is in the trace; the trace leaves out weights that the runtime has packed."""
    for traced in trace.nodes.values():
        node = executed.by_name[traced.name]
        if not traced.name.endswith(BLOCKED):
            yield from zip(node.outputs, traced.output_shapes, strict=False)
        read = [name for name in node.inputs if name]
        activations = [name for name in read if executed.tensors[name].kind != "weight"]
        for names in (read, activations):
            if len(names) == len(traced.input_shapes):
                yield from zip(names, traced.input_shapes, strict=True)
                break


def recorded_latencies(recording: Recording, input_counts: Mapping[str, int]) -> list[NodeLatency]:
    """Return statistics of every node; the trace omits some operands, and the corrected times are the raw ones."""
    trace, warmup = recording.trace, recording.warmup
    counts = traced_input_counts(trace, input_counts)
    return [node_latency(node, counts[name], warmup, None) for name, node in trace.nodes.items()]


def recording_figures(recording: Recording, latencies: Sequence[NodeLatency]) -> LatencySummaryDocument:
    """Return the fields of latency_summary; those that need unprofiled runs are None."""
    figures = {
        **figures_without_own_runs(),
        "provider": recording.provider,
        "threads": recording.threads,
        "profiled_sample_count": recording.run_count,
        "profiled_median_us": recording.median_us,
        "trace_total_us": sum(latency.raw_total_us for latency in latencies),
        "trace_event_count": recording.trace.event_count,
        **run_utilization(recording.trace, recording.warmup),
    }
    return cast("LatencySummaryDocument", figures)  # names that are put together are no literals
