"""Which layer computes which node, on graphs made by hand."""

from pathlib import Path

import pytest

from common.foreign_traces.layer_graph import layer_graph
from common.foreign_traces.layers import Layer, LayerProfile
from common.foreign_traces.matching import Matched, time_share
from common.foreign_traces.owners import owners
from common.messages.errors import PipelineError
from tests.support.profiles.foreign_graphs import graph_of

PROFILE = Path("profile")


RESIDUAL = graph_of(
    ("Conv", "conv1", ("x", "w")),
    ("BatchNormalization", "bn", ("conv1:0",)),
    ("Relu", "relu", ("bn:0",)),
    ("Conv", "conv2", ("relu:0", "w")),
    ("Add", "add", ("conv2:0", "relu:0")),
    ("Relu", "last", ("add:0",)),
    outputs=["last:0"],
)


def split(graph, *layers, merged=()):
    profile = LayerProfile("test", "test", layers, None, merged=frozenset(merged))
    owned = owners(PROFILE, graph, profile)
    made = layer_graph(PROFILE, graph, layers, owned, "test")
    return owned.owner, owned.notes, {node.name: (node.inputs, node.outputs) for node in made.nodes}, made


def test_what_follows_a_contraction_goes_with_it():
    owner, notes, edges, _ = split(RESIDUAL, Layer("A", "Conv", ("conv1",)), Layer("B", "Conv", ("conv2",)))
    assert owner == {"conv1": "A", "bn": "A", "relu": "A", "conv2": "B", "add": "B", "last": "B"}
    assert edges == {"A": (("x",), ("relu:0",)), "B": (("relu:0",), ("last:0",))}
    assert notes == []


def test_a_layer_named_after_the_last_node_has_the_contraction_before_it():
    owner, _, _, _ = split(RESIDUAL, Layer("A", "Conv", ("bn:0",)), Layer("B", "Conv", ("last:0",)))
    assert owner == {"conv1": "A", "bn": "A", "relu": "A", "conv2": "B", "add": "B", "last": "B"}


def test_a_layer_with_an_end_has_all_before_it_that_no_other_names():
    layers = (Layer("A", "Conv", ends_with=("relu",)), Layer("B", "Any", ends_with=("last",)))
    owner, notes, _, _ = split(RESIDUAL, *layers)
    assert owner == {"conv1": "A", "bn": "A", "relu": "A", "conv2": "B", "add": "B", "last": "B"}
    assert "2 contractions match only by being before the last node of a subgraph (conv1, conv2)" in notes[0]


def test_one_contraction_matches():
    layers = (Layer("A", "Conv", ("conv1",)), Layer("B", "Any", ends_with=("last",)))
    assert split(RESIDUAL, *layers)[1][0].startswith("1 contraction matches only by being before")


def test_a_merged_node_goes_with_its_reader():
    layers = (Layer("A", "Conv", ("relu",)), Layer("B", "Add", ("last",)))
    owner, _, _, _ = split(RESIDUAL, *layers, merged=("conv1", "bn", "conv2", "add"))
    assert owner == {"conv1": "A", "bn": "A", "relu": "A", "conv2": "B", "add": "B", "last": "B"}


def test_inserted_layers_stand_before_what_they_serve_and_name_no_node():
    layers = (
        Layer("in", "Reformat"),
        Layer("A", "Conv", ("conv1",)),
        Layer("swap", "Reformat", serves=("B",)),
        Layer("B", "Conv", ("conv2",)),
        Layer("out", "Reformat"),
    )
    owner, _notes, edges, made = split(RESIDUAL, *layers)
    assert set(owner.values()) == {"A", "B"}
    assert edges["A"][0] == ("x (in)",)
    assert edges["B"][0] == ("relu:0 (swap) (out)",)
    assert [node.name for node in made.nodes].index("swap") < [node.name for node in made.nodes].index("B")
    assert {name for node in made.nodes for name in (*node.inputs, *node.outputs)} <= made.tensors.keys()


def test_time_in_layers_without_a_node_is_noted():
    layers = (Layer("A", "Conv", ("conv1",), mean_us=3.0), Layer("?", "Conv", mean_us=1.0), Layer("B", "", ("last",)))
    _, notes, _, _ = split(RESIDUAL, *layers)
    assert [note for note in notes if "25.0% of the time is in layers that name no node of the model" in note]


