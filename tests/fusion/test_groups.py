from __future__ import annotations

import pytest

from common.fusion.groups import Group, fuse
from common.graphs.source_graph import SourceGraph, build
from common.messages.errors import PipelineError, UpstreamError
from tests.support.models.fusion_graphs import attention, conv_block, gelu, layer_norm, random_model, residual_block
from tests.support.tables.fpga import Model, edge_row, resnet50


def patterns(model: Model) -> list[str]:
    return [group.pattern for group in fuse(model.graph())]


def test_conv_takes_batchnorm_and_activation():
    model = Model(outputs=["a_r"])
    conv_block(model, "x", "a")
    (group,) = fuse(model.graph())
    assert (group.kind, group.nodes, group.heads) == ("conv", ("/a_c", "/a_b", "/a_r"), ("/a_c",))


def test_residual_addition_joins_the_convolution_that_comes_last():
    assert patterns(residual_block()) == ["Conv+BatchNormalization", "Conv+BatchNormalization+Add+Relu"]
    first, second = fuse(residual_block().graph())
    assert first.heads == ("/a_c",)
    assert second.heads == ("/b_c",)


def test_identity_shortcut_joins_the_branch_and_keeps_the_shortcut_outside():
    model = Model(outputs=["y"])
    x = conv_block(model, "x", "stem")  # read by the branch and by the addition
    branch = conv_block(model, x, "a", activation=False)
    model.add("Add", f"{branch} {x}", "sum")
    model.add("Relu", "sum", "y")
    assert patterns(model) == ["Conv+BatchNormalization+Relu", "Conv+BatchNormalization+Add+Relu"]


def test_second_residual_addition_stays_alone():
    model = Model(outputs=["y"])
    branch = conv_block(model, "x", "a", activation=False)
    model.add("Add", f"{branch} x", "sum")
    model.add("Add", "sum x", "y")
    assert patterns(model) == ["Conv+BatchNormalization+Add", "Add"]


def test_addition_of_two_convolutions_that_others_read_joins_neither():
    model = Model(outputs=["y", "p", "q"])
    a, b = (conv_block(model, "x", name, activation=False) for name in "ab")
    model.add("MaxPool", a, "p")
    model.add("MaxPool", b, "q")
    model.add("Add", f"{a} {b}", "y")
    assert patterns(model) == ["Conv+BatchNormalization"] * 2 + ["MaxPool", "MaxPool", "Add"]


def test_fusion_stops_at_a_tensor_that_another_group_reads():
    model = Model(outputs=["y", "z"])
    b = conv_block(model, "x", "a", activation=False)
    model.add("Relu", b, "y")
    model.add("MaxPool", b, "z")
    assert patterns(model) == ["Conv+BatchNormalization", "Relu", "MaxPool"]


def test_fusion_stops_at_a_tensor_that_the_graph_returns():
    model = Model(outputs=["a_b", "y"])
    model.add("Relu", conv_block(model, "x", "a", activation=False), "y")
    assert patterns(model) == ["Conv+BatchNormalization", "Relu"]


def test_a_returned_tensor_inside_an_activation_stops_it():
    model = Model(outputs=["s", "y"])
    b = conv_block(model, "x", "a", activation=False)
    model.add("Sigmoid", b, "s")
    model.add("Mul", f"{b} s", "y")
    assert patterns(model) == ["Conv+BatchNormalization", "Sigmoid", "Mul"]


def test_silu_written_out_is_taken_whole():
    model = Model(outputs=["y"])
    b = conv_block(model, "x", "a", activation=False)
    model.add("Sigmoid", b, "s")
    model.add("Mul", f"{b} s", "y")
    assert patterns(model) == ["Conv+BatchNormalization+Sigmoid+Mul"]


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_one_group_with_its_transposes(masked):
    model = Model(outputs=["y"])
    attention(model, "x", masked=masked)
    groups = fuse(model.graph())
    (found,) = (group for group in groups if group.kind == "attention")
    assert found.heads == ("/scores", "/heads")
    mask = ["Add"] if masked else []
    assert list(found.op_types) == ["Transpose"] * 3 + ["MatMul", "Div", *mask, "Softmax", "MatMul", "Transpose"]
    assert [group.pattern for group in groups if group.kind == "gemm"] == ["MatMul"] * 4
    assert [group.pattern for group in groups if group.kind == "none"] == ["Reshape"] * 4


def test_scale_of_a_query_belongs_to_attention_and_not_to_its_projection():
    model = Model(outputs=["y"])
    model.weights(wq=5, scale=4)
    model.add("MatMul", "x wq", "q")
    model.add("Mul", "q scale", "qs")
    model.add("MatMul", "qs k", "scores")
    model.add("Softmax", "scores", "p")
    model.add("MatMul", "p v", "y")
    assert patterns(model) == ["MatMul", "Mul+MatMul+Softmax+MatMul"]


