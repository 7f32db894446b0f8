"""Fused groups and chains as tasks for kernels, what passes between them, and the host's order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from common.fusion.border import crossings, traffic
from common.fusion.chains import rows_held, rows_read
from common.fusion.groups import Group, fuse
from common.graphs.source_graph import SourceGraph
from common.workload.flows import TensorFlow, card_bytes, element_bits, executed_order, tensor_flows
from common.workload.host_cost import ExecutedCost, HostCost, SourceWork, divide_over_groups
from common.workload.layer_rows import layers_by_node
from common.workload.layers import Convolution, Matmul, Pointwise, Pooling, Rowwise
from common.workload.task_candidates import TaskCandidate, group_layers, stage_of, task_candidates
from common.workload.tasks import Task
from models.__main__ import BUILDERS
from tests.support.models.fusion_graphs import gelu, layer_norm
from tests.support.models.onnx_models import model, weight
from tests.support.models.quantized_models import quantize
from tests.support.tables.fpga import Model
from tests.support.tables.source import source_rows


def candidates_of(
    proto: Any, precision: str = "fp32", **dimensions: int
) -> tuple[SourceGraph, tuple[Group, ...], list[TaskCandidate]]:
    rows, graph = source_rows(proto, **dimensions)
    groups = fuse(graph)
    in_bodies = {row["source_node"] for row in rows if row["body"]}
    return graph, groups, task_candidates(graph, groups, layers_by_node(rows, graph), precision, in_bodies)


def two_convolutions() -> Any:
    """3 channels of 13 × 17 to 5 of 13 × 17 to 7 of 6 × 8, without and with a stride."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "second", strides=[2, 2]),
    ]
    weights = {"w1": weight(5, 3, 3, 3), "w2": weight(7, 5, 3, 3)}
    return model(nodes, {"x": (2, 3, 13, 17)}, {"y": (2, 7, 6, 8)}, weights)


