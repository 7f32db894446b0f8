"""A whole network on one overlay engine: latency, frames per second, and the time of each layer.

The engine runs its steps one after the other. A feature map that fits a bank of the buffer stays on the chip and causes
no traffic. The operands of a Concat are written where its result is, so the Concat is free. Layers without a unit on
the engine run on the host, and the engine is called again each time control returns to it.

    latency = Σ steps + calls · call time + input elements · time per element + host operations · time per operation
              + link
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.fpga.kernels.estimate import scattered
from common.fpga.kernels.overlay.cycles import PLACED, buffer_bytes, elements, ends, moved, unsupported, weight_elements
from common.fpga.kernels.overlay.engine import OverlayEngine, OverlayStep
from common.fusion.border import board_phases, crossings
from common.fusion.groups import Group, fuse
from common.graphs.grouping import grouped
from common.graphs.source_graph import SourceGraph
from common.intervals import ThreePoint, combine
from common.messages.errors import PipelineError
from common.table_rows import OverlayLayersRow, OverlaySummaryDocument
from common.workload.layers import Convolution, Layer, Matmul, Pooling, Rowwise
from common.workload.task_candidates import LayersByNode

TimedLayer = tuple[OverlayLayersRow, OverlayStep | None]  # without a step: on the host


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A network on an engine."""

    batch: int  # images that are computed together, one on each engine
    latency_us: ThreePoint  # of one batch, from the first image's pixels to the last image's scores
    frames_per_second: ThreePoint  # with the configured number of host threads, each with a batch in flight
    pipelined_frames_per_second: ThreePoint  # with enough host threads that the engines never wait
    engine_us: float
    host_us: float
    roofline_us: float  # the larger of work over peak and compulsory bytes over bandwidth: a bound, not an estimate
    macs: int
    layers: list[OverlayLayersRow]  # ``unit`` is array, window or host. Bytes are those of one image in int8.
    notes: tuple[str, ...]


def whole_model(graph: SourceGraph, layers: LayersByNode, engine: OverlayEngine) -> WholeModel:
    """Time every fused group on the engine, or on the host if the engine has no unit for it.

    A PipelineError says that a shape is unknown, or the model has a batch above 1.
    """
    _require_one_image(layers)
    groups = [part for group in fuse(graph) for part in _parts(graph, group, layers, engine)]
    sizes = buffer_bytes(graph)
    steps = [group for group in groups if not _is_placed(group, graph)]
    rows = {group.nodes[-1]: _row(graph, group, layers, engine, sizes) for group in steps}
    if not any(step for _, step in rows.values()):
        raise PipelineError(engine.name, "runs no layer of the model", "it is made for convolutional networks")
    on_engine = _on_engine(graph, groups, rows)
    phases = board_phases(graph, groups, on_engine)
    calls = len({phase for last, phase in phases.items() if last in rows})
    around_us = _around_us(graph, engine, on_engine, calls)
    notes = _notes(engine, [row for row, _ in rows.values()], calls)
    return _summary(graph, engine, list(rows.values()), around_us, notes)


def _require_one_image(layers: LayersByNode) -> None:
    for name, node_layers in layers.items():
        for layer in node_layers or ():
            if isinstance(layer, Convolution | Pooling) and layer.batch != 1:
                problem = f"its shapes are for a batch of {layer.batch}"
                remedy = "rerun <op_metrics> with a batch of 1: the engine batches images itself"
                raise PipelineError(name, problem, remedy)


def _parts(graph: SourceGraph, group: Group, layers: LayersByNode, engine: OverlayEngine) -> tuple[Group, ...]:
    """Return the group, or its two parts: nodes before the first one without a unit, and the rest for the host."""
    for index, name in enumerate(group.nodes):
        if index and not _is_supported(layers[name], engine):
            return tuple(_part(graph, group, nodes) for nodes in (group.nodes[:index], group.nodes[index:]))
    return (group,)


