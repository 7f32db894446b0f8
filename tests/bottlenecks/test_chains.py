"""Element-wise chains: which nodes one pass could compute, and which bytes that would spare."""

import pytest

from common.bottlenecks.chains import element_wise_chains
from common.bottlenecks.judge import findings
from common.bottlenecks.subjects import measured
from tests.support.tables.bottlenecks import RULES, SUMMARY, node, tables

RULE = RULES["element_wise_chain"]
MOVED = 51  # bytes: of 17 each, two operands and a result


def found(kinds, edges=None):
    """The chains of nodes that move 51 bytes each, with tensors of 17 bytes between them."""
    rows = [node(f"n{index}", kind, bytes=MOVED, weight_bytes=17) for index, kind in enumerate(kinds.split())]
    held = measured(tables(rows, edges), SUMMARY)
    return [*element_wise_chains(held.graph, {*held.graph.nodes})], findings([RULE], held)


def test_a_tensor_between_two_nodes_is_neither_written_nor_read():
    """Three nodes move 153 bytes, and 2 · 2 · 17 of them between one another."""
    (chain,), (finding,) = found("Add Mul Relu")
    assert chain.nodes == ("n0", "n1", "n2")
    assert (chain.between_bytes, chain.all_bytes) == (34, 153)
    assert finding.subject.facts["executed_edges"]["unfused_share"] == 85 / 153
    assert finding.gain.gain_us == pytest.approx(RULE.realized.likely * 303.0 * (1 - 85 / 153))


@pytest.mark.parametrize(
    ("kinds", "merged_bytes"), [("Add Sub Add", 34), ("Mul Add Mul Add", 34), ("Mul Add", 0), ("Add Add Relu", 0)]
)
def test_constants_of_sums_and_products_are_merged(kinds, merged_bytes):
    """One summand of 17 bytes remains, and one factor; a Relu between keeps all constants."""
    ((chain,), _) = found(kinds)
    assert chain.merged_bytes == merged_bytes


def test_a_chain_ends_where_others_read_or_other_operators_are():
    assert [one.nodes for one in found("Add Softmax Mul Relu")[0]] == [("n2", "n3")]
    read_twice = [("n0", "n1"), ("n1", "n2"), ("n1", "n3")]
    assert [one.nodes for one in found("Add Mul Relu Tanh", read_twice)[0]] == [("n0", "n1")]
    returned = [("n0", "n1"), ("n0", ""), ("n1", "n2")]
    assert [one.nodes for one in found("Add Mul Relu", returned)[0]] == [("n1", "n2")]


def test_two_nodes_may_lead_to_one():
    (chain,), _ = found("Relu Tanh Mul", [("n0", "n2"), ("n1", "n2")])
    assert (chain.nodes, chain.between_bytes) == (("n0", "n1", "n2"), 34)


def test_a_chain_of_unknown_size_is_left_out():
    rows = tables([node("a", "Add", bytes=None), node("b", "Mul", bytes=MOVED)])
    assert [*element_wise_chains(measured(rows, SUMMARY).graph, {"a", "b"})] == []


def test_equal_chains_are_one_finding():
    edges = [("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n3", "n4")]
    _, (finding,) = found("Add Relu Softmax Add Relu", edges)
    assert finding.subject.nodes == ("n0", "n1", "n3", "n4")


def test_activations_alone_are_no_chain():
    """There is no operator that computes two of them."""
    assert found("QuickGelu Relu Gelu") == ([], [])
    assert len(found("QuickGelu Relu Add")[0]) == 1
