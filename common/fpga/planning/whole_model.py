"""A whole network on one overlay engine: latency, frames per second, and what each layer takes of it.

The engine runs its steps one after the other. A feature map stays on the chip if it fits a bank of the buffer: it is
then neither written nor read. What a Concat joins lies where its result lies. Layers that the engine has no unit for
run on the host, and each time that control comes back to the engine it is called again.

    latency = Σ steps + calls · call cost + inputs · cost of one + Σ host layers · cost of an operation + link
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import PipelineError
from common.fpga.kernels.estimate import Bound, interval
from common.fpga.kernels.overlay import OverlayEngine, OverlayStep
from common.fpga.kernels.overlay_cycles import PLACED, unsupported, weight_elements
from common.fpga.kernels.overlay_memory import elements, ends, moved, places_of
from common.fusion.border import board_phases, crossings
from common.fusion.groups import Group, fuse
from common.intervals import ThreePoint, combine
from common.source_graph import SourceGraph
from common.workload.layers import Convolution, Layer, Matmul, Pooling, Rowwise

Layers = Mapping[str, tuple[Layer, ...] | None]


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One step of the network; ``unit`` is array, window or host. Bytes are int8, of one image, weights among them."""

    name: str
    op_types: tuple[str, ...]
    unit: str
    macs: int
    weight_bytes: int
    moved_bytes: int
    cycles: int
    compute_us: float
    memory_us: float
    fixed_us: float
    time_us: float
    bound: Bound


Timed = tuple[LayerTime, OverlayStep | None]  # no step: on the host


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A network on an engine.

    Attributes:
        batch: images that are computed together, one on each engine.
        latency_us: from the first image's pixels to the last one's scores, of one batch.
        frames_per_second: with as many host threads as the configuration says, each with a batch of its own on the way.
        pipelined_frames_per_second: with host threads enough that the engines never wait.
        roofline_us: the larger of work over peak and compulsory bytes over bandwidth, which is no estimate.
    """

    engine: str
    board: str
    batch: int
    latency_us: ThreePoint
    frames_per_second: ThreePoint
    pipelined_frames_per_second: ThreePoint
    engine_us: float
    host_us: float
    roofline_us: float
    macs: int
    layers: tuple[LayerTime, ...]
    notes: tuple[str, ...]


def whole_model(graph: SourceGraph, layers: Layers, engine: OverlayEngine) -> WholeModel:
    """Put every fused group on the engine, or on the host where the engine has no unit for it.

    Args:
        graph: the source graph, all extents known.
        layers: what each node computes, by its name.
        engine: on its board.

    Raises:
        PipelineError: an extent is unknown, or the model holds a batch of its own.
    """
    _require_one_image(layers)
    groups = [part for group in fuse(graph) for part in _parts(graph, group, layers, engine)]
    places = places_of(graph)
    rows = {
        group.nodes[-1]: _row(graph, group, layers, engine, places) for group in groups if not _is_placed(group, graph)
    }
    if not any(step for _, step in rows.values()):
        raise PipelineError(engine.name, "runs no layer of the model", "it is made for convolutional networks")
    on_engine = _on_engine(graph, groups, rows)
    phases = board_phases(graph, groups, on_engine)
    calls = len({phase for last, phase in phases.items() if last in rows})
    around_us = _around_us(graph, engine, on_engine, calls)
    notes = _notes(engine, [row for row, _ in rows.values()], calls)
    return _summary(graph, engine, list(rows.values()), around_us, notes)


def _require_one_image(layers: Layers) -> None:
    for name, found in layers.items():
        for layer in found or ():
            if isinstance(layer, Convolution | Pooling) and layer.batch != 1:
                problem = f"is counted for a batch of {layer.batch}"
                raise PipelineError(name, problem, "run 02_shapes_flops_bytes.py with a batch of 1: engines batch")


def _parts(graph: SourceGraph, group: Group, layers: Layers, engine: OverlayEngine) -> tuple[Group, ...]:
    """A group whole, or cut before the first node without a unit: that and what follows is the host's."""
    for index, name in enumerate(group.nodes):
        if index and not _is_supported(layers[name], engine):
            return tuple(_part(graph, group, nodes) for nodes in (group.nodes[:index], group.nodes[index:]))
    return (group,)


def _part(graph: SourceGraph, group: Group, nodes: tuple[str, ...]) -> Group:
    heads = tuple(name for name in group.heads if name in nodes)
    return Group(group.kind, nodes, heads, tuple(graph.nodes[name].op_type for name in nodes))


def _is_supported(found: tuple[Layer, ...] | None, engine: OverlayEngine) -> bool:
    return found is not None and not any(unsupported(layer, engine.config.shape) for layer in found)


def _is_placed(group: Group, graph: SourceGraph) -> bool:
    """A view and a Concat are no steps: they say where tensors lie."""
    return all(graph.is_free(name) or graph.nodes[name].op_type in PLACED for name in group.nodes)


def _on_engine(graph: SourceGraph, groups: Sequence[Group], rows: Mapping[str, Timed]) -> set[str]:
    """Nodes on the engine; what is no step lies with the steps whose results it places."""
    found: set[str] = set()
    for group in groups:
        if group.nodes[-1] in rows:
            belongs = rows[group.nodes[-1]][1] is not None
        else:
            tensors = [tensor for name in group.nodes for tensor in graph.variables(graph.nodes[name])]
            belongs = any(graph.producer.get(tensor) in found for tensor in tensors)
        if belongs:
            found.update(group.nodes)
    return found