def _part(graph: SourceGraph, group: Group, nodes: tuple[str, ...]) -> Group:
    heads = tuple(name for name in group.heads if name in nodes)
    return Group(group.kind, nodes, heads, tuple(graph.nodes[name].op_type for name in nodes))


def _is_supported(layers: tuple[Layer, ...] | None, engine: OverlayEngine) -> bool:
    return layers is not None and not any(unsupported(layer, engine.shape) for layer in layers)


def _is_placed(group: Group, graph: SourceGraph) -> bool:
    """Return whether the group only places tensors: views and Concats are no steps."""
    return all(graph.is_free(name) or graph.nodes[name].op_type in PLACED for name in group.nodes)


def _on_engine(graph: SourceGraph, groups: Sequence[Group], rows: Mapping[str, TimedLayer]) -> set[str]:
    """Return the nodes on the engine; a group that only places tensors belongs to the steps that write them."""
    nodes: set[str] = set()
    for group in groups:
        if group.nodes[-1] in rows:
            belongs = rows[group.nodes[-1]][1] is not None
        else:
            tensors = [tensor for name in group.nodes for tensor in graph.variables(graph.nodes[name])]
            belongs = any(graph.producer.get(tensor) in nodes for tensor in tensors)
        if belongs:
            nodes.update(group.nodes)
    return nodes


# --- rows ------------------------------------------------------------------------------------------------------------


def _row(
    graph: SourceGraph, group: Group, layers: LayersByNode, engine: OverlayEngine, sizes: Mapping[str, int]
) -> TimedLayer:
    group_layers = tuple(layer for node in group.nodes for layer in layers[node] or ())
    step, unit, weights, moved_bytes, cycles = None, "host", 0, 0, 0
    if all(_is_supported(layers[node], engine) for node in group.nodes):
        weights = sum(weight_elements(layer) for layer in group_layers)
        read, written = moved(graph, group.nodes, sizes, engine.shape.bank_bytes)
        step = engine.step(group_layers, weights, read, written)
        unit, moved_bytes = "array" if step.array_cycles else "window", weights + read + written
        cycles = step.array_cycles + step.window_cycles
    # On the host: a scalar loop over the operations, once for every image of the batch.
    operations = sum(map(_operations, group_layers)) * engine.engine_count
    host_us = operations * engine.host.operation_ns * 1e-3
    row: OverlayLayersRow = {
        "engine_layer": group.heads[0] if group.heads else group.nodes[0],
        "op_types": list(group.op_types),
        "unit": unit,
        "macs": sum(layer.macs for layer in group_layers if isinstance(layer, Convolution | Matmul)),
        "weight_bytes": weights,
        "moved_bytes": moved_bytes,
        "engine_cycles": cycles,
        "compute_us": step.compute_us if step else host_us,
        "memory_us": step.memory_us if step else 0.0,
        "fixed_us": step.fixed_us if step else 0.0,
        "kernel_latency_likely_us": step.time_us if step else host_us,
        "board_bound": step.bound if step else "compute",
    }
    return row, step


def _operations(layer: Layer) -> int:
    """Return the multiply-accumulates, or the elements that are read."""
    if isinstance(layer, Convolution | Matmul):
        return layer.macs
    if isinstance(layer, Pooling):
        window = layer.kernel_height * layer.kernel_width
        return layer.batch * layer.channels * layer.out_height * layer.out_width * window
    if isinstance(layer, Rowwise):
        return layer.rows * layer.width
    return layer.elements * layer.operand_count


# --- the sum ---------------------------------------------------------------------------------------------------------


