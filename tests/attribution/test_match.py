"""Each attribution rule on a graph drawn by hand: ``op inputs -> outputs``, the node called after its operator."""

from typing import get_args

import pytest

from common.artifacts.columns import COLUMNS
from common.attribution.match import Rule, match_nodes
from common.attribution.ownership import attribute, layout_owners, owned_sources
from common.graphs.graph import Graph, Node
from common.graphs.source_graph import SourceGraph

CONSTANTS = {"w", "scale", "w2"}


def graph(*lines, outputs=("out",)):
    """``conv x w -> c`` is a node ``conv`` that reads x and w and writes c; ``-`` is an absent operand.

    ``name:Type`` gives a node another operator than its name.
    """
    nodes = []
    for line in lines:
        reads, writes = line.split(" -> ") if " -> " in line else (line.removesuffix(" ->"), "")
        name, *inputs = reads.split()
        name, _, op_type = name.partition(":")
        nodes.append(
            Node(name, op_type or name, "", tuple("" if i == "-" else i for i in inputs), tuple(writes.split()))
        )
    return Graph(tuple(nodes), {}, outputs)


def as_source(drawn, constants=CONSTANTS):
    """The source graph of the same nodes."""
    return SourceGraph(
        nodes=drawn.by_name,
        producer=drawn.producer,
        consumers=drawn.consumers,
        returned=frozenset(drawn.outputs),
        constants=set(constants),
    )


def matched(source, executed, contractions=("conv", "conv2"), constants=CONSTANTS):
    """(executed node, rule) by source node."""
    matches = match_nodes(as_source(source, constants), executed, set(contractions))
    assert [match.source_node for match in matches] == [node.name for node in source.nodes]
    return {match.source_node: (match.executed_node, match.rule) for match in matches}


def test_output_tensor():
    found = matched(graph("relu x -> out"), graph("renamed x -> out"))
    assert found == {"relu": ("renamed", "output_tensor")}


def test_any_of_several_outputs_claims_the_node():
    found = matched(graph("split x -> a b"), graph("s x -> other b"))
    assert found == {"split": ("s", "output_tensor")}


@pytest.mark.parametrize("name", ["c_nchwc", "c_bn_nchwc", "c_mul_nchwc"])
def test_nchwc_name(name):
    found = matched(graph("conv x w -> c"), graph(f"{name} blocked w -> {name}_out"))
    assert found == {"conv": (name, "nchwc_name")}


def test_a_tensor_that_itself_ends_in_the_variant_is_taken_whole_first():
    source = graph("conv x w -> c_bn", "conv2 x w2 -> c", outputs=("c_bn", "c"))
    found = matched(source, graph("c_bn_nchwc b w -> r", "c_nchwc b w2 -> s"))
    assert found == {"conv": ("c_bn_nchwc", "nchwc_name"), "conv2": ("c_nchwc", "nchwc_name")}


def test_the_change_of_layout_behind_a_blocked_node_does_not_take_its_tensor():
    found = matched(graph("pool x -> p", "relu p -> out"), graph("back b -> p", "p_nchwc x -> b", "relu p -> out"))
    assert found["pool"] == ("p_nchwc", "nchwc_name")


def test_node_name():
    assert matched(graph("relu x -> a"), graph("relu x -> b")) == {"relu": ("relu", "node_name")}


def test_the_tensor_comes_before_the_name():
    """Two nodes swapped names: what they write decides."""
    found = matched(graph("one x -> a", "two a -> out"), graph("two x -> a", "one a -> out"))
    assert found == {"one": ("two", "output_tensor"), "two": ("one", "output_tensor")}


def test_each_source_node_is_claimed_once():
    """The first that asks gets it; a node of the same name afterwards does not."""
    found = matched(graph("relu x -> out"), graph("first x -> out", "relu x -> copy"))
    assert found == {"relu": ("first", "output_tensor")}


def test_epilogue_takes_the_sum_that_the_executed_node_has_the_operands_of():
    source = graph("conv x w -> c", "norm c scale -> n", "add n side -> s", "relu s -> r", "pool r -> out")
    executed = graph("c_nchwc x w side -> fused", "pooling fused -> out")
    assert matched(source, executed) == {
        "conv": ("c_nchwc", "nchwc_name"),
        "norm": ("c_nchwc", "epilogue"),
        "add": ("c_nchwc", "epilogue"),
        "relu": ("c_nchwc", "epilogue"),
        "pool": ("pooling", "output_tensor"),
    }