def test_what_comes_from_weights_alone_is_a_constant():
    model = Model(outputs=["y"])
    model.weights(w=5)
    model.add("Transpose", "w", "wt")
    model.add("MatMul", "x wt", "y")
    model.add("RandomNormal", "", "noise")
    graph = model.graph()
    assert {"w", "wt"} <= graph.constants
    assert "noise" not in graph.constants
    assert "x" not in graph.constants


def test_attention_operator_of_the_standard_is_one_group():
    model = Model(outputs=["y"])
    model.add("Attention", "q k v", "y")
    assert [group.kind for group in fuse(model.graph())] == ["attention"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(("Softmax", "scores", "weights z"), id="softmax with two outputs"),
        pytest.param(("Relu", "scores", "weights"), id="no softmax"),
        pytest.param(("Softmax", "scores", "unused"), id="softmax that nothing reads"),
    ],
)
def test_what_is_not_attention_is_no_attention(broken):
    model = Model(outputs=["y", "z"] if "z" in broken[2] else ["y"])
    model.add("MatMul", "q k", "scores")
    op_type, operands, results = broken
    model.add(op_type, operands, results)
    model.add("MatMul", f"{'weights' if 'weights' in results else 'v'} v", "y")
    assert "attention" not in {group.kind for group in fuse(model.graph())}


def test_softmax_whose_reader_is_no_matmul_is_no_attention():
    model = Model(outputs=["y"])
    model.add("MatMul", "q k", "scores")
    model.add("Softmax", "scores", "p")
    model.add("Dropout", "p", "d")
    model.add("ReduceSum", "d", "y")
    assert patterns(model) == ["MatMul", "Softmax+Dropout", "ReduceSum"]


def test_dequantized_operands_are_read_as_they_are_stored():
    model = Model(outputs=["y"])
    model.weights(w8=7, s=4, z=1)
    model.add("DequantizeLinear", "x8 s z", "x")
    model.add("DequantizeLinear", "w8 s z", "w")
    model.add("Conv", "x w", "c")
    model.add("Relu", "c", "r")
    model.add("QuantizeLinear", "r s z", "y")
    assert patterns(model) == ["DequantizeLinear+DequantizeLinear+Conv+Relu+QuantizeLinear"]


def test_operand_that_two_groups_read_is_dequantized_apart():
    model = Model(outputs=["a", "b"])
    model.weights(w=7, s=4)
    model.add("DequantizeLinear", "x8 s", "x")
    model.add("Conv", "x w", "a")
    model.add("Conv", "x w", "b")
    assert patterns(model) == ["DequantizeLinear", "Conv", "Conv"]


def test_long_pointwise_tail_ends_where_nothing_closes():
    model = Model(outputs=["y"])
    model.weights(w=7)
    model.add("Conv", "x w", "t0")
    readers = [model.add("Relu", "t0", f"r{index}") and f"r{index}" for index in range(13)]
    model.add("Concat", " ".join(readers), "y")
    assert patterns(model) == ["Conv", *["Relu"] * 13, "Concat"]


def test_an_edge_to_a_node_that_is_not_there_is_refused():
    with pytest.raises(PipelineError, match="tensor t names ghost, which is no node of the model; rerun <op_metrics>"):
        build({"a": "Relu"}, [edge_row("t", "a", "ghost", 3)])


@pytest.mark.slow
def test_resnet50_has_53_convolution_groups():
    model = resnet50()
    groups = fuse(model.graph())
    kinds = [group.kind for group in groups]
    # 1 stem + 16 blocks × 3 + 4 projections; one Gemm
    assert kinds.count("conv") == 1 + 16 * 3 + 4
    assert kinds.count("gemm") == 1
    assert [group.pattern for group in groups if group.kind == "pool"] == ["MaxPool", "GlobalAveragePool"]
    assert [group.pattern for group in groups if group.kind == "none"] == ["Flatten"]
    residual = [group for group in groups if "Add" in group.op_types]
    assert len(residual) == 16
    # where a block projects its shortcut, the projection comes last and takes the addition
    assert sum("downsample" in group.heads[0] for group in residual) == 4
    assert sorted(name for group in groups for name in group.nodes) == sorted(node["name"] for node in model.nodes)


def has_cycle(graph: SourceGraph, groups: tuple[Group, ...]) -> bool:
    """Whether the groups can not run one after the other in their order."""
    done: set[str] = set()
    for group in groups:
        members = set(group.nodes)
        for name in group.nodes:
            for tensor in graph.nodes[name].inputs:
                writer = graph.producer.get(tensor)
                if writer is not None and writer not in members and writer not in done:
                    return True
        done |= members
    return False