def _summary(
    graph: SourceGraph, engine: OverlayEngine, timed: Sequence[TimedLayer], around_us: float, notes: tuple[str, ...]
) -> WholeModel:
    batch = engine.engine_count
    rows, steps = [row for row, _ in timed], [step for _, step in timed if step]
    engine_us = sum(step.time_us for step in steps)
    host_us = sum(row["kernel_latency_likely_us"] or 0 for row in rows if row["unit"] == "host") + around_us
    macs = sum(row["macs"] or 0 for row in rows if row["unit"] != "host")
    work_us = macs / engine.peak_macs_per_us
    latency = scattered(engine_us + host_us, engine.scatter.band, work_us)
    busy = scattered(engine_us, engine.scatter.band, work_us)
    # Threads share the engines: a batch finishes each time the engines are free, or each time a thread is.
    period = combine(lambda whole, engines: max(engines, whole / engine.host.threads), latency, busy)
    return WholeModel(
        batch=batch,
        latency_us=latency,
        frames_per_second=combine(lambda period_us: batch * 1e6 / period_us, period),
        pipelined_frames_per_second=combine(lambda busy_us: batch * 1e6 / busy_us, busy),
        engine_us=engine_us,
        host_us=host_us,
        roofline_us=_roofline_us(graph, engine, rows),
        macs=macs,
        layers=rows,
        notes=notes,
    )


def _around_us(graph: SourceGraph, engine: OverlayEngine, on_engine: set[str], calls: int) -> float:
    """Return the host's time for calls, for scaling the input, and for tensors that cross the link."""
    host, batch = engine.host, engine.engine_count
    inputs, _ = ends(graph)
    crossing = sum(elements(graph, tensor) for tensor in crossings(graph, on_engine))
    return calls * host.call_us + batch * (inputs * host.input_ns * 1e-3 + crossing / host.link_bytes_per_s * 1e6)


def _roofline_us(graph: SourceGraph, engine: OverlayEngine, rows: Sequence[OverlayLayersRow]) -> float:
    """Return the roofline bound: all work over the peak, or weights, input and output once over the bandwidth.

    Williams, Waterman, Patterson, CACM 52(4), 2009.
    """
    compulsory_bytes = sum(row["weight_bytes"] or 0 for row in rows) + sum(ends(graph))
    work_us = sum(row["macs"] or 0 for row in rows) / engine.peak_macs_per_us
    return max(work_us, compulsory_bytes / (engine.ports.memory_bytes_per_s * 1e-6))


def _notes(engine: OverlayEngine, rows: Sequence[OverlayLayersRow], calls: int) -> tuple[str, ...]:
    notes = list(engine.assumptions)
    hosted = (row for row in rows if row["unit"] == "host")
    for op_types, alike in grouped(("+".join(row["op_types"]), row) for row in hosted).items():
        others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        layers = f"{alike[0]['engine_layer']}{others} ({op_types})"
        time_us = sum(row["kernel_latency_likely_us"] or 0 for row in alike)
        notes.append(f"{layers}: no unit on {engine.name}, {time_us:,.0f} us on the host")
    if calls > 1:
        notes.append(f"the engine is called {calls} times, because there are layers on the host between")
    return tuple(notes)


def summary_of(estimate: WholeModel, engine: OverlayEngine) -> OverlaySummaryDocument:
    return {
        "engine": engine.name,
        "board": engine.board,
        "clock_mhz": engine.clock_mhz,
        "image_count": estimate.batch,
        "macs": estimate.macs,
        "batch_latency_pessimistic_us": estimate.latency_us.pessimistic,
        "batch_latency_likely_us": estimate.latency_us.likely,
        "batch_latency_optimistic_us": estimate.latency_us.optimistic,
        "engine_us": estimate.engine_us,
        "host_us": estimate.host_us,
        "pessimistic_frames_per_s": estimate.frames_per_second.pessimistic,
        "likely_frames_per_s": estimate.frames_per_second.likely,
        "optimistic_frames_per_s": estimate.frames_per_second.optimistic,
        "pipelined_frames_per_s": estimate.pipelined_frames_per_second.likely,
        "roof_us": estimate.roofline_us,
    }