def test_epilogue_stops_where_an_operand_is_missing():
    source = graph("conv x w -> c", "add c side -> s", "pool s -> out")
    executed = graph("c_nchwc x w -> fused", "sum fused side -> sum_out", "pool sum_out -> out")
    found = matched(source, executed)
    assert found["conv"] == ("c_nchwc", "nchwc_name")
    assert found["add"] == ("pool", "fill_upstream")


def test_epilogue_reaches_an_operand_by_its_blocked_name():
    """The other summand comes out of an executed node that stands for the tensor under another name."""
    source = graph("conv x w -> c", "conv2 x w2 -> d", "add c d -> s", "relu s -> r", "pool r -> out")
    executed = graph("d_nchwc x w2 -> d_b", "c_nchwc x w d_b -> fused", "pool fused -> out")
    found = matched(source, executed)
    assert found["add"] == found["relu"] == ("c_nchwc", "epilogue")
    assert found["conv2"] == ("d_nchwc", "nchwc_name")


def test_epilogue_does_not_run_past_a_named_tensor():
    """The node writes ``c``, a tensor of the source: its work ends there, although it could grow further."""
    source = graph("conv x w -> c", "relu c -> r", "pool r -> out")
    executed = graph("conv x w -> c", "rest c -> rest_out", "pool rest_out -> out")
    found = matched(source, executed)
    assert found["conv"] == ("conv", "output_tensor")
    assert found["relu"] == ("pool", "fill_upstream")


def test_epilogue_takes_no_contraction():
    source = graph("conv x w -> c", "conv2 c w2 -> d", "relu d -> r", outputs=("r",))
    assert matched(source, graph("c_nchwc x w -> fused"))["conv2"] == ("c_nchwc", "fill_downstream")
    executed = graph("c_nchwc x w -> b", "d_nchwc b w2 -> e")
    found = matched(source, executed)
    assert found["conv2"] == ("d_nchwc", "nchwc_name")
    assert found["relu"] == ("d_nchwc", "epilogue")


def test_fill_upstream_from_the_end_of_a_chain():
    """A GELU written out with six nodes becomes one that writes the last tensor."""
    source = graph("div x scale -> a", "erf a -> b", "inc b scale -> c", "mul x c -> d", "half d scale -> out")
    found = matched(source, graph("gelu x -> out"))
    assert found.pop("half") == ("gelu", "output_tensor")
    assert set(found.values()) == {("gelu", "fill_upstream")}


def test_fill_upstream_needs_all_readers_in_one_node():
    """What two executed nodes read belongs to neither, but to the one before it."""
    source = graph("relu x -> r", "neg r -> n", "one n -> a", "two n -> out")
    found = matched(source, graph("relu x -> r", "one r -> a", "two r -> out"))
    assert found["neg"] == ("relu", "fill_downstream")


def test_fill_downstream_of_a_dropped_tail():
    """Nothing executed writes ``out``: a copy that the runtime left out goes with what made it."""
    found = matched(graph("relu x -> r", "identity r -> out"), graph("relu x -> r"))
    assert found["identity"] == ("relu", "fill_downstream")


def test_constants_are_removed():
    source = graph("shape -> s", "cast w -> k", "sum k scale -> m", "relu x -> r", "add r m -> out")
    found = matched(source, graph("relu x -> r", "add r m -> out"), constants={*CONSTANTS, "s", "k", "m"})
    assert {name for name, match in found.items() if match == ("", "removed")} == {"shape", "cast", "sum"}


def test_a_constant_that_runs_is_not_removed():
    found = matched(graph("cast w -> k", "relu x -> out"), graph("cast w -> k", "relu x -> out"))
    assert found["cast"] == ("cast", "output_tensor")


def test_what_is_beside_nothing_executed_is_removed():
    found = matched(graph("dead x -> d", "relu x -> out"), graph("relu x -> out"))
    assert found["dead"] == ("", "removed")


def test_absent_operands_match_nothing():
    source = graph("clip x - -> a", "relu a - -> out")
    assert matched(source, graph("fused x - -> out"))["clip"] == ("fused", "fill_upstream")


