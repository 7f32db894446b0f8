"""The fused groups of a model as layers over maps: the unit that an accelerator maps, and fuses with others.

A layer has at most one window that slides over one map (a contraction or a pool); everything else in its group works
on the elements of the result where they are. So a tile of its result follows from a tile of the map below the window
and from the same tile of every operand that is added to it. Groups without this form (attention, recurrences,
operators that move elements) are layers too: their traffic and their multiply-accumulates count, but they fuse with
no other layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

from common.fusion.border import border, unfused_bytes
from common.fusion.groups import Group, fuse
from common.fusion.patterns import ROWS
from common.graphs import number_formats
from common.graphs.operators import COPIES, POINTWISE, QUANTIZERS
from common.graphs.source_graph import SourceGraph
from common.messages.names import shown
from common.table_rows import OpMetricsRow
from common.workload.layer_rows import element_count, layers_by_node
from common.workload.layers import Layer, Pooling, Rowwise
from common.workload.loop_nests import LoopNest
from common.workload.nest_rows import in_elements, nests_by_node, pads_before, require_bound

IN_PLACE = QUANTIZERS | COPIES | {"Cast"}  # between the operand in memory and the window: element by element
STAYS_IN_PLACE = POINTWISE | ROWS | QUANTIZERS  # the result of each has the extents of its operand
Sizes = Mapping[str, Mapping[str, int]]  # bytes of each tensor, by its role


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """The extents of a tensor as images of channels, rows and columns, and the bits of one element."""

    images: int
    channels: int
    rows: int
    columns: int
    bits: int = 32

    @property
    def extents(self) -> tuple[int, int, int, int]:
        return self.images, self.channels, self.rows, self.columns

    @property
    def elements(self) -> int:
        return prod(self.extents)


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over a map: for each axis its taps, stride, dilation and the zeros before the map."""

    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)


Maps: TypeAlias = tuple[FeatureMap, Window, FeatureMap]  # below the window, the window, and the result


@dataclass(frozen=True, slots=True)
class MapForm:
    """How a tile of a layer's result follows from tiles of what it reads."""

    below: FeatureMap  # the map that the window slides over
    window: Window
    result: FeatureMap  # the map that the layer writes
    source: str  # the tensor that the window slides over
    added: tuple[str, ...]  # tensors that are read element by element, where the result is


@dataclass(frozen=True, slots=True)
class MapLayer:
    """One fused group of the model."""

    name: str  # its last source node
    kind: str  # of the group: conv, gemm, attention, rowwise, pool, pointwise, none
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    nests: tuple[LoopNest, ...]  # its contractions as loop nests, of one pass
    passes: int  # how often the nests run in one run of the model
    macs: int  # multiply-accumulates of all passes
    weight_bytes: int  # constants that it reads
    reads: Mapping[str, int]  # bytes that it must read of each activation
    writes: Mapping[str, int]  # bytes of each tensor that it writes for others
    spilled_bytes: int  # traffic between the operators of a group that is no single kernel here
    form: MapForm | None  # how it can be tiled together with others; None where it cannot
    outside: str = ""  # what of it is costed as traffic or left out, and why; empty where nothing is

    @property
    def bytes(self) -> int:
        """Bytes that cross its border, each tensor once, and what its own operators pass on through memory."""
        return self.weight_bytes + sum(self.reads.values()) + sum(self.writes.values()) + self.spilled_bytes


@dataclass(frozen=True)
class LayerGraph:
    """The layers of a model, in an order in which they can run, and the tensors between them."""

    layers: tuple[MapLayer, ...]
    producer: Mapping[str, int]  # index of the layer that writes each tensor; inputs of the model have none
    consumers: Mapping[str, tuple[int, ...]]  # indices of the layers that read each tensor
    returned: frozenset[str]


