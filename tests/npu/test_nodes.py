"""Nodes with their operators, and what nodes without cycles were fused into."""

import pytest

from common.messages.errors import PipelineError
from common.npu.nodes import npu_nodes, require_one_graph
from common.npu.op_trace import read_op_trace
from common.npu.qnn_csv import read_qnn_csv
from common.npu.schematic import GraphNode, HtpOp, Schematic, read_schematic
from tests.support.profiles.npu_profiles import DATA, device_run, write_csv


def recorded(name):
    folder = DATA / name
    schematic, trace = read_schematic(folder / "schematic.bin"), read_op_trace(folder / "qnn_op_trace.json")
    return npu_nodes(read_qnn_csv(folder / "profile.csv"), schematic, trace, {})


def op(op_id, **changed):
    figures = dict.fromkeys(("dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes"), 0)
    return HtpOp(**{"op_id": op_id, "name": "q::x", "flags": frozenset(), **figures, **changed})


def schematic_of(edges, ops):
    """A graph of nodes with what they read."""
    graph = {
        node: GraphNode("q::Output" if node == 3 else "q::x", tuple((source, 0) for source in sources), (4,))
        for node, sources in edges.items()
    }
    return Schematic(tuple(ops), graph, {}, None)


def profile_of(path, cycles):
    return read_qnn_csv(write_csv(path / "p.csv", device_run([(f"n{op_id}", op_id, value) for op_id, value in cycles])))


def test_the_convolution_was_fused_into_its_relu():
    nodes = {node.name: node for node in recorded("fp16")}
    convolution, relu = nodes["conv_token_1"], nodes["relu"]
    assert (convolution.fused_into, convolution.op_count(), convolution.node_cycles) == (("relu",), 0, 0)
    assert (relu.fused_into, relu.op_count("hmx"), relu.qnn_op_type) == ((), 1, "Relu")
    assert relu.moved_bytes("dram_read_bytes") > 5 * 3 * 2  # the weights in float16, in the unit's own layout
    assert nodes["Output"].moved_bytes("dram_write_bytes") == 5 * 7 * 11 * 4


def test_the_last_dequantization_was_fused_into_the_output():
    nodes = {node.name: node for node in recorded("qdq")}
    assert nodes["DequantizeLinear_token_10"].fused_into == ("Output",)
    assert nodes["conv_token_1"].source_nodes[2] == "conv_token_1"


@pytest.mark.parametrize("name", ["fp16", "qdq"])
def test_no_node_is_dropped_and_all_traffic_is_given_to_nodes(name):
    nodes, schematic = recorded(name), read_schematic(DATA / name / "schematic.bin")
    assert len(nodes) == len(read_qnn_csv(DATA / name / "profile.csv").nodes)
    for column in ("dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes"):
        assert sum(node.moved_bytes(column) for node in nodes) == sum(getattr(op, column) for op in schematic.ops)
    assert all(bool(node.fused_into) == (node.op_count() == 0) for node in nodes)


def test_emulated_cycles_have_no_shares():
    assert {node.cycles_share for node in recorded("fp16")} == {None}


def test_shares_of_a_device_add_up(tmp_path):
    nodes = npu_nodes(profile_of(tmp_path, [(2, 3), (17, 0), (23, 7)]), None, None, {})
    assert [node.cycles_share for node in nodes] == [pytest.approx(0.3), 0, pytest.approx(0.7)]


def test_cycles_are_the_median_of_the_runs(tmp_path):
    blocks = [device_run([("a", 2, cycles), ("b", 5, 100)]) for cycles in (11, 17, 900)]
    nodes = npu_nodes(read_qnn_csv(write_csv(tmp_path / "p.csv", *blocks)), None, None, {})
    assert [node.node_cycles for node in nodes] == [17, 100]


def test_without_a_schematic_nothing_is_said_of_operators(tmp_path):
    (node,) = npu_nodes(profile_of(tmp_path, [(17, 0)]), None, None, {})
    assert (node.op_count(), node.moved_bytes("dram_read_bytes"), node.spill_bytes, node.fused_into) == (
        *(None,) * 3,
        (),
    )


def test_a_node_goes_into_the_nearest_ones_that_read_it(tmp_path):
    """Node 5 is read by 6, which is fused as well, and by 7; node 9, which nothing reads, reads 8."""
    profile = profile_of(tmp_path, [(2, 1), (5, 0), (6, 0), (7, 1), (8, 1), (9, 0)])
    edges = {2: [], 5: [2], 6: [5], 7: [5], 8: [6], 9: [8]}
    nodes = npu_nodes(profile, schematic_of(edges, [op(2), op(7), op(8)]), None, {})
    assert {node.op_id: node.fused_into for node in nodes if node.fused_into} == {
        5: ("n7", "n8"),
        6: ("n8",),
        9: ("n8",),
    }


def test_spills_are_counted_apart(tmp_path):
    ops = [op(2, name="@Spill", dram_write_bytes=11), op(2, dram_write_bytes=7), op(2, flags=frozenset({"uses_dma"}))]
    (node,) = npu_nodes(profile_of(tmp_path, [(2, 1)]), schematic_of({2: []}, ops), None, {})
    assert (node.spill_bytes, node.moved_bytes("dram_write_bytes"), node.op_count("dma")) == (11, 18, 1)


def test_a_schematic_of_another_graph_is_refused(tmp_path):
    schematic = read_schematic(DATA / "fp16" / "schematic.bin")
    with pytest.raises(PipelineError, match=r"is of another graph than the profile"):
        require_one_graph(read_qnn_csv(DATA / "qdq" / "profile.csv"), schematic, tmp_path)
    renamed = schematic_of({2: []}, [op(2)])
    with pytest.raises(PipelineError, match=r"they differ in node 2 \('n2'\)"):
        require_one_graph(
            profile_of(tmp_path, [(2, 1)]), Schematic(renamed.ops, renamed.graph, {2: "other"}, None), tmp_path
        )
