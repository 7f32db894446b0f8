"""Findings and mends as text: near misses are apart, and no gain is shown on a disturbed host."""

from __future__ import annotations

from common.view.trace.bottleneck_tables import bottleneck_report, mend_report

BUSY = "the host was busy"


def finding(rule, gain_us=230.0, **changes):
    return {
        "finding": rule,
        "is_near_miss": False,
        "finding_subject": f"node of {rule}",
        "executed_nodes": [f"node of {rule}"],
        "gain_us": gain_us,
        "gain_low_us": gain_us / 2,
        "gain_high_us": 2 * gain_us,
        "doubts": [],
        "remedy": f"Mend {rule}.",
        **changes,
    }


def test_near_misses_come_after_the_findings_and_have_no_remedy():
    text = bottleneck_report([finding("einsum"), finding("padding", is_near_miss=True)], 1000.0)
    first, near = text.split("Near misses")
    assert "node of einsum" in first
    assert "node of padding" in near
    assert "einsum: Mend einsum." in text
    assert "Mend padding." not in text
    assert "23.0 %" in first


def test_near_misses_alone_are_no_bottleneck():
    text = bottleneck_report([finding("padding", is_near_miss=True)], 1000.0)
    assert text.startswith("No bottleneck found by the rules.")


def test_no_gain_is_shown_on_a_disturbed_host():
    text = bottleneck_report([finding("einsum", doubts=[BUSY])], 1000.0)
    assert "node of einsum" in text
    assert f"No gain is shown, because the times decide nothing: {BUSY}" in text
    assert not any(figure in text for figure in ("230", "115", "460", "23.0 %"))


def trial(**changes):
    cells = dict.fromkeys(("gain_low_us", "gain_high_us", "measured_gain_low_us", "measured_gain_high_us"), 37.0)
    return {
        "finding": "einsum",
        "mend_outcome": "gains",
        "mend_problem": "",
        "mends": ["expand_einsum"],
        "gain_us": 37.0,
        "measured_gain_us": 41.0,
        "doubts": [],
        **cells,
        **changes,
    }


def test_a_mend_is_measured_where_its_prediction_is_doubted():
    assert "37 µs" in mend_report([trial()])
    text = mend_report([trial(doubts=[BUSY], measured_gain_low_us=40.0, measured_gain_high_us=43.0)])
    assert "37" not in text
    assert "41" in text
    assert BUSY in text
