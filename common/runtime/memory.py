"""The least memory that the activations of a graph need, and whether it is free."""

from __future__ import annotations

from common.graphs.graph import Graph
from common.graphs.operators import COPIES, POINTWISE, RESHAPES
from common.messages.errors import PipelineError
from common.process.free_memory import free_bytes

WRITES_OVER = COPIES | POINTWISE | RESHAPES


def require_memory(model: object, graph: Graph) -> None:
    """Refuse a graph whose activations do not fit into free memory; the PipelineError names where most are alive."""
    needed, node = peak_activation_bytes(graph)
    free = free_bytes()
    if free is not None and needed > free:
        problem = f"its activations take {needed / 1e9:,.3g} GB at {node}, and {free / 1e9:,.3g} GB are free"
        raise PipelineError(model, problem, "give smaller sizes (<dim>), or use a host with more memory")


def peak_activation_bytes(graph: Graph) -> tuple[int, str]:
    """Return how many bytes of activations are alive at most, by the shapes, and at which node.

    A tensor is alive from the node that writes it to the last one that reads it; inputs and outputs of the graph stay.
    An operator needs no memory for its result if it can write over an operand of that size which nobody else reads.
    Tensors of unknown size count as 0, and bodies of control flow are left out, so more may be needed.
    """
    nodes = [node for node in graph.nodes if not node.body]
    kept = {*graph.outputs, *(name for name, tensor in graph.tensors.items() if tensor.kind == "input")}
    last = {name: place for place, node in enumerate(nodes) for name in (*node.outputs, *node.inputs)}
    alive = {name: _bytes(graph, name) for name in kept - {*graph.outputs}}
    peak, at = sum(alive.values()), "its inputs"
    total = peak
    for place, node in enumerate(nodes):
        results = {name: _bytes(graph, name) for name in node.outputs}
        dying = [name for name in {*node.inputs} & alive.keys() - kept if last[name] == place]
        can_write_over = node.op_type in WRITES_OVER and len(results) == 1
        if not can_write_over or {*results.values()}.isdisjoint(alive[name] for name in dying):
            peak, at = max((peak, at), (total + sum(results.values()), node.name), key=lambda needed: needed[0])
        alive |= results
        total += sum(results.values())
        dead = [*dying, *(name for name in results if last[name] == place and name not in kept)]
        total -= sum(alive.pop(name) for name in dead)
    return peak, at


def _bytes(graph: Graph, name: str) -> int:
    size = graph.tensors[name].size_bytes if name in graph.tensors else None
    return size if isinstance(size, int) else 0
