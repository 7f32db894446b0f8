"""Gains against sums over all paths, which share no code with the critical path."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bottlenecks.executed_nodes import interval_us
from common.bottlenecks.judge import Kept, findings, mending_gain, what_ifs
from common.bottlenecks.subjects import measured
from tests.support.tables.bottlenecks import RULES, SUMMARY, node, tables

TIMES = st.floats(min_value=1e-3, max_value=1e6)


@st.composite
def graphs(draw):
    """Up to seven nodes, edges from earlier to later ones, and what each node keeps."""
    times = draw(st.lists(TIMES, min_size=1, max_size=7))
    pairs = [(one, other) for other in range(len(times)) for one in range(other)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    shares = draw(st.lists(st.floats(0, 1), min_size=len(times), max_size=len(times)))
    return times, edges, shares


def longest(times, edges):
    """The longest chain, by the sum of every path."""

    def paths(index):
        return [[index]] + [[index, *rest] for one, other in edges if one == index for rest in paths(other)]

    return max(sum(times[index] for index in path) for start in range(len(times)) for path in paths(start))


@pytest.mark.slow
@given(graphs())
def test_makespan_and_span_fall_by_what_the_nodes_lose(made):
    times, edges, shares = made
    rows = tables(
        [node(str(index), latency_us=time) for index, time in enumerate(times)],
        [(str(one), str(other)) for one, other in edges],
    )
    kept = {str(index): Kept(share) for index, share in enumerate(shares)}
    gain = mending_gain(what_ifs(measured(rows, SUMMARY).graph), kept)
    after = [time * share for time, share in zip(times, shares, strict=True)]
    assert gain.gain_us == pytest.approx(sum(times) - sum(after), rel=1e-9, abs=1e-4)
    assert gain.span_gain_us == pytest.approx(longest(times, edges) - longest(after, edges), rel=1e-9, abs=1e-4)


def test_a_chain_keeps_its_span_where_another_is_as_long():
    rows = tables(
        [node("a", latency_us=7.0), node("left", latency_us=31.0), node("right", latency_us=29.0)],
        [("a", "left"), ("a", "right")],
    )
    gain = mending_gain(what_ifs(measured(rows, SUMMARY).graph), {"left": Kept(0.0)})
    assert (gain.gain_us, gain.span_gain_us) == (31.0, 2.0)


def test_work_keeps_its_time_where_the_node_was_faster():
    """At its low time the node is already at the roof, so nothing is gained."""
    row = node(
        "n", corrected_std_us=50.0, corrected_min_us=40.0, corrected_p95_us=200.0, bound="memory", roof_share=0.4
    )
    low, likely, high = interval_us(measured(tables([row]), SUMMARY).graph.nodes["n"])
    half = 1.96 * (3.141592653589793 / 22) ** 0.5 * 50.0
    assert (low, likely, high) == pytest.approx((101.0 - half, 101.0, 101.0 + half))
    (finding,) = findings([RULES["below_memory_roof"]], measured(tables([{**row, "latency_share": 0.5}]), SUMMARY))
    gain, realized = finding.gain, RULES["below_memory_roof"].realized
    assert gain.gain_us == pytest.approx(realized.likely * 101.0 * 0.6)
    assert gain.gain_low_us == pytest.approx(realized.low * (low - 101.0 * 0.4))
    assert gain.gain_high_us == pytest.approx(realized.high * (high - 101.0 * 0.4))


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({"corrected_std_us": 900.0, "corrected_min_us": 97.0, "corrected_p95_us": 103.0}, (97.0, 103.0)),
        ({"corrected_std_us": None, "corrected_min_us": 97.0, "corrected_p95_us": 103.0}, (97.0, 103.0)),
        (
            {"correction_low_us": 1.0, "correction_high_us": 5.0, "corrected_min_us": 0.0, "corrected_p95_us": 999.0},
            (98.0, 102.0),
        ),
        ({"correction_us": None, "correction_low_us": None, "correction_high_us": None}, (101.0, 101.0)),
    ],
)
def test_an_interval_ends_where_no_median_can_be(changes, ends):
    low, likely, high = interval_us(measured(tables([node("n", **changes)]), SUMMARY).graph.nodes["n"])
    assert (low, likely, high) == (ends[0], 101.0, ends[1])


@pytest.mark.parametrize("count", [10, 30])
@pytest.mark.parametrize("sigma", [0.1, 0.8])
def test_the_interval_covers_the_true_median(sigma, count):
    random, covered = np.random.default_rng(5), 0
    for _ in range(300):
        runs = 100.0 * np.exp(sigma * random.standard_normal(count))
        row = node(
            "n",
            latency_us=float(np.median(runs)),
            sample_count=count,
            corrected_std_us=float(np.std(runs, ddof=1)),
            corrected_min_us=float(runs.min()),
            corrected_p95_us=float(np.percentile(runs, 95)),
        )
        low, _, high = interval_us(measured(tables([row]), SUMMARY).graph.nodes["n"])
        covered += low <= 100.0 <= high
    assert covered / 300 > 0.92


@pytest.mark.slow
@given(graphs(), st.sampled_from(sorted(RULES)))
def test_no_gain_is_more_than_removing_the_nodes_gives(made, name):
    times, edges, shares = made
    kinds = ("Conv", "Relu", "MatMul", "Add", "LayerNormalization", "Cast", "Transpose")
    rows = tables(
        [
            node(
                str(index),
                kinds[index],
                time,
                latency_share=0.5,
                bound="memory" if index % 2 else "compute",
                roof_share=2 * share,
                uses_thread_pool=index % 3 == 0,
                pool_balance_share=share,
                macs=61,
                executed_macs=71,
            )
            for index, (time, share) in enumerate(zip(times, shares, strict=True))
        ],
        [(str(one), str(other)) for one, other in edges],
        gap_us=-5.0,
    )
    for finding in findings([RULES[name]], measured(rows, SUMMARY)):
        removed = sum(times[int(one)] for one in (*finding.subject.nodes, *finding.subject.staying))
        assert -1e-6 <= finding.gain.gain_us <= removed * (1 + 1e-9) + 1e-4


def test_those_that_gain_most_come_first():
    slow = {"bound": "memory", "roof_share": 0.1}
    kinds = zip(("Relu", "Softmax", "CumSum"), (70.0, 310.0, 130.0), strict=True)
    rows = tables([node(str(index), kind, time, **slow) for index, (kind, time) in enumerate(kinds)])
    found = findings(RULES.values(), measured(rows, SUMMARY))
    gains = [finding.gain.gain_us or 0.0 for finding in found]
    assert all(before >= after for before, after in pairwise(gains))
    assert found[0].subject.name == "1"
    assert found[0].gain.gain_us > found[1].gain.gain_us