def layer_graph(
    metrics: Iterable[OpMetricsRow],
    graph: SourceGraph,
    *,
    counts_elements: bool = False,
    groups: Iterable[Group] | None = None,
) -> LayerGraph:
    """Return the layers of a model from the rows of op_metrics and its source graph.

    With ``counts_elements``, each element counts as one byte. ``groups`` are the nodes of each layer, in an order in
    which they can run; by default those of :func:`fuse`. Unbound dimensions are an UpstreamError.
    """
    rows = {row["source_node"]: row for row in metrics}
    reader = _Reader(rows, in_elements(graph) if counts_elements else graph)
    chosen = fuse(graph) if groups is None else groups
    layers = [reader.layer(group) for group in chosen if not all(map(reader.graph.is_free, group.nodes))]
    return linked(layers, frozenset(graph.storage.get(tensor, tensor) for tensor in graph.returned))


def linked(layers: Sequence[MapLayer], returned: frozenset[str]) -> LayerGraph:
    """Return layers, in an order in which they can run, with the tensors between them and those that it returns."""
    consumers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for tensor in layer.reads:
            consumers.setdefault(tensor, []).append(index)
    return LayerGraph(
        tuple(layers),
        {tensor: index for index, layer in enumerate(layers) for tensor in layer.writes},
        {tensor: tuple(readers) for tensor, readers in consumers.items()},
        returned,
    )


class _Reader:
    """Reads groups of one model as layers. ``maps`` holds the map of each tensor that a layer before has written."""

    def __init__(self, rows: Mapping[str, OpMetricsRow], graph: SourceGraph) -> None:
        require_bound(rows.values())
        self.rows, self.graph = rows, graph
        self.nests, self.layers = nests_by_node(rows.values(), graph), layers_by_node(rows.values(), graph)
        self.maps: dict[str, FeatureMap] = {}

    def layer(self, group: Group) -> MapLayer:
        rows = [self.rows[name] for name in group.nodes]
        sizes: dict[str, dict[str, int]] = {"weight": {}, "read": {}, "write": {}}
        unknown = [row["source_node"] for row in rows if _is_unknown(row)]
        for tensor in border(self.graph, group.nodes):
            stored = self.graph.storage.get(tensor.tensor, tensor.tensor)
            sizes[tensor.role][stored] = max(sizes[tensor.role].get(stored, 0), tensor.size_bytes or 0)
        nests = tuple(nest for name in group.nodes for nest in self.nests[name])
        passes = rows[-1]["execution_count"] or 1
        macs = sum(row["macs"] or row["upper_bound_macs"] or 0 for row in rows)
        if macs != passes * sum(nest.macs for nest in nests):
            nests = ()
        form = self._form(group, nests, sizes) if passes == 1 and not unknown else None
        if form is not None:
            self.maps[next(iter(sizes["write"]))] = form.result
        return MapLayer(
            name=group.nodes[-1],
            kind=group.kind,
            nodes=group.nodes,
            op_types=group.op_types,
            nests=nests,
            passes=passes,
            macs=macs,
            weight_bytes=sum(sizes["weight"].values()),
            reads=sizes["read"],
            writes=sizes["write"],
            spilled_bytes=self._spilled(group, nests, sizes),
            form=form,
            outside=self._outside(group, nests, macs, unknown),
        )

    def _spilled(self, group: Group, nests: tuple[LoopNest, ...], sizes: Sizes) -> int:
        """Return the traffic inside a group of several contractions: each of them is a kernel of its own here."""
        if len(nests) < 2:
            return 0
        border_bytes = sum(sum(tensors.values()) for tensors in sizes.values())
        return max(0, (unfused_bytes(self.graph, group) or 0) - border_bytes)

    def _outside(self, group: Group, nests: tuple[LoopNest, ...], macs: int, unknown: Sequence[str]) -> str:
        if unknown:
            names = ", ".join(shown(name) for name in unknown[:3])
            return f"the work of {names} depends on data; what is known of it counts"
        if macs and not nests:
            return f"{'+'.join(group.op_types)} is no loop nest: its traffic and its multiply-accumulates count"
        return "" if group.kind in ("conv", "gemm", "pool") else f"{'+'.join(group.op_types)} counts as traffic"

    def _form(self, group: Group, nests: tuple[LoopNest, ...], sizes: Sizes) -> MapForm | None:
        """Return how the group can be tiled; None where its tensors are not maps of the sizes that its layers have."""
        if len(sizes["write"]) != 1 or not sizes["read"]:
            return None
        (written,) = sizes["write"]
        source = self._source(group, sizes["read"])
        maps = self._maps(group, nests, source, written) if source is not None else None
        if maps is None or source is None:
            return None
        below, window, result = maps
        added = tuple(tensor for tensor in sizes["read"] if tensor != source)
        elements = partial(element_count, self.graph)
        fits = elements(source) == below.elements and elements(written) == result.elements
        are_aligned = all(elements(tensor) == result.elements and self._bits(tensor) == result.bits for tensor in added)
        is_same = self.maps.get(source, below).extents == below.extents
        return MapForm(below, window, result, source, added) if fits and are_aligned and is_same else None

    def _source(self, group: Group, read: Mapping[str, int]) -> str | None:
        """Return the tensor in memory that the head's window slides over, or the only tensor that is read."""
        if not group.heads:
            return None
        tensor = self.graph.variables(self.graph.nodes[group.heads[0]])[0]
        while (producer := self.graph.producer.get(tensor)) in group.nodes and producer not in group.heads:
            node = self.graph.nodes[str(producer)]
            if node.op_type not in IN_PLACE:
                return None
            tensor = self.graph.variables(node)[0]
        stored = self.graph.storage.get(tensor, tensor)
        return stored if stored in read else None

    def _maps(self, group: Group, nests: tuple[LoopNest, ...], source: str, written: str) -> Maps | None:
        bits = (self._bits(source), self._bits(written))
        layers = [layer for name in group.nodes for layer in self.layers[name] or ()]
        if len(nests) == 1 and nests[0].has_weight:
            return maps_of_nest(nests[0], bits)
        pools = [layer for layer in layers if isinstance(layer, Pooling)]
        if group.kind == "pool" and len(pools) == 1 and pools[0].axes <= 2:
            return maps_of_pool(pools[0], self.rows[group.heads[0]]["attributes"].get("pads"), bits)
        if group.kind in ("rowwise", "pointwise") and not nests and set(group.op_types) <= STAYS_IN_PLACE:
            return self._same_map(source, layers, bits)
        return None

    def _same_map(self, source: str, layers: Sequence[Layer], bits: tuple[int, int]) -> Maps | None:
        """Return a map whose result is where it was: rows of a normalization, or any map of point-wise operators."""
        known = self.maps.get(source)
        rows = [layer for layer in layers if isinstance(layer, Rowwise)]
        if known is None or len(rows) > 1 or any(row.width != known.channels for row in rows):
            return None
        return replace(known, bits=bits[0]), Window(), replace(known, bits=bits[1])

    def _bits(self, tensor: str) -> int:
        return number_formats.element_bits(self.graph.dtypes[tensor]) or 8