def test_owned_sources_keeps_source_order_and_leaves_out_the_removed():
    source = graph("cast w -> k", "conv x w -> c", "relu c -> out")
    attribution = attribute(as_source(source, {*CONSTANTS, "k"}), graph("fused x w -> out"), {"conv"})
    assert attribution.sources == {"fused": ("conv", "relu")}
    assert attribution.removed == ("cast",)


def test_an_inserted_node_serves_the_layout_of_an_attributed_one():
    source, executed = graph("conv x w -> out"), graph("reorder x -> b", "conv b w -> out")
    attribution = attribute(as_source(source), executed, {"conv"})
    assert attribution.layout_of == {"reorder": "conv"}
    assert [match.executed_node for match in attribution.matches] == ["conv"]


def test_layout_owner_is_the_nearest_downstream():
    executed = graph("before x -> a", "reorder a -> b", "again b -> c", "near c -> d", "far d -> out")
    assert layout_owners(executed, {"before", "near", "far"}) == {"reorder": "near", "again": "near"}


def test_layout_owner_of_the_last_node_is_the_nearest_upstream():
    executed = graph("far x -> a", "near a -> b", "inner b -> c", "reorder c -> out")
    assert layout_owners(executed, {"far", "near"}) == {"inner": "near", "reorder": "near"}


def test_layout_owner_of_a_node_without_neighbours_is_unknown():
    assert layout_owners(graph("random -> z", "relu x -> out"), {"relu"}) == {"random": ""}


DQ = "DequantizeLinear"


def test_a_dequantize_that_several_nodes_read_goes_with_the_first():
    source = graph("quantize x scale -> q", f"dq:{DQ} q scale -> d", "one d -> a", "two a d -> out")
    found = matched(source, graph("quantize x scale -> q", "one q -> a", "two a q -> out"))
    assert found["dq"] == ("one", "fill_upstream")


def test_an_epilogue_ends_before_a_dequantize():
    source = graph("conv x w -> c", "quantize c scale -> q", f"dq:{DQ} q scale -> d", "pool d -> out")
    found = matched(source, graph("conv_token_7 x w -> blocked", "pool blocked -> out"))
    assert found["quantize"] == ("conv_token_7", "epilogue")
    assert found["dq"] == ("pool", "fill_upstream")


def test_a_transpose_that_gives_back_a_layout_owns_nothing_that_another_computes():
    source = graph("conv x w -> c", "quantize c scale -> q", "pool q -> out")
    executed = graph("in:Transpose x -> t", "conv_token_7 t w -> b", "back:Transpose b -> q", "pool q -> out")
    found = matched(source, executed)
    assert found["conv"] == ("conv_token_7", "nhwc_name")
    assert found["quantize"] == ("conv_token_7", "epilogue")
    assert "back" not in owned_sources(match_nodes(as_source(source), executed, {"conv"}))


def test_a_transpose_owns_what_nothing_else_computes():
    found = matched(graph("swap x -> out"), graph("made:Transpose x -> out"))
    assert found["swap"] == ("made", "output_tensor")


def test_fusion_name_and_what_follows_in_the_fused_node():
    """MatMul and Add of fixed shape: the Gemm between two Reshapes has the weights of both, the Reshapes nothing."""
    source = graph("relu x -> r", "conv:MatMul r w -> c", "add c scale -> a", "tanh a -> out")
    executed = graph(
        "relu x -> r",
        "before:Reshape r -> flat",
        "conv/MatMulAddFusion:Gemm flat w scale -> g",
        "behind:Reshape g -> a",
        "tanh a -> out",
    )
    found = matched(source, executed)
    assert found["conv"] == ("conv/MatMulAddFusion", "fusion_name")
    assert found["add"] == ("conv/MatMulAddFusion", "epilogue")
    owned = owned_sources(match_nodes(as_source(source), executed, {"conv"}))
    assert owned == {"relu": ("relu",), "conv/MatMulAddFusion": ("conv", "add"), "tanh": ("tanh",)}


@pytest.mark.parametrize(
    "name", ["one/GeluFusion", "one/GeluFusion/", "one/GeluFusion_token_5", "one/MatMulAddFusion/_token_13"]
)
def test_forms_of_a_fusion_name(name):
    assert matched(graph("one x -> a"), graph(f"{name} x -> b"))["one"] == (name, "fusion_name")


