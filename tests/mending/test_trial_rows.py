"""What is tried, what is predicted, and what a pair of measurements says of it."""

from __future__ import annotations

import pytest

from common.mending.agreement import Agreement
from common.mending.findings import Predicted, nodes_of, predicted, rules_to_try
from common.mending.registry import MendTrial
from common.mending.trial_rows import MeasuredGain, measured_gain, trial_row
from common.messages.errors import UnusableValueError


def found(rule, *nodes, gain=(2.0, 1.0, 3.0), also=(), doubts=()):
    ends = dict(zip(("gain_us", "gain_low_us", "gain_high_us"), gain, strict=True))
    return {"finding": rule, "also_found_by": list(also), "executed_nodes": list(nodes), "doubts": list(doubts), **ends}


FOUND = [found("padding"), found("transposes"), found("unfused_conv"), found("transposes"), found("unfused_gelu")]


def test_the_first_rules_with_a_mend_are_tried_each_once():
    assert rules_to_try(FOUND, []) == ["transposes", "unfused_conv", "unfused_gelu"]
    assert rules_to_try([*FOUND, found("tiny_nodes")], []) == ["transposes", "unfused_conv", "unfused_gelu"]
    assert rules_to_try(FOUND, ["unfused_gelu", "unfused_gelu"]) == ["unfused_gelu"]
    assert rules_to_try([found("padding")], []) == []
    assert rules_to_try([found("padding", also=["unfused_norm"])], []) == ["unfused_norm"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("padding", "'padding' has no rewrite; these have one: "),
        (
            "tiny_nodes",
            "'tiny_nodes' found nothing in this measurement; findings with a rewrite: transposes, unfused_conv",
        ),
    ],
)
def test_a_rule_without_a_mend_or_a_finding_is_refused(rule, problem):
    with pytest.raises(UnusableValueError) as error:
        rules_to_try(FOUND, [rule])
    assert problem in str(error.value)


MAP = [
    {"executed_node": "fused", "source_node": "conv", "rule": ""},
    {"executed_node": "fused", "source_node": "relu", "rule": ""},
    {"executed_node": "other", "source_node": "add", "rule": ""},
]


def test_findings_are_about_the_nodes_that_theirs_compute():
    assert nodes_of([found("a", "fused"), found("a", "other")], MAP, "xyz") == {"conv", "relu", "add"}
    assert nodes_of([found("a", "fused")], MAP, "xyz") == {"conv", "relu"}
    assert nodes_of([found("a", "fused", "inserted")], MAP, "xyz") == {"x", "y", "z"}


def test_the_prediction_is_that_of_all_findings_and_no_more_than_the_latency():
    both = [found("a", gain=(2.0, 1.0, 3.0)), found("a", gain=(5.0, 4.0, 9.0))]
    assert predicted(both, 100.0) == Predicted(7.0, 5.0, 12.0)
    assert predicted(both, 6.0) == Predicted(6.0, 5.0, 6.0)
    assert predicted(both, None) == Predicted(7.0, 5.0, 12.0)
    assert predicted([*both, found("a", gain=(None, None, None))], 100.0) == Predicted(None, None, None)
    doubted = predicted([found("a", doubts=["the host was busy"])], 100.0)
    assert doubted.doubts == ("the host was busy",)
    assert trial_row("a", APPLIED, None, doubted, None)["doubts"] == ["the host was busy"]


def compared(verdict, share, low, high):
    return {
        "compared_figure": "p50_us",
        "comparison_verdict": verdict,
        "baseline_value": 200.0,
        "difference_share": share,
        "difference_low_share": low,
        "difference_high_share": high,
        "verdict_reason": "",
    }


def test_a_gain_is_the_difference_with_its_sign_turned():
    """A quarter of 200 us less, between 20 and 30 %, is a gain of 50 us, between 40 and 60."""
    rows = [{"compared_figure": "node_latency_us"}, compared("improved", -0.25, -0.3, -0.2)]
    assert measured_gain(rows) == MeasuredGain(50.0, pytest.approx(40.0), pytest.approx(60.0), "improved")
    assert measured_gain([]) is None


APPLIED, REFUSED = MendTrial(object(), ("m",), ("n",), {}), MendTrial(None, (), (), {"fuse_gelu": "no Gelu", "b": "c"})
PREDICTED = Predicted(10.0, 5.0, 15.0)


@pytest.mark.parametrize(
    ("verdict", "gain", "outcome", "is_as_predicted"),
    [
        ("improved", (20.0, 14.0, 26.0), "gains", True),
        ("improved", (20.0, 16.0, 26.0), "gains", False),
        ("regressed", (-9.0, -12.0, -6.0), "loses", False),
        ("unchanged", (0.0, -1.0, 1.0), "no gain", False),
        ("undecided", (4.0, -1.0, 9.0), "undecided", True),
        ("undecided", (4.0, None, None), "undecided", None),
    ],
)
def test_the_outcome_is_that_of_the_pairs(verdict, gain, outcome, is_as_predicted):
    row = trial_row("r", APPLIED, Agreement(0.0, 1e-4), PREDICTED, MeasuredGain(*gain, verdict))
    assert (row["mend_outcome"], row["is_as_predicted"]) == (outcome, is_as_predicted)
    assert row["measured_gain_us"] == gain[0]


def test_no_gain_is_stated_of_a_model_that_was_not_mended_or_that_returns_something_else():
    row = trial_row("r", REFUSED, None, PREDICTED, None)
    assert (row["mend_outcome"], row["measured_gain_us"]) == ("not mended", None)
    assert row["mend_problem"] == "fuse gelu: no Gelu; b: c"
    row = trial_row("r", APPLIED, Agreement(0.5, 1e-4), PREDICTED, None)
    assert row["mend_outcome"] == "outputs differ"
    assert row["mend_problem"] == "an output differs by 0.5 of its largest element, more than 0.0001"
    row = trial_row("r", APPLIED, Agreement(0.0, 1e-4), PREDICTED, None)
    assert (row["mend_outcome"], row["mend_problem"]) == ("undecided", "no pair of runs counts")
    row = trial_row("r", APPLIED, Agreement(None, 1e-4), PREDICTED, None)
    assert row["mend_problem"].startswith("an output is not finite")
