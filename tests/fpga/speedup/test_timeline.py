"""From a schedule to totals, intervals and resources: a plan small enough to draw by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.fpga.device.board_files import load_board
from common.fpga.device.resources import RESOURCE_NAMES, Resources
from common.fpga.offload.problem import EngineType, Item, OffloadFlow, Option, Problem, RegionBudget
from common.fpga.offload.schedule import Assignment, KernelCall, evaluate
from common.fpga.planning.board_rows import resource_use, timeline
from common.fpga.speedup.totals import case_totals
from common.intervals import ThreePoint
from tests.support.paths import CONFIGS, ROOT

U280 = ROOT / "configs" / "boards" / "u280.yaml"


def known(value):
    return ThreePoint.exactly(value)


def problem(launch_us=13):
    """A (17 us) feeds B (101 us, 29 us on the card) and C (43 us); both feed D (11 us). B goes to the card."""
    free = {"h2d_convert_us": known(2), "d2h_convert_us": known(3)}
    return Problem(
        items=(Item("A", 17), Item("B", 101), Item("C", 43), Item("D", 11)),
        flows=(
            OffloadFlow("x", None, (0,), is_output=False, h2d_us=known(99), d2h_us=known(99)),
            OffloadFlow("a", 0, (1, 2), is_output=False, h2d_us=known(5), d2h_us=known(5), **free),
            OffloadFlow("b", 1, (3,), is_output=False, h2d_us=known(7), d2h_us=known(7), **free),
            OffloadFlow("c", 2, (3,), is_output=False, h2d_us=known(7), d2h_us=known(7)),
            OffloadFlow("y", 3, (), is_output=True, h2d_us=known(99), d2h_us=known(99)),
        ),
        engines=(EngineType("array", Resources(dsp=1), spans_regions=False),),
        options=(Option("B", (1,), 0, known(29), known(launch_us), 1_000),),
        regions=(RegionBudget("SLR0", Resources(dsp=1)),),
        memory_channels=1,
        memory_capacity_bytes=10_000,
    )


PLAN = Assignment((KernelCall(0),))


def test_totals_of_a_schedule_by_hand():
    # A to 17; its tensor over the link to 22, converted to 24; launch and kernel to 24 + 13 + 29 = 66; converted to
    # 69, over the link to 76; D to 87. C runs from 17 to 60 meanwhile.
    schedule = evaluate(problem(), PLAN)
    found = case_totals(schedule, evaluate(problem(launch_us=0), PLAN).finish_us)
    assert found.finish_us == 87
    sums = (found.kernel_us, found.transfer_us, found.conversion_us, found.launch_us)
    assert sums == (29, 12, 5, 13)
    assert found.busy_us == {"host": 17 + 43 + 11, "h2d": 5, "d2h": 7, "array": 42}
    assert found.launch_count == 1
    # 71 + 29 + 12 + 5 + 13 = 130, of which C's 43 are hidden
    assert found.overlap_us(71) == 43
    assert found.without_launch_us(71) == 74


def test_without_a_second_schedule_overlap_is_taken_to_hide_launches_first():
    found = case_totals(evaluate(problem(), PLAN))
    assert found.without_launch_us(71) == 87  # C's 43 us could have hidden all 13
    assert replace(found, finish_us=127).without_launch_us(71) == 127 - 10  # 130 - 127 = 3 are hidden


def test_intervals_before_and_after_by_hand():
    spans = timeline(problem().items, evaluate(problem(), PLAN))
    drawn = {
        (span["scenario"], span["lane"], span["activity"], span["item"]): (
            span["interval_start_us"],
            span["interval_finish_us"],
        )
        for span in spans
    }
    assert drawn == {
        ("before", "host", "host", "A"): (0, 17),
        ("before", "host", "host", "B"): (17, 118),
        ("before", "host", "host", "C"): (118, 161),
        ("before", "host", "host", "D"): (161, 172),
        ("after", "host", "host", "A"): (0, 17),
        ("after", "h2d", "transfer", "a"): (17, 22),
        ("after", "host", "host", "C"): (17, 60),
        ("after", "convert-in", "conversion", "a"): (22, 24),
        ("after", "array", "launch", "B"): (24, 37),
        ("after", "array", "kernel", "B"): (37, 66),
        ("after", "convert-out", "conversion", "b"): (66, 69),
        ("after", "d2h", "transfer", "b"): (69, 76),
        ("after", "host", "host", "D"): (76, 87),
    }
    assert [span["interval_index"] for span in spans] == list(range(13))


def test_what_takes_no_time_is_not_drawn():
    spans = timeline(problem().items, evaluate(problem(launch_us=0), PLAN))
    assert all(span["interval_finish_us"] > span["interval_start_us"] for span in spans)
    assert "launch" not in {span["activity"] for span in spans}


@pytest.fixture(scope="module")
def u280():
    return load_board("u280", CONFIGS / "boards")


def test_resources_by_region_and_of_the_board(u280):
    names = [region.name for region in u280.regions]
    used = {names[0]: Resources(lut=101, dsp=7), names[1]: Resources(dsp=11)}
    rows = {
        (row["region"], row["resource"]): row
        for row in resource_use(u280, used, Resources(dsp=1_000, memory_channels=8))
    }
    assert len(rows) == (len(RESOURCE_NAMES) - 1) * len(names) + len(RESOURCE_NAMES)
    assert rows[names[0], "dsp"]["used_count"] == 7
    assert rows[names[-1], "dsp"]["used_count"] == 0
    assert rows["board", "dsp"]["used_count"] == 7 + 11 + 1_000
    assert rows["board", "memory_channels"]["used_count"] == 8
    assert rows["board", "dsp"]["total_count"] == 9_024
    assert rows["board", "dsp"]["usable_count"] == 2_733 + 2_877 + 2_880
    for row in rows.values():
        assert row["budget_count"] <= row["usable_count"] <= row["total_count"]


# --- any schedule ---------------------------------------------------------------------------------------------------


@st.composite
def schedules(draw):
    """Items in a row, each reading some before it; some of them on either of two engines."""
    count = draw(st.integers(1, 7))
    times = st.floats(0.1, 100)
    items = tuple(Item(f"n{index}", draw(times)) for index in range(count))
    reads = [draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set() for index in range(count)]
    flows = tuple(
        OffloadFlow(
            f"t{index}",
            index,
            tuple(reader for reader in range(count) if index in reads[reader]),
            is_output=index == count - 1,
            h2d_us=known(draw(times)),
            d2h_us=known(draw(times)),
            h2d_convert_us=known(draw(st.floats(0, 9))),
            d2h_convert_us=known(draw(st.floats(0, 9))),
        )
        for index in range(count)
    )
    moved = draw(st.sets(st.integers(0, count - 1), min_size=1))
    options = tuple(
        Option(f"n{index}", (index,), draw(st.integers(0, 1)), known(draw(times)), known(draw(st.floats(0, 50))), 1)
        for index in sorted(moved)
    )
    engines = tuple(EngineType(name, Resources(dsp=1), spans_regions=False) for name in ("one", "two"))
    regions = (RegionBudget("SLR0", Resources(dsp=2)),)
    made = Problem(items, flows, engines, options, regions, memory_channels=1, memory_capacity_bytes=1_000)
    return made, evaluate(made, Assignment(tuple(KernelCall(option) for option in range(len(options)))))


@pytest.mark.slow
@given(schedules())
def test_whatever_the_schedule_its_terms_add_up_and_hide_no_more_than_there_is(drawn):
    _, schedule = drawn
    found = case_totals(schedule)
    rest_us = found.busy_us["host"]
    parts = (found.kernel_us, found.transfer_us, found.conversion_us, found.launch_us)
    assert found.overlap_us(rest_us) >= -1e-6
    assert rest_us + sum(parts) - found.overlap_us(rest_us) == pytest.approx(schedule.finish_us)
    assert all(busy <= schedule.finish_us + 1e-6 for busy in found.busy_us.values())
    assert found.without_launch_us(rest_us) <= schedule.finish_us


@pytest.mark.slow
@given(schedules())
def test_whatever_the_schedule_its_intervals_carry_its_time(drawn):
    made, schedule = drawn
    spans = timeline(made.items, schedule)
    sums = dict.fromkeys(("host", "launch", "kernel", "transfer", "conversion"), 0.0)
    lanes = {}
    for span in (span for span in spans if span["scenario"] == "after"):
        sums[span["activity"]] += span["interval_finish_us"] - span["interval_start_us"]
        lanes.setdefault(span["lane"], []).append((span["interval_start_us"], span["interval_finish_us"]))
    totals = schedule.totals
    expected = (totals.host_us, totals.launch_us, totals.kernel_us, totals.h2d_us + totals.d2h_us, totals.convert_us)
    assert list(sums.values()) == pytest.approx(list(expected), abs=1e-6)
    for lane, found in lanes.items():
        ends = zip(sorted(found), sorted(found)[1:], strict=False)
        assert lane.startswith("convert") or all(one[1] <= other[0] + 1e-6 for one, other in ends)
    before = [span for span in spans if span["scenario"] == "before"]
    assert before[-1]["interval_finish_us"] == pytest.approx(sum(item.host_us for item in made.items))
