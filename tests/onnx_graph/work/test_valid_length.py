"""Attention over a buffer costs what its valid keys cost: by a plain graph, and by the keys that the runtime meets."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from common.messages.errors import UnboundDimensionsError
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.executed import load_executed_graph
from common.onnx_graph.load import load_model
from common.onnx_graph.symbols.lengths import LengthInput, length_values
from common.onnx_graph.work import measure
from common.runtime.inputs.given import make_feeds
from tests.support.models.onnx_models import Typed, model

MICROSOFT = "com.microsoft"
INT32, INT64 = TensorProto.INT32, TensorProto.INT64
BUFFER, HEADS, GROUPS, WIDTH = 4096, 16, 8, 64


def grouped(room=BUFFER, *, groups=GROUPS, heads=HEADS, width=WIDTH, grown=None, **attributes):
    """A GroupQueryAttention as a model: its lengths are inputs; without ``grown`` the present is the past's buffer."""
    names = ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
    heads_of = {"num_heads": heads, "kv_num_heads": groups}
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "pk", "pv"], name="gqa", domain=MICROSOFT, **heads_of, **attributes
    )
    past, present = (1, groups, room, width), (1, groups, grown or room, width)
    inputs = {"q": (1, "seq", heads * width), **dict.fromkeys(("k", "v"), (1, "seq", groups * width))}
    inputs |= {"past_key": past, "past_value": past}
    inputs |= {"seqlens_k": Typed(INT32, (1,)), "total_sequence_length": Typed(INT32, ())}
    outputs = {"y": (1, "seq", heads * width), "pk": present, "pv": present}
    return model([node], inputs, outputs, domains=[MICROSOFT])


def saved(path, proto):
    path.write_bytes(proto.SerializeToString())
    return path


def work_of_model(path, sizes, **options):
    loaded = load_model(path, sizes, **options)
    return loaded, count_nodes(loaded.graph, None)


