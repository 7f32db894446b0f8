"""Tensors between groups with their sizes on the card, and the order in which the host ran the groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from math import ceil

from common.fusion.border import BorderRole, BorderTensor
from common.fusion.groups import Group
from common.graphs import number_formats
from common.graphs.number_formats import FLOAT_FORMATS, PRECISION_BITS
from common.graphs.operators import CONTROL_FLOW, PACKED_PRODUCTS
from common.graphs.source_graph import SourceGraph
from common.workload.host_cost import HostCost


@dataclass(frozen=True, slots=True)
class TensorFlow:
    """One stored tensor between groups; views of it count as the same tensor, and constants are not transferred."""

    tensor: str
    producer: int | None  # index of the group that writes it; None for an input of the model
    consumers: tuple[int, ...]  # indices of the other groups that read it, in rising order
    host_bytes: int | None  # at the number format of the model; None is unknown
    card_bytes: int | None  # at the number format of the kernels
    is_output: bool


def tensor_flows(graph: SourceGraph, groups: Sequence[Group], formats: Sequence[str]) -> list[TensorFlow]:
    """Return every tensor that leaves its group, and every input of the model that a group reads, each once.

    A tensor is in the number format of the group that writes it (``formats`` has that of each group), and an input of
    the model in the widest format of the groups that read it.
    """
    owner = {name: index for index, group in enumerate(groups) for name in group.nodes}
    readers: dict[str, set[int]] = {}
    for name, node in graph.nodes.items():
        for tensor in graph.variables(node):
            # The readers of a view read its bytes, not the view. The owner of a body waits for the body's results, and
            # a view that the model returns waits for the bytes.
            waits = node.op_type in CONTROL_FLOW or not graph.returned.isdisjoint(node.outputs)
            if graph.reads[tensor, name] != 0 or waits:
                readers.setdefault(graph.storage.get(tensor, tensor), set()).add(owner[name])
    returned = {graph.storage.get(tensor, tensor) for tensor in graph.returned}
    flows = []
    for tensor in dict.fromkeys((*readers, *sorted(returned))):
        if tensor in graph.constants:
            continue
        producer = owner.get(graph.producer.get(tensor, ""))
        consumers = tuple(sorted(readers.get(tensor, set()) - {producer}))
        if consumers or (tensor in returned and producer is not None):
            size = graph.sizes[tensor]
            names = {formats[group] for group in (consumers if producer is None else [producer])}
            on_card = card_bytes(size, graph.dtypes[tensor], max(names, key=PRECISION_BITS.__getitem__))
            flows.append(TensorFlow(tensor, producer, consumers, size, on_card, tensor in returned))
    return flows


def executed_order(flows: Iterable[TensorFlow], costs: Sequence[HostCost], executed: Iterable[str]) -> list[int]:
    """Return the indices of the groups in the order in which the host finished them.

    The last executed node that computes part of a group decides. If the first one did, a group could come before its
    operands: the runtime may compute a convolution early, and add another result to it much later. A group that no
    executed node computes (views, folded constants) comes as soon as its operands are ready.
    """
    position = {name: index for index, name in enumerate(executed)}
    finished = [max((position[name] for name in cost.executed_nodes), default=-1) for cost in costs]
    waits = ((flow.producer, consumer) for flow in flows if flow.producer is not None for consumer in flow.consumers)
    for before, after in sorted(waits):  # the groups are in an order in which they can run
        finished[after] = max(finished[after], finished[before])
    return sorted(range(len(costs)), key=finished.__getitem__)


def card_bytes(size_bytes: int | None, dtype: str, precision: str) -> int | None:
    """Return the bytes of a tensor on the card; formats below a byte are packed. None where the size is unknown.

    Floating-point tensors are converted to the format of the kernels, integers keep their width.
    """
    bits = number_formats.element_bits(dtype)
    if size_bytes is None or dtype not in FLOAT_FORMATS or not bits:
        return size_bytes
    return ceil(size_bytes * PRECISION_BITS[precision] / bits)


def element_bits(dtype: str, precision: str) -> int:
    return PRECISION_BITS[precision] if dtype in FLOAT_FORMATS else number_formats.element_bits(dtype) or 8


def scales(graph: SourceGraph) -> frozenset[str]:
    """Return the constants that dequantize weights in blocks: they keep the format of the file on the card."""
    return frozenset(
        name
        for node in graph.nodes.values()
        if node.op_type in PACKED_PRODUCTS
        for name in node.inputs
        if name in graph.constants
    )


def bytes_by_role(
    tensors: Iterable[BorderTensor], precision: str, kept: Set[str] = frozenset()
) -> dict[BorderRole, int] | None:
    """Return the bytes that cross a border on the card, by role; None where a size is unknown.

    The tensors in ``kept`` have as many bytes as in the file.
    """
    role_bytes: dict[BorderRole, int] = {"weight": 0, "read": 0, "write": 0}
    for tensor in tensors:
        is_kept = tensor.tensor in kept
        size = tensor.size_bytes if is_kept else card_bytes(tensor.size_bytes, tensor.dtype, precision)
        if size is None:
            return None
        role_bytes[tensor.role] += size
    return role_bytes
