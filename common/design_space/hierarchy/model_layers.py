"""The layers of a model on an accelerator with several memories: loop nests, and words that move outside of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.design_space.single_buffer.bound import other_bytes
from common.graphs.source_graph import SourceGraph
from common.table_rows import OpMetricsRow
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph, MapLayer, layer_graph
from common.workload.nest_rows import in_elements, nests_by_node, runs_of


@dataclass(frozen=True, slots=True)
class ModelLayer:
    """A fused group of the model. Words are those of one inference."""

    layer: MapLayer  # the group; its bytes are elements
    # Its loop nests by name: the node's, and the number of the nest
    nests: Mapping[str, LoopNest] = field(default_factory=dict)
    source: str = ""  # the tensor that its only nest reads as input; empty where its tensors are no maps of a nest
    reads: Mapping[str, int] = field(default_factory=dict)  # words of each tensor that is read outside of the nests
    # Words of each tensor that is written, by the nest of ``source`` or outside of the nests
    writes: Mapping[str, int] = field(default_factory=dict)
    # Words outside of the nests that cross DRAM in any case: biases and scales, and what the operators of the group
    # pass on through memory
    constants: float = 0.0
    macs: int = 0  # multiply-accumulates outside of the nests
    score_words: int = 0  # words between the two products of an attention that runs once; 0 for any other layer
    passed_on: float = 0.0  # those of ``constants`` that the operators between the two products pass on

    @property
    def has_epilogue(self) -> bool:
        """Whether the words outside of the nest move while it runs: the layer is one nest, which runs once."""
        return len(self.nests) == 1 and self.layer.passes == 1 and not self.macs

    @property
    def written_beside(self) -> Mapping[str, int]:
        """Words of each tensor that no nest writes."""
        return {} if self.source else self.writes


def model_layers(metrics: Sequence[OpMetricsRow], graph: SourceGraph) -> tuple[LayerGraph, tuple[ModelLayer, ...]]:
    """Return the graph of a model's layers in elements, and each of them as an accelerator runs it.

    Unbound dimensions are an UpstreamError.
    """
    rows = {row["source_node"]: row for row in metrics}
    layers = layer_graph(metrics, graph, counts_elements=True)
    nests = {
        node: {f"{node}.{index}": nest for index, nest in enumerate(several)}
        for node, several in nests_by_node(metrics, in_elements(graph)).items()
        if _cover_all_work(rows[node], several)
    }
    return layers, tuple(
        _model_layer(layer, {name: nest for node in layer.nodes for name, nest in nests.get(node, {}).items()})
        for layer in layers.layers
    )


def _cover_all_work(row: OpMetricsRow, nests: Sequence[LoopNest]) -> bool:
    return runs_of(row) * sum(nest.macs for nest in nests) == (row["macs"] or row["upper_bound_macs"] or 0)


def _model_layer(layer: MapLayer, nests: Mapping[str, LoopNest]) -> ModelLayer:
    if not nests:
        constants = float(layer.weight_bytes + layer.spilled_bytes)
        return ModelLayer(layer, reads=layer.reads, writes=layer.writes, constants=constants, macs=layer.macs)
    if layer.form is None or len(nests) > 1:
        macs = layer.macs - layer.passes * sum(nest.macs for nest in nests.values())
        beside = other_bytes(replace(layer, nests=tuple(nests.values()), form=None))
        scores = _score_words(layer, [*nests.values()])
        passed_on = min(beside, max(0, layer.spilled_bytes - 2 * scores)) if scores else 0.0
        return ModelLayer(layer, nests, constants=beside, macs=macs, score_words=scores, passed_on=passed_on)
    added = {tensor: layer.reads[tensor] for tensor in layer.form.added}
    constants = other_bytes(layer) - sum(added.values())
    return ModelLayer(layer, nests, layer.form.source, added, layer.writes, constants)


def _score_words(layer: MapLayer, nests: Sequence[LoopNest]) -> int:
    """Return the words that the first product of an attention writes and the second one reads; 0 for other layers."""
    if layer.kind != "attention" or layer.passes != 1 or len(nests) != 2:
        return 0
    written, read = nests[0].elements["output"], nests[1].elements["input"]
    return written if written == read else 0