def plain_macs(tmp_path, keys):
    """The same attention over ``keys`` keys as two products, counted by the rule of MatMul."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax"),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="values"),
    ]
    shapes = {"q": (HEADS, 1, WIDTH), "k": (HEADS, WIDTH, keys), "v": (HEADS, keys, WIDTH)}
    _, counts = work_of_model(saved(tmp_path / "plain.onnx", model(nodes, shapes, {"y": None})), {})
    return sum(count.work.macs for count in counts)


def test_a_buffer_counts_by_its_valid_length(tmp_path):
    """The 101 keys of a buffer of 4,096 that are valid: 2 · 2 · 8 · 101 · 64 MACs, and none of the others."""
    path = saved(tmp_path / "m.onnx", grouped())
    _, (count,) = work_of_model(path, {"seq": 1, "total_sequence_length": 101})
    assert count.work.macs == 2 * 2 * 8 * 101 * 64 == plain_macs(tmp_path, 101)
    row = GROUPS * WIDTH * 4
    assert count.work.input_bytes == 2 * row + row + row + 2 * 100 * row + 4 + 4  # the query is twice as wide
    assert count.work.output_bytes == 2 * row + 2 * row


def test_the_length_of_a_buffer_is_a_dimension(tmp_path):
    path = saved(tmp_path / "m.onnx", grouped())
    loaded, (count,) = work_of_model(path, {}, symbolic=True)
    assert loaded.unbound == ("seq", "total_sequence_length")
    assert str(count.work.macs) == "2048*seq*total_sequence_length"


def test_a_length_is_bound_or_the_model_is_refused(tmp_path):
    """The length that a file gives for an input is that dimension; without one, the line says how to bind it."""
    path = saved(tmp_path / "m.onnx", grouped())
    with pytest.raises(UnboundDimensionsError, match="the value of total_sequence_length") as refused:
        load_model(path, {"seq": 1})
    assert "<dim> total_sequence_length=128" in refused.value.remedy
    loaded = load_model(path, {"seq": 1}, values={"total_sequence_length": np.array(101, np.int32)})
    assert loaded.dimensions == {"seq": 1, "total_sequence_length": 101}
    feeds = make_feeds(loaded.graph, {}, 0)
    assert (feeds["seqlens_k"].tolist(), feeds["total_sequence_length"].tolist()) == ([100], 101)


def test_sequences_of_different_lengths_count_as_the_longest(tmp_path):
    """A given file is fed as it is."""
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "valid"], ["y"], name="attention")
    inputs = {"q": (2, 2, 1, 8), **dict.fromkeys("kv", (2, 1, 16, 8)), "valid": Typed(INT64, (2,))}
    path = saved(tmp_path / "m.onnx", model([node], inputs, {"y": (2, 2, 1, 8)}, opset=24))
    loaded, (count,) = work_of_model(path, {}, values={"valid": np.array([3, 11])})
    assert (loaded.dimensions, count.work.macs) == ({"valid": 11}, 2 * 2 * 11 * (8 + 8))


def test_the_graph_that_ran_has_the_length_as_well(tmp_path):
    """03 counts the executed graph: it knows the length by the dimensions that were bound, and no other."""
    path = saved(tmp_path / "m.onnx", grouped())
    executed = load_executed_graph(path, {"seq": 1, "total_sequence_length": 101})
    assert measure(executed, executed.nodes[0]).macs == 206_848
    unknown = load_executed_graph(path, {"seq": 1})
    assert measure(unknown, unknown.nodes[0]).macs is None


def test_a_growing_cache_needs_no_length(tmp_path):
    path = saved(tmp_path / "m.onnx", grouped("past", grown="total"))
    loaded, (count,) = work_of_model(path, {}, symbolic=True)
    assert loaded.unbound == ("seq", "past")
    assert str(count.work.macs) == "2048*past*seq + 2048*seq**2"
    loaded, _ = work_of_model(path, {"seq": 3, "past": 20})
    feeds = make_feeds(loaded.graph, {}, 0)
    assert (feeds["seqlens_k"].tolist(), feeds["total_sequence_length"].tolist()) == ([22], 23)


def met(session, feeds, name):
    """Return how many rows of a cache the answer of the runtime depends on."""
    plain, met = session.run(None, feeds)[0], 0
    for row in range(feeds[name].shape[2]):
        changed = feeds[name].copy()
        changed[:, :, row] += 5
        met += not np.array_equal(plain, session.run(None, {**feeds, name: changed})[0])
    return met


@pytest.mark.parametrize(("window", "keys"), [(-1, 11), (4, 4), (40, 11)])
def test_the_runtime_meets_the_keys_that_are_counted(tmp_path, window, keys):
    """11 of 16 keys are valid, one of them new; the runtime's answer depends on the past ones in the window."""
    small = {"heads": 2, "groups": 1, "width": 8}
    path = saved(tmp_path / "m.onnx", grouped(16, local_window_size=window, **small))
    loaded, (count,) = work_of_model(path, {"seq": 1, "total_sequence_length": 11})
    assert count.work.macs == 2 * keys * (8 + 8)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = make_feeds(loaded.graph, {}, 0)
    assert met(session, feeds, "past_value") == keys - 1
    past_row, new = 8 * 4, 2 * 8 * 4 + 2 * 8 * 4
    assert count.work.input_bytes == new + 2 * (keys - 1) * past_row + 4 + 4


def test_onnx_attention_over_a_buffer(tmp_path):
    """Operand 6 of ONNX's own Attention: 11 of 16 keys and values are valid."""
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "valid"], ["y"], name="attention")
    inputs = {"q": (1, 2, 1, 8), **dict.fromkeys("kv", (1, 1, 16, 8)), "valid": Typed(INT64, (1,))}
    path = saved(tmp_path / "m.onnx", model([node], inputs, {"y": (1, 2, 1, 8)}, opset=24))
    loaded, (count,) = work_of_model(path, {"valid": 11})
    assert count.work.macs == 2 * 11 * (8 + 8)
    assert count.work.input_bytes == 4 * (16 + 2 * 11 * 8) + 8
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert met(session, make_feeds(loaded.graph, {}, 0), "v") == 11