def test_a_contraction_that_shares_its_layer_is_noted():
    _, notes, _, _ = split(RESIDUAL, Layer("A", "Conv", ("conv2",)))
    assert "no layer names 1 contractions, whose work counts for a layer that has others: conv1" in notes


def test_a_profile_of_another_model():
    with pytest.raises(PipelineError, match=r"names no node of the model \(its layers: A\)"):
        split(RESIDUAL, Layer("A", "Conv", ("other",)))


def test_layers_that_wait_for_each_other():
    with pytest.raises(PipelineError, match="has layers that wait for each other"):
        split(
            RESIDUAL,
            Layer("A", "Any", ("conv1", "conv2")),
            Layer("B", "Any", ("relu", "bn")),
            Layer("C", "", ("last",)),
        )


def test_another_shape():
    profile = LayerProfile("test", "test", (Layer("A", "", ("last",)),), None, shapes={"relu:0": (2, 5)})
    with pytest.raises(PipelineError, match=r"was recorded with relu:0 of shape \[2, 5\], the model has \[2, 3\]"):
        owners(PROFILE, RESIDUAL, profile)


def matched(graph, *layers, **more):
    return owners(PROFILE, graph, LayerProfile("test", "test", layers, None, **more)).matched


def test_the_matched_shares_of_time_and_of_contractions():
    layers = (
        Layer("A", "Conv", ("conv1",), mean_us=5.0),
        Layer("copy", "Reformat", serves=("A",), mean_us=2.0),
        Layer("of the input", "Reformat", serves=("x",), mean_us=1.0),
        Layer("of another", "Reformat", serves=("Z",), mean_us=3.0),
        Layer("bn", "batch_norm", is_folded=True, mean_us=2.0),
        Layer("Z", "Conv", ("other",), mean_us=7.0),
    )
    assert matched(RESIDUAL, *layers).time_share == pytest.approx((5 + 2 + 1 + 2) / 20)
    assert matched(RESIDUAL, *layers).contraction_share == 0.5
    ends = Layer("A", "Conv", ("relu",), mean_us=1.0), Layer("B", "Conv", ("last",), mean_us=1.0)
    assert matched(RESIDUAL, *ends) == Matched(1.0, 1.0)


def test_a_node_that_only_fills_a_gap_is_not_matched():
    layers = (Layer("relu", "relu", ("relu",), mean_us=1.0), Layer("slow", "conv", fills=("conv2", "add"), mean_us=9.0))
    owned = owners(PROFILE, RESIDUAL, LayerProfile("test", "test", layers, None))
    assert (owned.owner["conv2"], owned.owner["add"]) == ("slow", "slow")
    assert owned.matched == Matched(0.1, 0.5)


@pytest.mark.parametrize(
    ("shares", "stated"),
    [
        ((0.8, 0.8), ""),
        ((1.0, None), ""),
        ((0.04, 0.13), "4.0% of its time and 13.0% of the model's contractions"),
        ((1.0, 0.79), "79.0% of the model's contractions"),
        ((1.0, 1.0, 0.7), "70.0% of all operations"),
    ],
)
def test_a_profile_that_matches_little_is_refused(shares, stated):
    if not stated:
        Matched(*shares).require(PROFILE)
        return
    with pytest.raises(PipelineError, match=stated) as caught:
        Matched(*shares).require(PROFILE)
    assert str(caught.value).endswith("give the model that was recorded, or <accept_partial>")


def test_one_run_that_waited_for_a_processor_changes_no_share():
    layers = (Layer("A", "Conv", run_us=(7.0,) * 5), Layer("B", "Relu", run_us=(1.0, 1.0, 1000.0, 1.0, 1.0)))
    assert time_share(layers, {"A"}, {}) == pytest.approx(7 / 8)
    assert time_share(layers, {"B"}, {}) == pytest.approx(1 / 8)


def test_a_change_of_layout_says_nothing_about_the_model():
    layers = (Layer("A", "Conv", mean_us=7.0), Layer("B", "ReorderOutput", mean_us=5.0), Layer("C", "GRU", mean_us=3.0))
    assert time_share(layers, {"A"}, {}) == pytest.approx(7 / 10)
    assert time_share(layers, {"A"}, {"B": "A"}) == pytest.approx(12 / 15)
    assert time_share(layers, (), {}) == 0
