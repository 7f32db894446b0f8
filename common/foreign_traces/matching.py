"""How well a profile and a model match by names; a profile of another model names little of it.

There are two shares, because each alone is high for some wrong pairs. A part of a network names only nodes
of the whole: all of its time is matched, and few of the model's contractions are. The whole names all contractions of a
part, and much of its time is in other layers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from common.foreign_traces.layers import Layer, Names, usual_us
from common.graphs.graph import Graph
from common.graphs.grouping import grouped
from common.graphs.operators import CONTRACTIONS, INSERTED
from common.messages.errors import PipelineError
from common.npu.nodes import LEAST_SHARE

_REPLACED = re.compile(r"[A-Za-z_/][\w/]*")


class MatchedFigures(TypedDict):
    matched_time_share: float
    matched_contraction_share: float | None
    matched_operation_share: float | None


@dataclass(frozen=True, slots=True)
class Matched:
    """What a profile and a model have in common."""

    # Share of the usual time of all layers that is in layers which name a node of the model, serve such a layer, or
    # compute what the model has folded into a node
    time_share: float
    # Share of the model's contractions that a layer names or has alone; None without any
    contraction_share: float | None
    # Share of the operations of both that order alone aligns; None if names or sizes match
    operation_share: float | None = None

    @property
    def figures(self) -> MatchedFigures:
        return {
            "matched_time_share": self.time_share,
            "matched_contraction_share": self.contraction_share,
            "matched_operation_share": self.operation_share,
        }

    def require(self, path: Path) -> None:
        """Refuse a profile of another model: one share is below ``LEAST_SHARE``."""
        shares = {
            "of its time": self.time_share,
            "of the model's contractions": self.contraction_share,
            "of all operations": self.operation_share,
        }
        known = {what: share for what, share in shares.items() if share is not None}
        if min(known.values()) < LEAST_SHARE:
            stated = " and ".join(f"{share:.1%} {what}" for what, share in known.items())
            problem = f"and the model match in {stated} only"
            raise PipelineError(path, problem, "give the model that was recorded, or <accept_partial>")


@dataclass(frozen=True)
class ModelNames:
    """The nodes of a model by the names that profiles have for them.

    A name is that of the node or of a tensor that it writes. Converters replace what C does not allow in a name by
    underscores, TensorRT only the dots. So a name of letters, digits, underscores and slashes also denotes the one node
    whose name, or that of its tensor, becomes the same identifier of C.
    """

    graph: Graph

    @cached_property
    def identifiers(self) -> Mapping[str, str]:
        of_tensors = _unique((_identifier(tensor), name) for tensor, name in self.graph.producer.items())
        return {**of_tensors, **_unique((_identifier(node.name), node.name) for node in self.graph.nodes)}

    def node(self, name: str) -> str | None:
        known = name if name in self.graph.by_name else self.graph.producer.get(name)
        if known is None and _REPLACED.fullmatch(name):
            return self.identifiers.get(_identifier(name))
        return known

    def nodes(self, names: Iterable[Names]) -> Iterator[str]:
        """Yield the node of each name; of several readings, that of the first one that the model knows."""
        for readings in names:
            known = map(self.node, (readings,) if isinstance(readings, str) else readings)
            if (node := next(filter(None, known), None)) is not None:
                yield node

    def served(self, layer: Layer, layers: Container[str], named: Mapping[str, str]) -> str:
        """Return the layer that another one serves, by the name of a layer, a node or an input; empty if unknown."""
        for name in layer.serves:
            if name in layers:
                return name
            nodes = (self.node(name) or "", *self.graph.consumers.get(name, ()))
            if target := next((named[node] for node in nodes if node in named), ""):
                return target
        return ""


def _unique(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the node of each identifier that denotes one node only."""
    return {identifier: nodes[0] for identifier, nodes in grouped(named).items() if len({*nodes}) == 1}


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name).strip("_")


def time_share(layers: Sequence[Layer], named: Container[str], served: Mapping[str, str]) -> float:
    """Return the share of the time that is in layers of the model; ``named`` are layers that name one of its nodes.

    A change of layout or of precision that names nothing counts for neither side: runtimes insert them.
    """
    matched_us = other_us = 0.0
    for layer in layers:
        if layer.name in named or layer.is_folded or served.get(layer.name, "") in named:
            matched_us += usual_us(layer)
        elif layer.layer_type not in INSERTED:
            other_us += usual_us(layer)
    return matched_us / (matched_us + other_us) if matched_us else 0.0


def contraction_share(graph: Graph, named: Mapping[str, str], owner: Mapping[str, str]) -> float | None:
    """Return the share of contractions that a layer names, or that it has alone because it names what follows."""
    contractions = [node.name for node in graph.nodes if node.op_type in CONTRACTIONS]
    per_layer = Counter(owner[name] for name in contractions if name in owner)
    layers = {*named.values()}
    matched = sum(name in named or (owner.get(name) in layers and per_layer[owner[name]] == 1) for name in contractions)
    return matched / len(contractions) if contractions else None