def test_a_mask_of_all_tokens_gives_the_lengths(tmp_path):
    """As GenAI's builder writes it: the sum of the mask less one, and the mask's extent."""
    proto = grouped("past_sequence_length", grown="total_sequence_length")
    graph, make = proto.graph, helper.make_node
    del graph.input[5:]
    mask = helper.make_tensor_value_info("attention_mask", INT64, (1, "total_sequence_length"))
    graph.input.append(mask)
    numbers = {"one": [1], "axis": [1]}
    graph.initializer.extend(helper.make_tensor(name, INT64, (1,), value) for name, value in numbers.items())
    chain = [
        make("ReduceSum", ["attention_mask", "axis"], ["sums"], name="sums", keepdims=0),
        make("Sub", ["sums", "one"], ["less"], name="less"),
        make("Cast", ["less"], ["seqlens_k"], name="seqlens", to=INT32),
        make("Shape", ["attention_mask"], ["shape"], name="shape"),
        make("Gather", ["shape", "axis"], ["extent"], name="extent"),
        make("Cast", ["extent"], ["total_sequence_length"], name="total", to=INT32),
    ]
    nodes = [*chain, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    path = saved(tmp_path / "m.onnx", proto)
    sizes = {"seq": 1, "past_sequence_length": 64, "total_sequence_length": 11}
    loaded, counts = work_of_model(path, sizes)
    assert counts[-1].work.macs == HEADS * 11 * 2 * WIDTH  # of a buffer of 64
    feeds = make_feeds(loaded.graph, {}, 0)
    assert feeds["attention_mask"].tolist() == [[1] * 11]
    *_, symbolic = work_of_model(path, {}, symbolic=True)[1]
    assert str(symbolic.work.macs) == "2048*seq*total_sequence_length"


def test_a_mask_that_is_too_large_to_evaluate_is_never_made():
    """At a large binding of the dimensions, ones for each token would take gigabytes."""
    nodes = [helper.make_node("Identity", ["mask"], ["y"], name="copy")]
    sizes = {"mask": LengthInput("mask", (1,))}
    for extent, names in ((1_000, ["mask"]), (20_011, [])):
        proto = model(nodes, {"mask": Typed(INT64, (extent, extent))}, {"y": Typed(INT64, None)})
        assert [*length_values(proto, sizes, {}.get)] == names


@pytest.mark.parametrize("kept", ["num_logits_to_keep", "logits_to_keep"])
def test_scores_of_all_tokens_are_kept(tmp_path, kept):
    """transformers slices the last tokens off before the head; 0 keeps all, by a random run of 01, too."""
    nodes = [
        helper.make_node("Neg", [kept], ["minus"], name="neg"),
        helper.make_node("Unsqueeze", ["minus", "axis"], ["start"], name="start"),
        helper.make_node("Slice", ["x", "start", "end", "one"], ["last"], name="slice"),
        helper.make_node("MatMul", ["last", "w"], ["y"], name="head"),
    ]
    weights = {"axis": np.array([0]), "end": np.array([2**62]), "one": np.array([1]), "w": np.ones((3, 7), np.float32)}
    inputs = {"x": (1, "seq", 3), kept: Typed(INT64, ())}
    path = saved(tmp_path / "m.onnx", model(nodes, inputs, {"y": (1, "kept", 7)}, weights))
    _, counts = work_of_model(path, {}, symbolic=True)
    assert str(counts[-1].work.macs) == "21*seq"
    loaded, counts = work_of_model(path, {"seq": 5})
    assert counts[-1].work.macs == 5 * 21
    assert make_feeds(loaded.graph, {}, 3)[kept].tolist() == 0
    assert work_of_model(path, {"seq": 5}, values={kept: np.array(2)})[1][-1].work.macs == 2 * 21


def test_a_merged_decoder_is_counted_by_the_branch_that_reads_caches(tmp_path):
    branches = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", weight], [f"y.{weight}"], name=f"product.{weight}")],
            weight,
            [],
            [helper.make_tensor_value_info(f"y.{weight}", TensorProto.FLOAT, None)],
        )
        for weight in ("with_past", "without")
    ]
    node = helper.make_node(
        "If", ["use_cache_branch"], ["y"], name="merged", then_branch=branches[0], else_branch=branches[1]
    )
    weights = {"with_past": np.ones((3, 7), np.float32), "without": np.ones((3, 11), np.float32)}
    inputs = {"x": (1, "seq", 3), "use_cache_branch": Typed(TensorProto.BOOL, (1,))}
    path = saved(tmp_path / "m.onnx", model([node], inputs, {"y": (1, "seq", "wide")}, weights))
    loaded, counts = work_of_model(path, {"seq": 5})
    assert sum(count.figure("macs") for count in counts) == 5 * 21
    assert make_feeds(loaded.graph, {}, 3)["use_cache_branch"].tolist() == [True]