@pytest.mark.parametrize("seed", range(60))
def test_groups_partition_any_graph_keep_inner_tensors_inside_and_can_run_in_order(seed):
    graph = random_model(seed).graph()
    groups = fuse(graph)
    assert sorted(name for group in groups for name in group.nodes) == sorted(graph.nodes)
    for group in groups:
        members = set(group.nodes)
        leaving = {
            tensor
            for name in group.nodes
            for tensor in graph.nodes[name].outputs
            if tensor in graph.returned or not members.issuperset(graph.consumers.get(tensor, ()))
        }
        assert len(leaving) <= 1
    assert not has_cycle(graph, groups)


def test_the_random_graphs_do_fuse():
    found = [group for seed in range(60) for group in fuse(random_model(seed).graph())]
    assert sum(len(group.nodes) > 1 for group in found) > 50
    for kind in ("conv", "gemm"):
        assert sum("Add" in group.op_types and group.kind == kind for group in found) > 10
    assert {group.kind for group in found} >= {"conv", "gemm", "rowwise", "pool", "pointwise"}


# --- the smallest candidates of every kind ----------------------------------------------------------------------------


def fused(model: Model) -> list[tuple[str, str]]:
    return [(group.kind, group.pattern) for group in fuse(model.graph())]


def test_gemm_takes_bias_and_gelu_and_no_other_gemm():
    model = Model(outputs=["y"])
    model.weights(w1=5, b1=3, w2=7, b2=2)
    model.add("MatMul", "x w1", "h")
    model.add("Add", "h b1", "hb")
    model.add("MatMul", f"{gelu(model, 'hb', 'g')} w2", "o")
    model.add("Add", "o b2", "y")
    assert fused(model) == [("gemm", "MatMul+Add+Div+Erf+Add+Mul+Mul"), ("gemm", "MatMul+Add")]


def test_gemm_takes_the_residual_addition_and_a_normalization_follows():
    model = Model(outputs=["y"])
    model.weights(w=5, b=3, g=2)
    model.add("MatMul", "x w", "h")
    model.add("Add", "h b", "hb")
    model.add("Add", "hb x", "sum")
    model.add("LayerNormalization", "sum g", "y")
    assert fused(model) == [("gemm", "MatMul+Add+Add"), ("rowwise", "LayerNormalization")]


def test_layer_norm_written_out_is_one_group_whoever_else_reads_its_input():
    model = Model(outputs=["y"])
    model.add("Sigmoid", layer_norm(model, "x", "a"), "s")
    model.add("Add", "s x", "y")  # the residual
    norm = "ReduceMean+Sub+Pow+ReduceMean+Add+Sqrt+Div+Mul+Add"
    assert fused(model) == [("rowwise", f"{norm}+Sigmoid"), ("pointwise", "Add")]


def test_mean_over_tokens_behind_a_norm_is_no_part_of_it():
    model = Model(outputs=["y"])
    model.add("ReduceMean", layer_norm(model, "x", "a"), "y")
    assert [kind for kind, _ in fused(model)] == ["rowwise", "rowwise"]
    assert fused(model)[1][1] == "ReduceMean"


def test_rms_norm_written_out_begins_with_the_squares():
    model = Model(outputs=["y", "z"])
    model.weights(two=4, epsilon=4, gamma=28)
    model.add("Pow", "x two", "s")
    model.add("ReduceMean", "s", "m")
    model.add("Add", "m epsilon", "e")
    model.add("Sqrt", "e", "r")
    model.add("Div", "x r", "n")
    model.add("Mul", "n gamma", "y")
    model.add("Relu", "x", "z")
    assert fused(model) == [("rowwise", "Pow+ReduceMean+Add+Sqrt+Div+Mul"), ("pointwise", "Relu")]


def test_softmax_written_out():
    model = Model(outputs=["y"])
    model.add("ReduceMax", "x", "m")
    model.add("Sub", "x m", "d")
    model.add("Exp", "d", "e")
    model.add("ReduceSum", "e", "t")
    model.add("Div", "e t", "y")
    assert fused(model) == [("rowwise", "ReduceMax+Sub+Exp+ReduceSum+Div")]


def test_a_mean_that_never_meets_its_rows_again_stands_alone():
    model = Model(outputs=["y"])
    model.weights(w=5)
    model.add("ReduceMean", "x", "m")
    model.add("Sqrt", "m", "r")
    model.add("Gemm", "r w", "y")
    assert fused(model) == [("rowwise", "ReduceMean+Sqrt"), ("gemm", "Gemm")]


def test_gelu_alone_is_a_kernel_of_rows_and_silu_alone_is_point_wise():
    model = Model(outputs=["g_g", "s", "y"])
    gelu(model, "x", "g")
    model.add("Sigmoid", "x", "a")
    model.add("Mul", "x a", "s")
    model.add("Gelu", "x", "y")
    expected = [("rowwise", "Div+Erf+Add+Mul+Mul"), ("pointwise", "Sigmoid+Mul"), ("rowwise", "Gelu")]
    assert fused(model) == expected


