"""Chips: totals of each, and the nodes that one places otherwise than the first."""

from common.npu.nodes import NpuNode
from common.npu.report import Chip, chip_node_rows, chip_rows
from common.npu.schematic import HtpOp


def op(op_id, name="q::Conv", flags=("uses_hmx",), read=0):
    return HtpOp(op_id, name, read, 0, 0, 0, frozenset(flags))


def node(op_id, *ops, fused_into=()):
    return NpuNode(op_id, f"n{op_id}", "", (), fused_into, None, None, ops)


def chip(soc_model, *nodes, **figures):
    return Chip(soc_model, nodes, {"dram_read_bytes": 7, **figures}, 0.5)


FIRST = chip(57, node(17, op(17)), node(23, fused_into=("n17",)))


def test_totals_of_each_chip():
    rows = chip_rows([FIRST, chip(69, *FIRST.nodes, vtcm_peak_bytes=11)])
    assert [row["soc_model"] for row in rows] == [57, 69]
    assert {(row["npu_node_count"], row["fused_node_count"], row["moved_node_count"]) for row in rows} == {(2, 1, 0)}
    assert [row["vtcm_peak_bytes"] for row in rows] == [None, 11]
    assert {(row["dram_read_bytes"], row["max_error"]) for row in rows} == {(7, 0.5)}


def moved(*nodes):
    rows = chip_node_rows([FIRST, chip(69, *nodes)])
    return [row["npu_op_id"] for row in rows if row["is_moved"] and row["soc_model"] == 69]


def test_a_node_is_moved_by_what_computes_it_not_by_its_bytes():
    host, fused = FIRST.nodes
    assert moved(host, fused) == []
    assert moved(node(17, op(17, read=9)), fused) == []
    assert moved(node(17, op(17, flags=("uses_hvx",))), fused) == [17]
    assert moved(node(17, op(17, name="q::Other")), fused) == [17]
    assert moved(node(17, op(17), op(17)), fused) == [17]
    assert moved(host, node(23, fused_into=("n29",))) == [23]
    assert moved(host, node(23, op(23))) == [23]
    assert moved(host, fused, node(29, op(29))) == [29]


def test_rows_of_all_chips():
    rows = chip_node_rows([FIRST, FIRST])
    assert [(row["npu_node"], row["hmx_op_count"], row["is_moved"]) for row in rows] == [
        ("n17", 1, False),
        ("n23", 0, False),
    ] * 2