def test_a_node_that_is_called_like_a_fusion_in_the_source_is_itself():
    source = graph("one x -> a", "one/GeluFusion a -> out")
    found = matched(source, graph("one x -> b", "one/GeluFusion b -> c"))
    assert found == {"one": ("one", "node_name"), "one/GeluFusion": ("one/GeluFusion", "node_name")}


def test_a_fusion_with_more_outputs_stands_for_several_nodes():
    """A Split in place of three Gathers is called after the last of them; each has a Squeeze of its own."""
    source = graph("one x -> a", "two x -> b", "three x -> c", outputs=("a", "b", "c"))
    executed = graph("three/SplitFusion x -> s t u", "p s -> a", "q t -> b", "r u -> c")
    assert [name for name, _ in matched(source, executed).values()] == ["p", "q", "r"]


def test_a_reshape_owns_what_nothing_else_computes():
    found = matched(graph("flatten x -> out"), graph("made:Reshape x -> out"))
    assert found["flatten"] == ("made", "output_tensor")


def test_a_reshape_in_place_of_a_reshape_is_it():
    source = graph("conv x w -> c", "flat:Reshape c w2 -> out")
    found = matched(source, graph("c_nchwc x w -> b", "back b -> c", "merged:Reshape c w2 -> out"))
    assert found["flat"] == ("merged", "output_tensor")


def test_what_only_tells_a_shape_is_removed():
    source = graph("conv x w -> c", f"dq:{DQ} c scale -> d", "shape d -> s", "reshape c s -> out")
    found = matched(source, graph("conv x w -> c", "reshape c s -> out"), constants={*CONSTANTS, "s"})
    assert found["shape"] == found["dq"] == ("", "removed")


def test_layout_owners_prefer_downstream_even_where_upstream_is_nearer():
    executed = graph("first x -> a", "one a -> b", "two b -> c", "last c -> out")
    assert layout_owners(executed, {"first", "last"}) == {"one": "last", "two": "last"}


CAST = "InsertedPrecisionFreeCast_"


def test_the_casts_around_a_node_that_computes_in_float32_take_no_source_node():
    """The cast behind the convolution writes its tensor, and the second product reads a name that was taken."""
    source = graph("conv x w -> c", "relu c -> r", "conv2 c w2 -> out", outputs=("out", "r"))
    executed = graph(
        f"{CAST}x:Cast x -> {CAST}x",
        f"conv {CAST}x w -> {CAST}c",
        f"{CAST}c:Cast {CAST}c -> c",
        "relu c -> r",
        f"{CAST}c_token_3:Cast c -> {CAST}c_token_3",
        f"product {CAST}c_token_3 w2 -> {CAST}out",
        f"{CAST}out:Cast {CAST}out -> out",
    )
    assert matched(source, executed) == {
        "conv": ("conv", "output_tensor"),
        "relu": ("relu", "output_tensor"),
        "conv2": ("product", "output_tensor"),
    }
    owners = attribute(as_source(source), executed, {"conv", "conv2"}).layout_of
    assert owners == {f"{CAST}x": "conv", f"{CAST}c": "conv", f"{CAST}c_token_3": "product", f"{CAST}out": "product"}


def test_a_blocked_node_between_casts_is_named_after_the_cast_tensor():
    source = graph("conv x w -> c", "relu c -> r", "flat r -> out")
    executed = graph(
        f"{CAST}r_nchwc:Conv {CAST}x w -> b", f"back b -> {CAST}r", f"{CAST}r:Cast {CAST}r -> r", "flat r -> out"
    )
    assert matched(source, executed) == {
        "conv": (f"{CAST}r_nchwc", "fill_upstream"),
        "relu": (f"{CAST}r_nchwc", "nchwc_name"),
        "flat": ("flat", "output_tensor"),
    }
    owners = attribute(as_source(source), executed, {"conv"}).layout_of
    assert owners == {"back": "flat", f"{CAST}r": f"{CAST}r_nchwc"}


def test_a_cast_of_an_optimised_model_is_a_node_of_the_model():
    source = graph(f"{CAST}x:Cast x -> {CAST}x", f"relu {CAST}x -> out")
    assert matched(source, source) == {name: (name, "output_tensor") for name in (f"{CAST}x", "relu")}


def test_the_tables_know_every_rule():
    assert COLUMNS["rule"].allowed == get_args(Rule)
