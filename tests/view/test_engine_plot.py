"""The picture and the text of an engine on a board: what was routed and simulated, and what was not."""

from __future__ import annotations

import pytest

from common.view.findings import Findings
from common.view.plan.engine_text import engine_report, engine_sentence
from common.view.plan.pictures.engine_plot import MOST_LAYERS, draw_engine
from common.view.report.summary_text import answer_of
from tests.support.drawn import head, outside

CELLS = [
    {
        "cell_kind": kind,
        "planned_count": planned,
        "routed_count": routed,
        "budget_count": 0.7 * total,
        "total_count": total,
    }
    for kind, planned, routed, total in (
        ("lut", 11_862.0, 12_100.0, 83_640.0),
        ("ff", 9_625.0, 9_625.0, 83_640.0),
        ("block_ram", 39.0, 39.0, 208.0),
        ("multiplier", 48.0, 48.0, 156.0),
    )
]
SUMMARY = {
    "board": "ulx3s",
    "part": "LFE5U-85F-6BG381C",
    "engine_design": "engine_4x4x1_int8",
    "expected_clock_pessimistic_mhz": 52.0,
    "expected_clock_likely_mhz": 65.0,
    "expected_clock_optimistic_mhz": 81.0,
    "closed_clock_mhz": 70.5,
    "planned_us": 3_000.0,
    "replanned_us": 2_766.0,
}


def call(index, planned, simulated):
    causes = {"computing": simulated - 50, "load": 40, "store": 10} if simulated else {}
    return {
        "call_index": index,
        "source_node": f"/stage{index}/conv",
        "planned_cycles": float(planned),
        "planned_us": planned / 65,
        "simulated_call_cycles": simulated,
        "simulated_us": simulated / 65 if simulated else None,
        "cycles_by_cause": causes,
    }


CALLS = [call(index, 1_000 + 100 * index, 1_020 + 100 * index) for index in range(5)]
PLANNED = [call(index, 1_000, None) for index in range(5)]
UNROUTED = [{**row, "routed_count": None} for row in CELLS]
NOT_BUILT = {**SUMMARY, "closed_clock_mhz": None, "replanned_us": None}


def test_the_title_has_the_clock_that_closed_or_that_is_expected():
    assert engine_sentence(SUMMARY).endswith("2.77 ms planned at the 70.5 MHz that closed")
    assert engine_sentence(NOT_BUILT).endswith("3.00 ms planned at 65.0 MHz expected")
    title, subtitle = head(draw_engine(CALLS, CELLS, SUMMARY))
    assert title == engine_sentence(SUMMARY)
    assert "(-1.6%)" in subtitle  # 6,000 cycles planned, 6,100 simulated
    assert "not simulated" in head(draw_engine(PLANNED, UNROUTED, NOT_BUILT))[1]


def test_bars_are_shares_of_the_device_and_times_of_layers():
    cells, calls = draw_engine(CALLS, CELLS, SUMMARY).axes
    lengths = {round(bar.get_width(), 6) for bar in cells.patches}
    assert {round(48 / 156, 6), round(12_100 / 83_640, 6), round(11_862 / 83_640, 6)} <= lengths
    assert [round(bar.get_width() * 65) for bar in calls.patches[:2]] == [1_000, 1_020]
    assert len(draw_engine(PLANNED, UNROUTED, NOT_BUILT).axes[1].patches) == 5


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, MOST_LAYERS + 20])
def test_nothing_is_drawn_outside(count):
    calls = [
        {**call(index, 1_000 + index, 1_000), "source_node": f"/a/long/name/of/a/layer/{index}"}
        for index in range(count)
    ]
    figure = draw_engine(calls, CELLS, SUMMARY)
    assert not outside(figure)
    assert (f"the {MOST_LAYERS} longest" in figure.axes[1].get_title(loc="left")) is (count > MOST_LAYERS)


def test_the_text_says_what_each_layer_waits_for():
    text = engine_report(CALLS, CELLS, SUMMARY)
    assert "clock: 52.0 to 81.0 MHz expected, 65.0 likely; 70.5 MHz closed" in text
    assert "cycles: 6,000 planned, 6,100 simulated (-1.6%)" in text
    assert "load 4 %" in text
    assert "-2.0%" in text  # LUTs: 11,862 of 12,100
    assert "closed" not in engine_report(PLANNED, UNROUTED, NOT_BUILT)


def test_the_report_answers_with_the_engine_where_nothing_was_profiled():
    assert answer_of(Findings({"engine_calls": CALLS}, {"engine_summary": SUMMARY})) == engine_sentence(SUMMARY)