def test_pools_movement_and_what_no_kernel_is_for():
    model = Model(outputs=["y", "i"], dtypes={"i": "int64", "n": "int64"})
    model.weights(table=35)
    model.add("MaxPool", "x", "p")
    model.add("Relu", "p", "r")
    model.add("Concat", "r z", "c")
    model.add("Reshape", "c", "f")
    model.add("LSTM", "f", "y")
    model.add("Shape", "x", "n")
    model.add("Gather", "table ids", "e")
    model.add("Cast", "e", "i")
    model.dtypes["ids"] = "int64"
    assert fused(model) == [
        ("pool", "MaxPool+Relu"),
        ("pointwise", "Concat"),
        ("none", "Reshape"),
        ("none", "LSTM"),
        ("none", "Shape"),
        ("none", "Gather"),
        ("none", "Cast"),
    ]


def test_packed_queries_keys_and_values_are_chosen_inside_attention():
    model = Model(outputs=["y"])
    model.weights(zero=8, one=8, two=8)
    model.add("Transpose", "qkv", "t")
    for name, index in (("q", "zero"), ("k", "one"), ("v", "two")):
        model.add("Gather", f"t {index}", name)
    model.add("Transpose", "k", "kt")
    model.add("MatMul", "q kt", "scores")
    model.add("Softmax", "scores", "p")
    model.add("MatMul", "p v", "y")
    assert fused(model) == [("attention", "Transpose+Gather+Gather+Gather+Transpose+MatMul+Softmax+MatMul")]


def test_a_quantized_residual_block_is_two_groups():
    """Between any two operators the values are stored as integers: Q and DQ."""
    model = Model(outputs=["y"])
    model.weights(w1=21, w2=21, s=4)
    model.add("DequantizeLinear", "x s", "xd")
    model.add("Conv", "xd w1", "a")
    model.add("Relu", "a", "ar")
    model.add("QuantizeLinear", "ar s", "aq")
    model.add("DequantizeLinear", "aq s", "ad")
    model.add("Conv", "ad w2", "b")
    model.add("QuantizeLinear", "b s", "bq")
    model.add("DequantizeLinear", "bq s", "bd")
    model.add("DequantizeLinear", "x s", "xe")
    model.add("Add", "bd xe", "sum")
    model.add("Relu", "sum", "r")
    model.add("QuantizeLinear", "r s", "y")
    read, tail = "DequantizeLinear+Conv", "DequantizeLinear+DequantizeLinear+Add+Relu+QuantizeLinear"
    assert fused(model) == [
        ("conv", f"{read}+Relu+QuantizeLinear"),
        ("conv", f"{read}+QuantizeLinear+{tail}"),
    ]


def test_a_dequantize_before_the_next_contraction_is_left_to_it():
    model = Model(outputs=["y"])
    model.weights(w1=21, w2=21, s=4)
    model.add("Conv", "x w1", "a")
    model.add("QuantizeLinear", "a s", "q")
    model.add("DequantizeLinear", "q s", "d")
    model.add("Conv", "d w2", "y")
    assert fused(model) == [("conv", "Conv+QuantizeLinear"), ("conv", "DequantizeLinear+Conv")]


@pytest.mark.slow
def test_large_graphs_are_divided_in_seconds():
    """By counting looks at tensors: each node is looked at a bounded number of times, whatever the graph's size."""
    looks = [counted_looks(blocks) for blocks in (50, 500)]
    assert looks[1] < 11 * looks[0]


def counted_looks(blocks: int) -> int:
    model, x = Model(), "x"
    for index in range(blocks):
        x = layer_norm(model, conv_block(model, x, f"c{index}"), f"n{index}")
    model.outputs = [x]
    graph = model.graph()
    looks = 0

    class Counting(dict[str, tuple[str, ...]]):
        def get(self, *key: object) -> object:  # type: ignore[override]
            nonlocal looks
            looks += 1
            return super().get(*key)  # type: ignore[arg-type]

    counting = Counting(graph.consumers)
    graph = SourceGraph(**{name: getattr(graph, name) for name in graph.__dataclass_fields__} | {"consumers": counting})
    assert len(fuse(graph)) == 2 * blocks
    return looks


def test_nodes_that_wait_for_each_other_are_refused():
    """Every walk along the tensors would go round for ever."""
    tensors = [("x", "", "a"), ("t", "a", "b"), ("u", "b", "c"), ("v", "c", "a"), ("y", "c", "")]
    with pytest.raises(UpstreamError, match=r"^op_edges.csv: tensor v goes from c to a, which does not come later"):
        build(dict.fromkeys("abc", "Relu"), [edge_row(*ends, 3) for ends in tensors])