# --- rows ------------------------------------------------------------------------------------------------------------


def _row(graph: SourceGraph, group: Group, layers: Layers, engine: OverlayEngine, places: Mapping[str, int]) -> Timed:
    """One group on the engine if it has units for all of its layers, else on the host."""
    name = group.heads[0] if group.heads else group.nodes[0]
    found = tuple(layer for node in group.nodes for layer in layers[node] or ())
    macs = sum(layer.macs for layer in found if isinstance(layer, Convolution | Matmul))
    if not all(_is_supported(layers[node], engine) for node in group.nodes):
        return _host_row(name, group, found, macs, engine), None
    weights = sum(weight_elements(layer) for layer in found)
    read, written = moved(graph, group.nodes, places, engine.config.shape.bank_bytes)
    step = engine.step(found, weights, read, written)
    row = LayerTime(
        name=name,
        op_types=group.op_types,
        unit="array" if step.array_cycles else "window",
        macs=macs,
        weight_bytes=weights,
        moved_bytes=weights + read + written,
        cycles=step.array_cycles + step.window_cycles,
        compute_us=step.compute_us,
        memory_us=step.memory_us,
        fixed_us=step.fixed_us,
        time_us=step.time_us,
        bound=step.bound,
    )
    return row, step


def _host_row(name: str, group: Group, layers: Sequence[Layer], macs: int, engine: OverlayEngine) -> LayerTime:
    """A scalar loop over the operations, once for every image of the batch."""
    operations = sum(map(_operations, layers)) * engine.config.engine_count
    time_us = operations * engine.config.host.operation_ns * 1e-3
    return LayerTime(name, group.op_types, "host", macs, 0, 0, 0, time_us, 0.0, 0.0, time_us, "compute")


def _operations(layer: Layer) -> int:
    """Multiply-accumulates, or elements that are read."""
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
    graph: SourceGraph,
    engine: OverlayEngine,
    timed: Sequence[Timed],
    around_us: float,
    notes: tuple[str, ...],
) -> WholeModel:
    config, batch = engine.config, engine.config.engine_count
    rows, steps = [row for row, _ in timed], [step for _, step in timed if step]
    engine_us = sum(step.time_us for step in steps)
    host_us = sum(row.time_us for row in rows if row.unit == "host") + around_us
    macs = sum(row.macs for row in rows if row.unit != "host")
    work_us = macs / engine.peak_macs_per_us
    ideal_memory_us = sum(step.ideal_memory_us for step in steps)
    efficiency, share = config.efficiency, config.ports.efficiency
    fixed_us = sum(step.fixed_us for step in steps)
    latency = interval(engine_us + host_us, work_us, ideal_memory_us, efficiency, share, fixed_us + host_us)
    busy = interval(engine_us, work_us, ideal_memory_us, efficiency, share, fixed_us)
    # Threads take turns on the engines: a batch leaves when they are free, or when its thread is.
    period = combine(lambda whole, engines: max(engines, whole / config.host.threads), latency, busy)
    return WholeModel(
        engine=config.name,
        board=config.board,
        batch=batch,
        latency_us=latency,
        frames_per_second=combine(lambda period_us: batch * 1e6 / period_us, period),
        pipelined_frames_per_second=combine(lambda busy_us: batch * 1e6 / busy_us, busy),
        engine_us=engine_us,
        host_us=host_us,
        roofline_us=_roofline_us(graph, engine, rows),
        macs=macs,
        layers=tuple(rows),
        notes=notes,
    )


def _around_us(graph: SourceGraph, engine: OverlayEngine, on_engine: set[str], calls: int) -> float:
    """What the host does around the engine: calls, scaling the input, and over the link whatever changes sides."""
    host, batch = engine.config.host, engine.config.engine_count
    inputs, _ = ends(graph)
    crossing = sum(elements(graph, tensor.tensor) for tensor in crossings(graph, on_engine))
    return calls * host.call_us + batch * (inputs * host.input_ns * 1e-3 + crossing / host.link_bytes_per_s * 1e6)


def _roofline_us(graph: SourceGraph, engine: OverlayEngine, rows: Sequence[LayerTime]) -> float:
    """Williams et al. 2009 (CACM 52:4): all work over the peak, or weights, input and output once over the memory."""
    compulsory_bytes = sum(row.weight_bytes for row in rows) + sum(ends(graph))
    work_us = sum(row.macs for row in rows) / engine.peak_macs_per_us
    return max(work_us, compulsory_bytes / (engine.config.ports.memory_bytes_per_s * 1e-6))


def _notes(engine: OverlayEngine, rows: Sequence[LayerTime], calls: int) -> tuple[str, ...]:
    notes = list(engine.config.assumptions)
    hosted: dict[tuple[str, ...], list[LayerTime]] = {}
    for row in rows:
        if row.unit == "host":
            hosted.setdefault(row.op_types, []).append(row)
    for op_types, same in hosted.items():
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        time_us = sum(row.time_us for row in same)
        notes.append(
            f"{same[0].name}{others} ({'+'.join(op_types)}): no unit on {engine.name}, {time_us:,.0f} us on the host"
        )
    if calls > 1:
        notes.append(f"the engine is called {calls} times: what runs on the host lies between")
    return tuple(notes)
