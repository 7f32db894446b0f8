"""A network as FA-DOSA's users write it: layers with loop extents, edges, and groups that may be fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

from common.graphs.operators import CONTRACTIONS
from common.messages.errors import UnusableValueError
from common.messages.names import quoted
from common.workload.loop_nests import LOOPS, LoopNest

WINDOW = ("stride_p", "stride_q", "dilation_r", "dilation_s")  # of a layer's dimensions, those that are no loop


@dataclass(frozen=True, slots=True)
class GraphLayer:
    """One operator, with the bytes of all of its operands of a kind: ``input``, ``weight`` and ``output``."""

    op_type: str
    nest: LoopNest
    macs: int
    tensor_bytes: Mapping[str, int]


@dataclass
class ComputationGraph:
    """Layers by name, edges from writer to reader, and groups that may be fused, each in the order of computation."""

    layers: dict[str, GraphLayer] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    fusion_groups: list[tuple[str, ...]] = field(default_factory=list)

    def add_layer(
        self,
        name: str,
        dims: Mapping[str, int],
        op_type: str,
        *,
        macs: int | None = None,
        tensor_bytes: Mapping[str, int] | None = None,
    ) -> None:
        """Add a layer.

        Args:
            dims: extents of the loops N, G (groups), K, C, P, Q, R and S; a loop that is left out has one step. Also
                ``stride_p``, ``stride_q``, ``dilation_r`` and ``dilation_s`` of its window. An operator that keeps its
                channels apart (an activation, a pool) has them in G.
            op_type: its ONNX name.
            macs: multiply-accumulates; by default, a contraction has those of its loops and any other operator none.
            tensor_bytes: bytes of ``input``, ``weight`` and ``output``; by default those of the loops in float32, and
                weights for contractions alone.

        Raises:
            UnusableValueError: the name is taken, or a dimension is not known or is no number above 0.
        """
        if name in self.layers:
            raise UnusableValueError("layer", f"there are two of the name {quoted(name)}", "give each its own name")
        nest, is_contraction = _nest(dims), op_type in CONTRACTIONS
        sizes = tensor_bytes or {**nest.operand_bytes, **({} if is_contraction else {"weight": 0})}
        counted = calculate_macs(dims) if is_contraction else 0
        self.layers[name] = GraphLayer(op_type, nest, counted if macs is None else macs, sizes)

    def add_edge(self, src: str, dst: str) -> None:
        """Add an edge from the layer that writes a tensor to one that reads it; both must be known."""
        self._require_known((src, dst))
        if (src, dst) not in self.edges:
            self.edges.append((src, dst))

    def add_fusion_group(self, group: Sequence[str]) -> None:
        """Add layers that may run as one kernel.

        Raises:
            UnusableValueError: there is no such layer, two that follow each other have no edge, or one is in a group.
        """
        self._require_known(group)
        names = tuple(group)
        for pair in pairwise(names):
            if pair not in self.edges:
                problem = f"no edge goes from {quoted(pair[0])} to {quoted(pair[1])}"
                raise UnusableValueError("fusion_group", problem, "name the layers of a chain in their order")
        for name in names:
            if any(name in other for other in self.fusion_groups) or names.count(name) > 1:
                raise UnusableValueError(
                    "fusion_group", f"{quoted(name)} is in a group already", "groups share no layer"
                )
        self.fusion_groups.append(names)

    def readers(self, name: str) -> list[str]:
        return [dst for src, dst in self.edges if src == name]

    def _require_known(self, names: Sequence[str]) -> None:
        """Raise UnusableValueError for a layer that is not in the graph."""
        for name in names:
            if name not in self.layers:
                raise UnusableValueError("layer", f"{quoted(name)} is not in the graph", "add the layer first")


def calculate_macs(dims: Mapping[str, int]) -> int:
    """Return the multiply-accumulates of a contraction with these loops."""
    return prod(dims.get(loop, 1) for loop in LOOPS)


def _nest(dims: Mapping[str, int]) -> LoopNest:
    """Return a layer's loops, or refuse what is none."""
    known = (*LOOPS, *WINDOW)
    for name, size in dims.items():
        if name not in known or type(size) is not int or size < 1:
            problem = f"{quoted(name)} is {size!r}"
            raise UnusableValueError("dims", problem, f"give whole numbers above 0 for some of {', '.join(known)}")
    fields: dict[str, Any] = {"groups" if name == "G" else name.lower(): size for name, size in dims.items()}
    return LoopNest(**fields)