def _is_unknown(row: OpMetricsRow) -> bool:
    """Return whether data decide what an operator moves or multiplies."""
    return row["bytes"] is None or (row["m_count"] is not None and row["macs"] is None)


def maps_of_nest(nest: LoopNest, bits: tuple[int, int]) -> Maps:
    """Return the map below, the window and the result of a contraction, with the bits of both maps' elements."""
    below = FeatureMap(nest.n, nest.groups * nest.c, nest.stored_height, nest.stored_width, bits[0])
    strides, dilations = (nest.stride_p, nest.stride_q), (nest.dilation_r, nest.dilation_s)
    window = Window((nest.r, nest.s), strides, dilations, (nest.pad_p, nest.pad_q))
    return below, window, FeatureMap(nest.n, nest.groups * nest.k, nest.p, nest.q, bits[1])


def maps_of_pool(pool: Pooling, pads: Any, bits: tuple[int, int]) -> Maps:
    strides, dilations = (pool.stride_height, pool.stride_width), (pool.dilation_height, pool.dilation_width)
    window = Window((pool.kernel_height, pool.kernel_width), strides, dilations, pads_before(pads))
    below = FeatureMap(pool.batch, pool.channels, pool.in_height, pool.in_width, bits[0])
    return below, window, FeatureMap(pool.batch, pool.channels, pool.out_height, pool.out_width, bits[1])
