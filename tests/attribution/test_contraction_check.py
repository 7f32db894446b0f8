"""The check on contractions: what it counts, and what it says where something does not agree."""

import pytest

from common.attribution.contraction_check import (
    CheckedNode,
    check_contractions,
    checked_node,
    contractions,
    macs_in_run,
    require_agreement,
)
from common.messages.errors import PipelineError


def node(name, source=(), executed=0, *, padding="", time_us=1.0, has_other_sources=False, open_count=0):
    return CheckedNode(name, tuple(source), executed, padding, time_us, has_other_sources, open_count)


def source(name, macs, *, op_type="Gemm", gemm=(None,) * 4, inputs=((2, 3, 5, 5),), outputs=((2, 10, 5, 5),)):
    sizes = dict(zip(("batch_count", "m_count", "k_count", "n_count"), gemm, strict=True))
    return {
        "source_node": name,
        "op_type": op_type,
        "macs": macs,
        "input_shapes": inputs,
        "output_shapes": outputs,
    } | sizes


def timed(*, domain="com.microsoft.nchwc", inputs=((2, 3, 5, 5),), outputs=((2, 16, 5, 5),), passes=1):
    return {
        "executed_node": "conv",
        "domain": domain,
        "events_per_run_count": passes,
        "raw_total_us": 7.0,
        "input_shapes": inputs,
        "output_shapes": outputs,
    }


def test_all_that_agree_say_nothing():
    check, notes = check_contractions([], [node("a", [11], 11), node("relu"), node("b", [13], 13)])
    assert (check.contraction_count, check.matched_count, check.agreeing_count, check.padded_count) == (2, 2, 2, 0)
    assert (check.single_share, notes) == (1.0, [])


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (node("a", [11], 13), "MACs by executed shapes differ: a (11 MACs, executed 13)"),
        (node("a", [11], None), "MACs by executed shapes unknown: a;"),
        (node("a", [11], 7, padding="output channels 10 -> 16"), "MACs by executed shapes differ: a (output channels"),
        (node("a", [10], 16, padding="output channels 10 -> 16"), "channels padded to the runtime's block: a (output"),
        (node("a", (), 16, has_other_sources=True), "nodes without MACs run as contractions: a;"),
        (node("a", (), 16), "executed contractions without source nodes: a;"),
    ],
)
def test_what_does_not_agree_is_named(found, note):
    check, notes = check_contractions([], [found])
    assert check.agreeing_count == 0
    assert len(notes) == 1 and notes[0].startswith(note)


def test_a_lost_contraction_is_counted_and_named():
    check, notes = check_contractions(["lost"], [node("a", [11], 11)])
    assert (check.contraction_count, check.matched_count) == (2, 1)
    assert notes[0].startswith("contractions without an executed node: lost;")


def test_several_contractions_in_one_node_count_by_their_time():
    check, notes = check_contractions([], [node("two", [3, 5], 8, time_us=1.0), node("one", [7], 7, time_us=3.0)])
    assert check.single_share == pytest.approx(0.75)
    assert (check.matched_count, check.agreeing_count) == (3, 3)
    assert notes == [
        "only 75.0% of the time is in nodes with at most one contraction: two (2); the runtime fused several"
    ]


def test_only_a_few_are_named():
    _, notes = check_contractions([f"n{i}" for i in range(7)], [])
    assert "n4 and 2 more;" in notes[0] and "n5" not in notes[0]


def test_padding_names_the_channels_before_and_after():
    rows = [source("conv", 750), source("relu", 0)]
    found = checked_node(timed(inputs=((2, 8, 5, 5),)), 2400, rows)
    assert (found.source_macs, found.padding, found.has_other_sources) == (
        (750,),
        "input channels 3 -> 8, output channels 10 -> 16",
        True,
    )


@pytest.mark.parametrize("changes", [{"domain": ""}, {"outputs": ((2, 10, 5, 5),)}, {"outputs": ()}])
def test_no_padding_outside_the_blocked_layout_or_where_the_channels_are_the_same(changes):
    assert checked_node(timed(**changes), 750, [source("conv", 750)]).padding == ""


def test_an_attribution_that_the_executed_shapes_deny_fails():
    """13 of 13 + 17 MACs agree; what is padded agrees as well, and what is unknown says nothing."""
    denied = [node("a", [13], 13), node("b", [17], 19), node("c", [1000], None), node("relu")]
    with pytest.raises(
        PipelineError, match=r"op_latency\.csv: the shapes that ran confirm only 43% of the matched MACs"
    ):
        require_agreement("op_latency.csv", denied)
    padded = node("d", [5], 8, padding="output channels 5 -> 8")
    assert require_agreement("op_latency.csv", [*denied, padded]) == pytest.approx(18 / 35)


@pytest.mark.parametrize("nodes", [[], [node("relu")], [node("a", [11], None)], [node("a", [11], 11)]])
def test_an_attribution_that_nothing_denies_passes(nodes):
    assert require_agreement("op_latency.csv", nodes) == 1


def test_work_that_only_data_tell_counts_as_often_as_the_trace_saw():
    assert macs_in_run(source("m", None, gemm=(1, 2, 3, 5)), 7) == 7 * 30
    assert macs_in_run(source("m", None), 7) is None
    assert macs_in_run(source("m", None, gemm=(1, 2, 3, 5)), None) is None
    assert macs_in_run(source("m", 11, gemm=(1, 2, 3, 5)), 7) == 11


def test_contractions_are_the_nodes_with_macs():
    rows = [source("conv", 11), source("relu", 0), source("in_a_loop", None, gemm=(1, 2, 3, 5))]
    rows += [source("of data", None), source("softmax of data", None, op_type="Softmax")]
    assert contractions(rows) == {"conv", "in_a_loop", "of data"}


def test_contractions_whose_macs_depend_on_data_are_counted_and_denied_by_nothing():
    rows = [source("gemm", None), source("relu", None, op_type="Relu")]
    found = checked_node(timed(domain=""), 7 * 11 * 13, rows)
    assert (found.source_macs, found.open_count, found.has_other_sources) == ((), 1, True)
    check, notes = check_contractions([], [found, node("a", [11], 11)])
    assert (check.contraction_count, check.matched_count, check.agreeing_count, check.open_count) == (2, 2, 1, 1)
    assert notes == []
    assert require_agreement("op_latency.csv", [found]) == 1


def test_an_operator_that_is_no_product_by_its_type_is_open_where_it_ran_with_macs():
    rows = [source("lstm", None, op_type="LSTM")]
    assert checked_node(timed(domain=""), 17, rows).open_count == 1
    assert checked_node(timed(domain=""), 0, [source("relu", None, op_type="Relu")]).open_count == 0
