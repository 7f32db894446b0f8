from __future__ import annotations

import pytest

from common.messages.errors import UpstreamError
from common.workload.map_layers import FeatureMap, Window, layer_graph
from models.__main__ import BUILDERS
from tests.support.tables.source import SIZES, source_rows

LIGHT = [name for name in BUILDERS if name.startswith("tiny")] + ["resnet50", "squeezenet"]


def layers_of(name, **sizes):
    rows, graph = source_rows(BUILDERS[name](), **(sizes or SIZES))
    return rows, graph, layer_graph(rows, graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_nothing_of_a_model_is_dropped(name):
    rows, graph, layers = layers_of(name)
    nodes = [node for layer in layers.layers for node in layer.nodes]
    assert len(nodes) == len(set(nodes))
    assert {name for name in graph.nodes if not graph.is_free(name)} <= set(nodes)
    counted = [row["macs"] for row in rows if row["macs"] is not None]
    bounded = [row["upper_bound_macs"] for row in rows if row["macs"] is None and row["upper_bound_macs"]]
    assert sum(layer.macs for layer in layers.layers) == sum(counted) + sum(bounded)
    for layer in layers.layers:
        assert layer.outside or layer.nests or layer.kind == "pool"
        passes = layer.passes * sum(nest.macs for nest in layer.nests)
        assert not layer.nests or passes == layer.macs


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_the_tensors_of_a_form_have_the_sizes_of_the_tables(name):
    _, graph, layers = layers_of(name)
    for layer in layers.layers:
        if layer.form is not None:
            (written,) = layer.writes
            assert layer.form.result.elements * layer.form.result.bits == 8 * graph.sizes[written]
            assert layer.form.below.elements * layer.form.below.bits == 8 * graph.sizes[layer.form.source]
            assert {layer.form.source, *layer.form.added} == set(layer.reads)


def test_resnet18_has_its_residual_edges():
    rows, graph = source_rows(BUILDERS["resnet18"](has_weights=False), N=1)
    layers = layer_graph(rows, graph)
    assert [layer.kind for layer in layers.layers].count("conv") == 20
    added = [(reader, name) for reader, layer in enumerate(layers.layers) if layer.form for name in layer.form.added]
    skipping = [(layers.producer[name], reader) for reader, name in added if reader - layers.producer[name] > 1]
    # where no convolution projects the shortcut: both blocks of the first stage, the second block of the others
    assert skipping == [(1, 3), (3, 5), (8, 10), (13, 15), (18, 20)]
    (pooled,) = layers.layers[1].writes
    assert layers.consumers[pooled] == (2, 3)
    stem = layers.layers[0].form
    assert stem is not None
    assert stem.below == FeatureMap(1, 3, 224, 224)
    assert stem.window == Window((7, 7), (2, 2), (1, 1), (3, 3))
    pool = layers.layers[1].form
    assert pool is not None
    assert (pool.below, pool.result) == (FeatureMap(1, 64, 112, 112), FeatureMap(1, 64, 56, 56))
    assert pool.window == Window((3, 3), (2, 2), (1, 1), (1, 1))
    assert not [layer.outside for layer in layers.layers if layer.outside]


def test_a_transformer_names_what_it_costs_as_traffic():
    _, _, layers = layers_of("tiny-bert")
    kinds = {layer.kind for layer in layers.layers if layer.nests}
    assert kinds == {"gemm", "attention"}
    assert all("traffic" in layer.outside for layer in layers.layers if not layer.nests)
    attention = next(layer for layer in layers.layers if layer.kind == "attention")
    assert len(attention.nests) == 2
    assert attention.form is None
    assert attention.spilled_bytes > 0  # scores and weights of the softmax go through memory


def test_a_recurrence_counts_its_work_without_a_nest():
    _, _, layers = layers_of("tiny-lstm")
    recurrences = [layer for layer in layers.layers if layer.op_types == ("LSTM",)]
    assert recurrences
    for layer in recurrences:
        assert layer.nests == ()
        assert layer.macs > 0
        assert "no loop nest" in layer.outside


def test_unbound_dimensions_are_refused_in_one_line():
    rows, graph = source_rows(BUILDERS["tiny-mlp"]())
    with pytest.raises(UpstreamError, match="unbound") as error:
        layer_graph(rows, graph)
    assert "<op_metrics>" in str(error.value)
    assert "\n" not in str(error.value)
