"""The candidates of a plan: every group and every chain of groups, as a task for a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial

from common.fusion.border import border
from common.fusion.chains import LONGEST_CHAIN, ChainStage, Holding, find_chains, hold
from common.fusion.groups import Group
from common.fusion.patterns import INDEX_TYPES, ROW_REDUCTIONS, ROWS
from common.graphs.source_graph import SourceGraph
from common.workload.flows import bytes_by_role, element_bits, scales
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise, extents_of
from common.workload.tasks import Task

UNKNOWN_SIZE = "the size of what it reads or writes is unknown"
LayersByNode = Mapping[str, tuple[Layer, ...] | None]


@dataclass(frozen=True, slots=True)
class TaskCandidate:
    """One group or a chain of groups that a plan may take. It has a task, or a reason why no kernel computes it."""

    name: str  # ``I7`` for the group of index 7, ``I7-I9`` for a chain from it to the group of index 9
    kind: str  # kind of the group, or ``chain``
    covers: tuple[int, ...]  # indices of its groups, in the order in which they run
    task: Task | None  # for a kernel model to time
    why_not: str = ""  # one clause, empty where there is a task
    holding: Holding | None = None  # how a chain runs, and what it holds on the chip


def task_candidates(
    graph: SourceGraph,
    groups: Sequence[Group],
    layers: LayersByNode,
    precision: str,
    in_bodies: Set[str] = frozenset(),
    longest_chain: int = LONGEST_CHAIN,
) -> list[TaskCandidate]:
    """Return one candidate per group, in their order, then one per chain of at most ``longest_chain`` groups.

    Source nodes in the bodies of loops and branches (``in_bodies``) stay on the host with their owner.
    """
    finder = _Finder(graph, groups, layers, precision, in_bodies)
    unchained = [finder.of_group(index) for index in range(len(groups))]
    tasks = {index: candidate.task for index, candidate in enumerate(unchained) if candidate.task is not None}
    stages = {index: stage for index, task in tasks.items() if (stage := stage_of(task)) is not None}
    runs = find_chains(graph, groups, stages, longest_chain)
    return [*unchained, *(finder.of_chain(run, tasks, stages) for run in runs)]


@dataclass(frozen=True)
class _Finder:
    """The arguments of :func:`task_candidates`, which finds one candidate after the other."""

    graph: SourceGraph
    groups: Sequence[Group]
    layers: LayersByNode
    precision: str
    in_bodies: Set[str]

    @cached_property
    def _kept(self) -> frozenset[str]:
        return scales(self.graph)

    def of_group(self, index: int) -> TaskCandidate:
        group, name = self.groups[index], f"I{index}"
        candidate = partial(TaskCandidate, name, group.kind, (index,))
        if why_not := _why_not(self.graph, group, self.layers, self.in_bodies):
            return candidate(None, why_not)
        if (moved := bytes_by_role(border(self.graph, group.nodes), self.precision, self._kept)) is None:
            return candidate(None, UNKNOWN_SIZE)
        fused = group_layers(group, self.layers)
        if any(0 in extents_of(layer) for layer in fused):
            return candidate(None, "an extent is zero: there is nothing to compute")
        return candidate(Task(name, group.kind, fused, self.precision, moved["weight"], moved["read"], moved["write"]))

    def of_chain(
        self, run: tuple[int, ...], tasks: Mapping[int, Task], stages: Mapping[int, ChainStage]
    ) -> TaskCandidate:
        graph, groups, name = self.graph, [self.groups[index] for index in run], f"I{run[0]}-I{run[-1]}"
        nodes = [node for group in groups for node in group.nodes]
        if (moved := bytes_by_role(border(graph, nodes), self.precision, self._kept)) is None:
            return TaskCandidate(name, "chain", run, None, UNKNOWN_SIZE)
        bits = element_bits(graph.dtypes[graph.nodes[groups[0].nodes[-1]].outputs[0]], self.precision)
        # An activation that the first group reads is kept until a later one has read it, too.
        first = {tensor.tensor for tensor in border(graph, groups[0].nodes) if tensor.role == "read"}
        later = {name for group in groups[1:] for node in group.nodes for name in graph.nodes[node].inputs}
        keeps_input = not first.isdisjoint(later)
        holding = hold([stages[index] for index in run], bits, moved["weight"], keeps_input=keeps_input)
        layers = tuple(layer for index in run for layer in tasks[index].layers)
        sizes = moved["weight"], moved["read"], moved["write"], holding.bytes
        return TaskCandidate(name, "chain", run, Task(name, "chain", layers, self.precision, *sizes), holding=holding)


def _why_not(graph: SourceGraph, group: Group, layers: LayersByNode, in_bodies: Set[str]) -> str:
    """Say why no kernel computes a group; empty where a kernel may."""
    if all(graph.is_free(name) for name in group.nodes):
        return "moves nothing: free on either side"
    if not in_bodies.isdisjoint(group.nodes):
        return "is in the body of a loop or a branch"
    if group.kind == "none":
        node = graph.nodes[group.nodes[0]]
        types = {graph.dtypes.get(tensor, "") for tensor in (*graph.variables(node), *node.outputs)}
        return "works on indices, shapes or masks" if types & INDEX_TYPES else f"no kernel computes {node.op_type}"
    unknown = next((name for name in group.nodes if layers[name] is None), None)
    return f"extents of {unknown} are unknown, or no kernel computes it" if unknown is not None else ""


def group_layers(group: Group, layers: LayersByNode) -> tuple[Layer, ...]:
    """Return the layers of a group whose extents are known; an operator written out in several nodes is one layer."""
    in_order = tuple(layer for name in group.nodes for layer in layers[name] or ())
    if group.kind != "rowwise":
        return in_order
    last, first = in_order[-1], next((layer for layer in in_order if isinstance(layer, Rowwise)), None)
    if first is None:
        width = last.width if isinstance(last, Pointwise | Rowwise) else 1
        elements = max(layer.elements for layer in in_order if isinstance(layer, Pointwise))
        return (Rowwise("Gelu", elements // width, width),)
    comes_back = isinstance(last, Pointwise) and last.elements == first.rows * first.width
    if first.op_type in ROWS or not comes_back:
        return in_order
    return (Rowwise(_written_out(group), first.rows, first.width),)


def _written_out(group: Group) -> str:
    """Return the operator that the nodes write out: softmax subtracts a maximum, a layer normalization the mean."""
    if "ReduceMax" in group.op_types or "Exp" in group.op_types:
        return "Softmax"
    begins_with_mean = group.op_types[0] in ROW_REDUCTIONS
    return "LayerNormalization" if begins_with_mean and "Sub" in group.op_types else "RMSNormalization"


def stage_of(task: Task) -> ChainStage | None:
    """Return a group as a stage of a chain: rows of a map, or of a product with a weight; None for any other group."""
    heads = [layer for layer in task.layers if isinstance(layer, Convolution | Matmul | Pooling)]
    if len(heads) != 1:
        return None
    head = heads[0]
    if isinstance(head, Matmul):
        if head.batch != 1 or not head.has_weight:
            return None
        return ChainStage(1, head.m, head.k, head.m, head.n, 1, 1, 1, head.macs)
    if head.axes > 2 or (isinstance(head, Convolution) and head.is_transposed):
        return None
    return _window_stage(head)


def _window_stage(head: Convolution | Pooling) -> ChainStage:
    """Return a convolution or a pool as a stage, with rows along the height, or along the only axis."""
    if isinstance(head, Convolution):
        channels, macs = (head.in_channels, head.out_channels), head.macs
    else:
        channels, macs = (head.channels, head.channels), 0
    along, across = (head.in_height, head.out_height), (head.in_width, head.out_width)
    kernel, stride, dilation = head.kernel_height, head.stride_height, head.dilation_height
    if head.axes == 1:
        along, across = across, along
        kernel, stride, dilation = head.kernel_width, head.stride_width, head.dilation_width
    return ChainStage(
        images=head.batch,
        in_rows=along[0],
        in_row_elements=channels[0] * across[0],
        out_rows=along[1],
        out_row_elements=channels[1] * across[1],
        out_row_positions=across[1],
        window_rows=(kernel - 1) * dilation + 1,
        stride_rows=stride,
        macs=macs,
    )
