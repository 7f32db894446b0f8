"""FA-DOSA's own algorithm: Adam moves tiles and probabilities of fusion, and what is probable is fused.

The tiles decide no traffic under FA-DOSA's accounting, and they shrink to nothing. So the groups that are fused are all
that a schedule takes from it; whoever costs the kernels chooses tiles that fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.design_space.accelerator.hardware import Hardware
from common.design_space.fa_dosa.accounting import ACTIVATED, fa_dosa_kernels
from common.design_space.fa_dosa.graph import ComputationGraph
from common.design_space.fa_dosa.onnx_frontend import FIGURES, graph_of_rows
from common.design_space.fa_dosa.performance_model import (
    ConditionalPerformanceModel,
    FusionParameters,
    MappingParameters,
)
from common.design_space.mapping.arrays import torch_module
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.fusion.groups import Group
from common.fusion.patterns import HEADS, GroupKind
from common.graphs.operators import CONTRACTIONS, POOLS
from common.graphs.source_graph import SourceGraph
from common.table_rows import OpMetricsRow
from common.workload.map_layers import LayerGraph, layer_graph, linked

EPOCHS = 1000  # as FA-DOSA's README reports its results
RATE = 0.1
LEAST = 1e-9  # beside each cost in the loss
Nodes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FaDosaModel:
    """A model as FA-DOSA sees it: a graph of operators, and the layers if all are apart or all groups are fused."""

    graph: ComputationGraph
    apart: LayerGraph
    fused: LayerGraph

    @classmethod
    def of(cls, metrics: Sequence[OpMetricsRow], source: SourceGraph) -> FaDosaModel | None:
        """Return a model from its rows of op_metrics and its source graph; None where a size depends on data."""
        if any(row[figure] is None for row in metrics for figure in FIGURES):
            return None
        fused, apart = (fa_dosa_kernels(metrics, source, operators) for operators in (ACTIVATED, ()))
        graphs = (
            layer_graph(metrics, source, groups=[_group(source, kernel.nodes) for kernel in kernels])
            for kernels in (apart, fused)
        )
        return cls(graph_of_rows(metrics, source), *graphs)


class LearntGroups(NamedTuple):
    """The groups that are fused after some epochs, and whether the epochs came to their end."""

    fused: frozenset[Nodes]
    epoch_count: int
    is_complete: bool


def learnt_groups(
    graph: ComputationGraph, hardware: Hardware, most_epochs: int, observer: SearchObserver = UNOBSERVED
) -> LearntGroups:
    """Return the groups that FA-DOSA fuses: those that are more probable than not after its epochs.

    Raises:
        PipelineError: PyTorch is not installed.
        UnusableValueError: the accelerator has other memories.
    """
    torch, model = torch_module(), ConditionalPerformanceModel(hardware)
    mapping, fusion = MappingParameters(graph), FusionParameters(graph)
    optimizer = torch.optim.Adam([*mapping.parameters(), *fusion.parameters()], lr=RATE)
    most, epoch = min(EPOCHS, most_epochs), 0
    while epoch < most and not observer.is_interrupted:
        optimizer.zero_grad()
        sum(torch.log(cost + LEAST) for cost in model(mapping, fusion, graph)).backward()
        optimizer.step()
        epoch += 1
    fused = frozenset(group for group in graph.fusion_groups if fusion.get_fusion_probability(group) > 0.5)
    return LearntGroups(fused, epoch, epoch == most)


def kernels_of(model: FaDosaModel, fused: Collection[Nodes]) -> LayerGraph:
    """Return the layers of a model in which some of FA-DOSA's groups are fused, and all other operators are apart."""
    together = [layer for layer in model.fused.layers if layer.nodes in fused]
    taken = {name for layer in together for name in layer.nodes}
    place = {layer.nodes[0]: index for index, layer in enumerate(model.apart.layers)}
    kernels = [*together, *(layer for layer in model.apart.layers if layer.nodes[0] not in taken)]
    return linked(sorted(kernels, key=lambda layer: place[layer.nodes[0]]), model.apart.returned)


def _group(source: SourceGraph, nodes: Nodes) -> Group:
    op_types = tuple(source.nodes[name].op_type for name in nodes)
    heads = tuple(name for name in nodes if source.nodes[name].op_type in CONTRACTIONS | POOLS)
    kind: GroupKind = "pool" if op_types[0] in POOLS else HEADS.get(op_types[0], "none")
    return Group(kind, nodes, heads, op_types)