def test_a_group_is_a_task_with_its_border_at_the_precision_of_the_kernel():
    for precision, bits in (("fp32", 32), ("bf16", 16), ("int8", 8), ("int4", 4)):
        _, _, (first, second, chain) = candidates_of(two_convolutions(), precision)
        assert first.task is not None and second.task is not None and chain.task is not None
        weights = [5 * 3 * 3 * 3, 7 * 5 * 3 * 3]
        maps = [2 * 3 * 13 * 17, 2 * 5 * 13 * 17, 2 * 7 * 6 * 8]
        assert first.task.layers == (Convolution(2, 3, 13, 17, 5, 13, 17, 3, 3), Pointwise("Relu", maps[1], 1, 17))
        for task, crossing in (
            (first.task, (weights[0], maps[0], maps[1])),
            (second.task, (weights[1], maps[1], maps[2])),
        ):
            found = (task.weight_bytes, task.read_bytes, task.written_bytes)
            assert found == tuple(-(-elements * bits // 8) for elements in crossing)
        # What passes between them does not cross the border of the chain.
        assert chain.task.read_bytes == first.task.read_bytes
        assert chain.task.written_bytes == second.task.written_bytes
        assert chain.task.weight_bytes == first.task.weight_bytes + second.task.weight_bytes
        assert chain.task.macs == 2 * (5 * 13 * 17 * 3 * 9 + 7 * 6 * 8 * 5 * 9)
        assert (first.name, second.name, chain.name, chain.kind) == ("I0", "I1", "I0-I1", "chain")
        assert chain.covers == (0, 1)


def test_what_a_chain_holds():
    _, _, (_, _, chain) = candidates_of(two_convolutions(), "int8")
    assert chain.task is not None and chain.holding is not None
    # 64 positions are 8 rows of 8, and there are 6; they read 2·5 + 3 = 13 rows of 5 × 17: the whole map, all the same.
    # All weights are held, or both images' maps: 2·13·5·17 = 2210 bytes against 13·5·17 + 135 + 315 = 1555.
    assert chain.holding.buffer_bytes == 13 * 5 * 17
    assert chain.task.on_chip_bytes == chain.holding.bytes == 13 * 5 * 17 + 135 + 315
    assert (chain.holding.band_rows, chain.holding.band_count) == (6, 2)


def dilated_pair(kernel: int, dilation: int, stride: int, extent: int) -> Any:
    """A 1×1 convolution, then a dilated one: what lies between them are the rows that a window slides over."""
    reach = (kernel - 1) * dilation + 1
    rows = (extent - reach) // stride + 1
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node("Conv", ["a", "w2"], ["y"], "second", dilations=[dilation, 1], strides=[stride, 1]),
    ]
    weights = {"w1": weight(5, 3, 1, 1), "w2": weight(7, 5, kernel, 1)}
    return model(nodes, {"x": (1, 3, extent, 67)}, {"y": (1, 7, rows, 67)}, weights)


@pytest.mark.parametrize(
    ("kernel", "dilation", "stride", "extent"),
    [(3, 1, 1, 41), (3, 2, 1, 41), (3, 5, 1, 43), (5, 3, 2, 61), (2, 7, 3, 53), (3, 2, 3, 47)],
)
def test_the_halo_of_a_dilated_convolution_against_a_loop_over_its_taps(kernel, dilation, stride, extent):
    """Band by band in a loop: the rows that a band reads, and those between its first and the newest that was made."""
    _, groups, candidates = candidates_of(dilated_pair(kernel, dilation, stride, extent), "int8")
    stages = [stage_of(candidate.task) for candidate in candidates[:2]]
    assert [group.kind for group in groups] == ["conv", "conv"]
    for band in (1, 2, 3):
        spans, alive, made = [], [], 0
        for start in range(0, stages[1].out_rows - band + 1, band):
            taps = {row * stride + tap * dilation for row in range(start, start + band) for tap in range(kernel)}
            made = max(made, max(taps) + 1)
            spans.append(max(taps) - min(taps) + 1)
            alive.append(made - min(taps))
        assert rows_read(stages[1], band) == max(spans)
        assert rows_held(stages, band) == [max(alive)]


def test_dilation_changes_what_a_chain_holds_and_nothing_else():
    near, far = (candidates_of(dilated_pair(3, dilation, 1, 61), "int8")[2][2] for dilation in (1, 5))
    assert near.task is not None and far.task is not None and near.holding is not None and far.holding is not None
    assert near.task.weight_bytes == far.task.weight_bytes
    # One row of 67 positions is a band: it reads 3 rows of 5 × 67, or 11.
    assert (near.holding.buffer_bytes, far.holding.buffer_bytes) == (3 * 5 * 67, 11 * 5 * 67)


def test_integers_keep_their_width():
    assert card_bytes(7 * 4, "float32", "int8") == 7
    assert card_bytes(7 * 8, "int64", "int8") == 7 * 8
    assert card_bytes(7, "uint8", "fp32") == 7
    assert card_bytes(7 * 2, "bfloat16", "int4") == 4
    assert card_bytes(None, "float32", "int8") is None
    widths = [element_bits(dtype, "bf16") for dtype in ("float32", "int8", "uint4", "bool")]
    assert widths == [16, 8, 4, 8]


@pytest.mark.parametrize("name", ["tiny-cnn", "tiny-mlp", "tiny-transformer", "tiny-vit", "tiny-bert", "tiny-densenet"])
def test_groups_have_all_macs_and_the_traffic_that_03_counts(name):
    """At the model's own format a task moves what the border moves, and nothing is counted twice or left out."""
    proto = BUILDERS[name]()
    rows, _ = source_rows(proto, batch=2, seq=23)
    graph, groups, found = candidates_of(proto, batch=2, seq=23)
    single = [candidate for candidate in found if len(candidate.covers) == 1]
    assert [candidate.covers for candidate in single] == [(index,) for index in range(len(groups))]
    assert sum(one.task.macs for one in single if one.task is not None) == sum(row["macs"] for row in rows)
    for candidate in found:
        nodes = [name for index in candidate.covers for name in groups[index].nodes]
        if candidate.task is None:
            assert candidate.why_not
        else:
            moved = traffic(graph, nodes)
            task = candidate.task
            assert (task.weight_bytes, task.read_bytes, task.written_bytes) == (
                moved.weight_bytes,
                moved.input_bytes,
                moved.output_bytes,
            )
            if candidate.kind == "chain":
                parts = [found[index].task for index in candidate.covers]
                assert task.layers == tuple(layer for part in parts if part is not None for layer in part.layers)
                assert task.border_bytes < sum(part.border_bytes for part in parts if part is not None)


def test_a_transformer_is_a_plan_and_not_a_gap():
    _, groups, found = candidates_of(BUILDERS["tiny-bert"](), "int8", batch=2, seq=23)
    left = {groups[one.covers[0]].pattern for one in found if one.task is None and "free" not in one.why_not}
    assert left == {"Gather", "Cast"}  # look-ups by token and segment, and the mask that comes as integers
    kinds = [one.kind for one in found if one.task is not None]
    assert [kinds.count(kind) for kind in ("gemm", "attention", "rowwise")] == [2 * 6, 2, 2 * 2 + 1]
    attention = next(one.task for one in found if one.kind == "attention" and one.task is not None)
    products = [layer for layer in attention.layers if isinstance(layer, Matmul | Rowwise)]
    # 2 sentences of 3 heads of 7
    assert products == [
        Matmul(23, 7, 23, 6, has_weight=False),
        Rowwise("Softmax", 6 * 23, 23),
        Matmul(23, 23, 7, 6, has_weight=False),
    ]


def test_why_no_kernel_serves_a_group():
    _, groups, found = candidates_of(BUILDERS["tiny-loop"](), batch=2)
    why = {groups[one.covers[0]].pattern: one.why_not for one in found if one.task is None and len(one.covers) == 1}
    assert "is in the body of a loop or a branch" in why.values()
    assert why["Loop"] in ("no kernel computes Loop", "works on indices, shapes or masks")
    _, groups, found = candidates_of(BUILDERS["tiny-mlp"]())  # the batch is left open
    gemm = next(one for one in found if groups[one.covers[0]].kind == "gemm")
    assert gemm.why_not == f"extents of {groups[gemm.covers[0]].nodes[0]} are unknown, or no kernel computes it"
    assert not [one for one in found if one.kind == "chain"]
    _, groups, found = candidates_of(BUILDERS["tiny-two-inputs"](), batch=2, seq=23)
    reasons = {groups[one.covers[0]].pattern: one.why_not for one in found}
    assert reasons["Gather"] == "works on indices, shapes or masks"
    assert reasons["Unsqueeze"] == "moves nothing: free on either side"


@pytest.mark.slow
def test_the_second_block_of_resnet50_is_a_chain():
    """1×1 from 256 to 64 channels, 3×3, 1×1 back to 256, on maps of 56 × 56, with BatchNorm and what came in."""
    _, groups, found = candidates_of(BUILDERS["resnet50"](), "int8", N=1)
    heads = tuple(f"/layer1/layer1.1/conv{index}/Conv" for index in (1, 2, 3))
    chains = [one for one in found if one.kind == "chain"]
    (chain,) = (one for one in chains if tuple(groups[index].heads[0] for index in one.covers) == heads)
    parts = [found[index].task for index in chain.covers]
    assert chain.task is not None
    pixels = 56 * 56
    kernels = 256 * 64 + 64 * 64 * 9 + 64 * 256
    assert chain.task.macs == pixels * kernels
    assert chain.task.weight_bytes == kernels + 4 * (64 + 64 + 256)  # scale, shift, mean, variance
    assert chain.task.read_bytes == chain.task.written_bytes == 256 * pixels
    # Apart, the block reads its input twice, and both maps of 64 channels are written and read.
    assert sum(part.read_bytes for part in parts if part is not None) == (256 + 64 + 64 + 256) * pixels
    assert sum(part.written_bytes for part in parts if part is not None) == (64 + 64 + 256) * pixels
    # 2 rows at a time: 4 and 2 rows of 64 channels, 2 + 2 rows of what comes in and is added behind
    assert chain.task.on_chip_bytes == 56 * (64 * (4 + 2) + 256 * (2 + 2)) + chain.task.weight_bytes


@pytest.mark.parametrize("form", ["qdq", "qoperator", "dynamic"])
def test_quantized_forms_keep_their_macs_and_their_widths(form, tmp_path):
    onnx.save(BUILDERS["tiny-cnn"](), tmp_path / "plain.onnx")
    path = quantize(tmp_path / "plain.onnx", form, tmp_path / "quantized.onnx", dimensions={"batch": 2})
    _, groups, found = candidates_of(onnx.load(path), "int8", batch=2)
    tasks = [one.task for one in found if one.task is not None and len(one.covers) == 1]
    # stem 3 to 7 and block 7 to 7 with 3 × 3 on 13 × 17, head 7 to 11
    assert sum(task.macs for task in tasks) == 2 * (13 * 17 * 9 * (3 * 7 + 7 * 7) + 7 * 11)
    convolutions = [one.task for one in found if one.kind == "conv" and one.task is not None]
    assert [task.read_bytes >= 2 * 13 * 17 * 3 for task in convolutions] == [True, True]
    left = {groups[one.covers[0]].pattern for one in found if one.task is None and "free" not in one.why_not}
    assert left == ({"DynamicQuantizeLinear"} if form == "dynamic" else set())


# --- layers of groups -------------------------------------------------------------------------------------------------


def rows_of(graph: SourceGraph, elements: int, width: int) -> dict[str, tuple[Any, ...]]:
    """Layers as if all tensors had this extent, and a reduction one element a row."""
    layers: dict[str, tuple[Any, ...]] = {}
    for name, node in graph.nodes.items():
        of_rows = node.op_type.startswith("Reduce")
        layers[name] = (
            (Rowwise(node.op_type, elements // width, width),)
            if of_rows
            else (Pointwise(node.op_type, elements, 1, width),)
        )
    return layers


def test_rows_that_are_written_out_are_one_layer():
    norm = Model(outputs=["n_y", "g_g", "t"])
    layer_norm(norm, "x", "n")
    gelu(norm, "x", "g")
    norm.add("ReduceMax", "x", "m")
    norm.add("Sub", "x m", "d")
    norm.add("Exp", "d", "e")
    norm.add("ReduceSum", "e", "s")
    norm.add("Div", "e s", "t")
    graph = norm.graph()
    found = {layer for group in fuse(graph) for layer in group_layers(group, rows_of(graph, 5 * 7, 7))}
    assert found == {Rowwise("LayerNormalization", 5, 7), Rowwise("Gelu", 5, 7), Rowwise("Softmax", 5, 7)}


def test_root_mean_square_is_told_from_the_mean():
    rms = Model(outputs=["y"])
    rms.weights(two=4, epsilon=4)
    rms.add("Pow", "x two", "s")
    rms.add("ReduceMean", "s", "m")
    rms.add("Add", "m epsilon", "e")
    rms.add("Sqrt", "e", "r")
    rms.add("Div", "x r", "y")
    graph = rms.graph()
    (group,) = fuse(graph)
    assert group_layers(group, rows_of(graph, 5 * 7, 7)) == (Rowwise("RMSNormalization", 5, 7),)


def test_a_mean_alone_stays_what_it_is():
    model = Model(outputs=["y"])
    model.add("ReduceMean", "x", "m")
    model.add("Sqrt", "m", "y")
    graph = model.graph()
    (group,) = fuse(graph)
    layers = {"/m": (Rowwise("ReduceMean", 5, 7),), "/y": (Pointwise("Sqrt", 5, 1, 1),)}
    assert group_layers(group, layers) == (*layers["/m"], *layers["/y"])


def task(*layers: Any) -> Task:
    return Task("t", "conv", layers, "int8", 0, 0, 0)


def test_stages():
    strided = Convolution(2, 3, 13, 17, 5, 6, 8, 3, 5, 2, 2, dilation_height=2)
    stage = stage_of(task(strided, Pointwise("Relu", 7)))
    assert stage is not None
    assert (stage.images, stage.in_rows, stage.in_row_elements) == (2, 13, 3 * 17)
    assert (stage.out_rows, stage.out_row_elements, stage.out_row_positions) == (6, 5 * 8, 8)
    assert (stage.window_rows, stage.stride_rows, stage.macs) == ((3 - 1) * 2 + 1, 2, strided.macs)
    pool = stage_of(task(Pooling(2, 3, 13, 17, 6, 8, 3, 2, 2, 3)))
    assert pool is not None
    assert (pool.window_rows, pool.stride_rows, pool.macs, pool.out_row_elements) == (3, 2, 0, 24)
    product = stage_of(task(Matmul(5, 7, 11)))
    assert product is not None
    assert (product.in_rows, product.in_row_elements, product.out_row_elements) == (5, 7, 11)


def test_of_one_axis_the_rows_lie_along_it():
    stage = stage_of(task(Convolution(2, 3, 1, 17, 5, 1, 7, 1, 5, 1, 2, axes=1, dilation_width=3)))
    assert stage is not None
    assert (stage.in_rows, stage.in_row_elements, stage.out_rows, stage.out_row_elements) == (17, 3, 7, 5)
    assert (stage.window_rows, stage.stride_rows) == ((5 - 1) * 3 + 1, 2)


@pytest.mark.parametrize(
    "layers",
    [
        (Convolution(2, 3, 65, 11, 7, 24, 7, 6, 5, axes=3),),
        (Convolution(2, 3, 13, 11, 7, 26, 22, 2, 2, is_transposed=True),),
        (Matmul(5, 7, 11, 2),),
        (Matmul(5, 7, 11, has_weight=False),),
        (Matmul(5, 7, 11), Matmul(5, 11, 3)),
        (Rowwise("Softmax", 5, 7),),
    ],
)
def test_what_is_no_stage(layers):
    assert stage_of(task(*layers)) is None


# --- what passes between groups ---------------------------------------------------------------------------------------


def branches() -> Model:
    """x to a Conv that two read, one of them through a view; one result is returned."""
    model = Model(outputs=["y", "a"], sizes={"x": 12, "a": 28, "r": 28, "v": 28, "g": 44, "y": 44})
    model.weights(w=8, u=4)
    model.add("Conv", "x w", "a")
    model.add("Reshape", "a", "v")
    model.add("Gemm", "v u", "g")
    model.add("Softmax", "a", "r")
    model.add("Concat", "g r", "y")
    return model


def test_flows_end_where_bytes_are_read_and_constants_do_not_flow():
    graph = branches().graph()
    groups = fuse(graph)
    assert [group.pattern for group in groups] == ["Conv", "Reshape", "Gemm", "Softmax", "Concat"]
    assert sorted(tensor_flows(graph, groups, ["int8"] * len(groups)), key=lambda flow: flow.tensor) == [
        TensorFlow("a", 0, (2, 3), 28, 7, is_output=True),
        TensorFlow("g", 2, (4,), 44, 11, is_output=False),
        TensorFlow("r", 3, (4,), 28, 7, is_output=False),
        TensorFlow("x", None, (0,), 12, 3, is_output=False),
        TensorFlow("y", 4, (), 44, 11, is_output=True),
    ]


def cut(flows: list[TensorFlow], on_card: set[int]) -> set[str]:
    """The tensors of the flows that a division of the groups cuts."""
    found = set()
    for flow in flows:
        at_card = flow.producer in on_card
        others = [consumer in on_card for consumer in flow.consumers]
        if at_card and (flow.is_output or not all(others)):
            found.add(flow.tensor)
        if not at_card and any(others):
            found.add(flow.tensor)
    return found


@pytest.mark.parametrize("name", ["tiny-cnn", "tiny-vit", "tiny-bert", "tiny-densenet"])
def test_flows_cut_are_the_crossings_that_fusion_finds(name):
    """The same question asked of the nodes: which tensors travel when some of them are on the card."""
    graph, groups, _ = candidates_of(BUILDERS[name](), batch=2, seq=23)
    flows = tensor_flows(graph, groups, ["fp32"] * len(groups))
    chance = random.Random(7)
    cuts = 0
    for _ in range(20):
        on_card = {index for index, group in enumerate(groups) if group.kind != "none" and chance.random() < 0.5}
        nodes = {name for index in on_card for name in groups[index].nodes}
        expected = crossings(graph, nodes)
        assert cut(flows, on_card) == set(expected)
        cuts += len(expected)
    assert cuts > 50


def test_what_a_loop_returns_waits_for_its_body():
    graph, groups, _ = candidates_of(BUILDERS["tiny-loop"](), batch=2)
    (owner,) = (index for index, group in enumerate(groups) if group.pattern == "Loop")
    flows = tensor_flows(graph, groups, ["fp32"] * len(groups))
    before = {flow.producer for flow in flows if owner in flow.consumers}
    bodies = {index for index, group in enumerate(groups) if any("Loop/" in name for name in group.nodes)}
    assert before & bodies
    assert [flow.tensor for flow in flows if flow.producer == owner]


def cost(*executed: str) -> HostCost:
    return HostCost(executed_nodes=list(executed))


def test_a_group_comes_where_the_host_finished_it():
    """Group 1 is a convolution that was computed first, and the addition of what group 0 returns."""
    flows = [TensorFlow("a", 0, (1,), 4, 1, is_output=False), TensorFlow("x", None, (0, 1), 4, 1, is_output=False)]
    costs = [cost("late"), cost("early", "last"), cost("between")]
    assert executed_order(flows, costs, ["early", "inserted", "late", "between", "last"]) == [0, 2, 1]


def test_the_executed_order_need_not_be_that_of_the_file():
    costs = [cost("c"), cost("a"), cost("b")]
    assert executed_order([], costs, ["a", "b", "c"]) == [1, 2, 0]


def test_what_nothing_computes_follows_its_operands():
    flows = [TensorFlow("a", 0, (1,), 4, 1, is_output=False)]
    assert executed_order(flows, [cost("late"), cost(), cost("early")], ["early", "late"]) == [2, 0, 1]


def test_host_time_of_the_smallest_groups_adds_up():
    """An executed node that computes two groups is divided by their FLOPs; none of it is lost."""
    graph = branches().graph()
    groups = fuse(graph)
    group_of = {name: index for index, group in enumerate(groups) for name in group.nodes}
    work = {name: SourceWork(7 if name in ("/a", "/g") else 0, 14) for name in graph.nodes}
    executed = [
        ExecutedCost("e1", 101.0, None, is_critical=True),
        ExecutedCost("reorder", 3.0, None, is_critical=True),
        ExecutedCost("e2", 37.0, None, is_critical=False),
    ]
    sources = {"e1": ["/a", "/g"], "e2": ["/r", "/y"]}
    costs = divide_over_groups(executed, sources, group_of, work, len(groups))
    assert [found.latency_us for found in costs] == [50.5, 0.0, 50.5, 18.5, 18.5]
    assert executed_order(tensor_flows(graph, groups, ["fp32"] * len(groups)), costs, ["e1", "reorder", "e2"]) == [
        1,
        0,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("precision", ["int4", "int8", "bf16"])
def test_packed_weights_and_their_scales_keep_the_bytes_of_the_file(precision):
    """64 by 7 weights in blocks of 32: half a byte each, and a scale of four bytes for each block of a column."""
    node = helper.make_node(
        "MatMulNBits", ["x", "codes", "scales"], ["y"], "n", domain="com.microsoft", K=64, N=7, block_size=32
    )
    weights = {"codes": np.zeros((7, 2, 16), np.uint8), "scales": np.ones(14, np.float32)}
    _, _, (found,) = candidates_of(
        model([node], {"x": (1, 64)}, {"y": None}, weights, domains=["com.microsoft"]), precision
    )
    assert found.task is not None
    assert found.task.weight_bytes == 64 * 7 // 2 + 4 * 14
    assert found.task.layers == (Matmul(1, 64, 7, 1, has_weight=True),)
