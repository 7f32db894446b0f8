"""Pictures and tables of the design space: their words and numbers, long sweeps, and one design alone."""

from itertools import pairwise

import pytest

from common.artifacts.frames import records
from common.view.design.design_text import design_names
from common.view.design.design_text import design_tables as html_of
from common.view.design.energy_plot import draw_design_energy
from common.view.design.front_plot import MOST_LISTED, draw_design_front
from common.view.design.nest_plot import Loops, draw_design_nest, nest
from common.view.design.product_plot import draw_design_buffer, draw_design_convergence, swept_memory
from common.view.style import render
from tests.support.drawn import boxes, head, outside, texts
from tests.support.tables.design import (
    NEST,
    compared,
    convergence,
    design_tables,
    group,
    groups,
    improvements,
    layer,
    mappings,
    misfit,
    point,
    points,
    swept,
)

SWEEP = points(swept())


def overlapping_numbers(figure):
    """Pairs of numbers of designs that overlap."""
    own = [
        (text.get_text(), box)
        for text, box in boxes(figure)
        if text.get_text().isdigit() and text.get_weight() == "bold"
    ]
    return [(a, b) for n, (a, one) in enumerate(own) for b, other in own[n + 1 :] if one.overlaps(other)]


def curve(figure, label):
    """Places of a line."""
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == label)
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_names_are_the_sizes_that_tell_designs_apart():
    names = design_names(SWEEP)
    assert names.of["gemmini scratchpad_kib=64 array=8x8"] == "64, 8x8"
    assert names.explanation == "scratchpad_kib, array"
    assert design_names(points([point("gemmini buffer_kib=8")])) == ({"gemmini buffer_kib=8": "buffer_kib=8"}, "")
    assert design_names(points([point("gemmini")])) == ({"gemmini": "gemmini"}, "")


@pytest.mark.slow
def test_the_front_names_the_best_and_lists_what_none_beats():
    rows = [*swept(), point("gemmini scratchpad_kib=32 array=4x4", modelled_cycles=1e9, is_pareto=False)]
    figure = draw_design_front(points([*rows, misfit("gemmini scratchpad_kib=1 array=8x8")]))
    title, subtitle = head(figure)
    assert title.startswith(
        "gemmini scratchpad_kib=128 array=16x16 has the least product of energy and cycles; 6 of 7 "
    )
    assert "names are scratchpad_kib, array" in subtitle and "nothing fits in 1 more" in subtitle
    found = texts(figure)
    assert found.count("128, 16x16") == 1
    # 1e9 / 128 pJ in 1e9 / 256 cycles on 256 / 512 + 1 mm²
    assert "3.05e+13: 7.81 µJ, 3.91 M, 1.50 mm²" in found
    costs, areas, _ = figure.axes
    assert [len(line.get_xdata()) for line in costs.lines[:2]] == [1, 6]  # beaten, and on the front
    within = areas.lines[-1]
    assert list(within.get_ydata()) == sorted(within.get_ydata(), reverse=True)


def test_a_front_without_areas_is_of_cycles_and_energy():
    figure = draw_design_front(points([row | {"chip_mm2": None} for row in swept()]))
    assert len(figure.axes) == 2
    assert "no design is better in cycles or energy and" in head(figure)[1]
    assert not [text for text in texts(figure) if "mm²" in text]


def test_the_curves_are_the_least_of_each_size():
    figure = draw_design_buffer(SWEEP)
    least = {kib: 1e18 / 16**2 / kib for kib in (32.0, 64.0, 128.0)}
    assert curve(figure, "best schedule found") == pytest.approx(least)
    assert curve(figure, "without fusion") == pytest.approx({kib: 1.25 * edp for kib, edp in least.items()})
    assert curve(figure, "floor: none is below") == pytest.approx({kib: edp / 1.5 for kib, edp in least.items()})
    saved = "fusion saves 20.0 %, and the product is 50.0 % above the floor"
    assert head(figure)[0] == f"A scratchpad of 128 KiB is best: {saved}"


def test_a_bound_that_is_reached_and_curves_that_are_not_known_are_said():
    rows = [row | {"unfused_edp_pj_cycles": None, "bound_edp_pj_cycles": row["edp_pj_cycles"]} for row in swept()]
    figure = draw_design_buffer(points(rows))
    assert head(figure)[0] == "A scratchpad of 128 KiB is best: the floor is reached"
    assert "without fusion" not in texts(figure)


def test_memories_that_only_follow_the_array_are_not_swept():
    assert swept_memory(SWEEP) == "scratchpad"
    assert swept_memory(points(swept(scratchpads=(64,)))) is None
    assert draw_design_buffer(points(swept(scratchpads=(64,)))) is None


def test_energy_bars_add_up_to_the_designs_and_their_groups():
    rows = [
        point("gemmini buffer_kib=8", modelled_energy_pj=60e6),
        point("gemmini buffer_kib=16", modelled_energy_pj=30e6),
    ]
    own = [
        group("gemmini buffer_kib=8", 0, "a", 60e6),
        group("gemmini buffer_kib=16", 0, "b", 12e6, layers=3),
        group("gemmini buffer_kib=16", 1, "c", 18e6),
    ]
    figure = draw_design_energy(points(rows), groups(own))
    designs, largest = figure.axes
    assert [label.get_text() for label in designs.get_yticklabels()] == ["buffer_kib=16", "buffer_kib=8"]
    assert [label.get_text() for label in largest.get_yticklabels()] == ["c", "b +2"]
    assert sum(bar.get_width() for bar in designs.patches) == pytest.approx(90e-6)
    assert sum(bar.get_width() for bar in largest.patches) == pytest.approx(30e-6)
    assert {"60.0 µJ", "30.0 µJ", "18.0 µJ", "12.0 µJ"} <= set(texts(figure))
    assert head(figure)[0] == "An inference on gemmini buffer_kib=16 takes 30.0 µJ, 33 % of it in dram"


def test_many_groups_share_a_bar_and_parts_without_energy_have_none():
    rows = [group("gemmini", number, f"node{number}", 1e6 + number) for number in range(40)]
    rows = [row | {"energy_parts_pj": row["energy_parts_pj"] | {"registers": 0.0}} for row in rows]
    figure = draw_design_energy(points([point("gemmini")]), groups(rows))
    (own,) = figure.axes
    labels = [label.get_text() for label in own.get_yticklabels()]
    assert labels[0] == "node39" and labels[-1] == "28 other groups"
    assert "multipliers" in texts(figure) and "registers" not in texts(figure)


def lines(figure):
    """Texts from left to right in lines from the top."""
    rows = {}
    for text, box in boxes(figure):
        rows.setdefault(round(box.y0 + box.y1), []).append((box.x0, text.get_text()))
    return [[text for _, text in sorted(row)] for _, row in sorted(rows.items(), reverse=True)]


def test_a_mapping_is_read_from_dram_to_the_registers():
    assert list(nest(layer("gemmini", "a", 6e6, mapping=NEST))) == [
        Loops("dram", ("weight", "input", "output"), (("K", 8), ("P", 7)), ()),
        Loops("scratchpad", ("weight", "input"), (), (("K", 4),)),
        Loops("accumulator", ("output",), (("R", 3), ("S", 3), ("Q", 28), ("C", 2)), (("C", 16),)),
        Loops("registers", ("weight",), (("P", 4),), ()),
    ]


@pytest.mark.slow
def test_the_nest_is_that_of_the_costliest_contraction_of_the_best_design():
    rows = [layer("gemmini", "small", 2e6, runs=2), layer("gemmini", "large", 6e6), layer("other", "none", 9e9)]
    best = points([point("gemmini", modelled_energy_pj=10e6), point("other", modelled_energy_pj=9e9)])
    figure = draw_design_nest(best, mappings(rows))
    assert head(figure)[0] == "large takes 60 % of the energy, and uses 25 % of the array"
    found = lines(figure)
    drawn = [line[0] for line in found if line[0].startswith(("for ", "in space "))]
    loops = ("k in 8", "p in 7", "r in 3", "s in 3", "q in 28", "c in 2", "p in 4")
    assert [text for text in drawn if text.startswith("for")] == [f"for {loop}" for loop in loops]
    assert [text for text in drawn if text.startswith("in")] == ["in space k in 4", "in space c in 16"]
    assert ["dram", "holds weight, input, output", "1.02 k", "2.04 k", "4.09 k", "33 %"] in found
    assert ["registers", "holds weight", "8.19 k", "–", "–", "17 %"] in found
    assert found[-1] == ["multiply, and add to the output"]
    assert outside(figure) == []


@pytest.mark.slow
def test_a_deep_nest_stays_inside():
    words = " ".join(f"{loop}2" for loop in "NGKCPQRS")
    mapping = f"L3[WIO] {words} - L2[WI] {words} K4X - L1[O] {words} C16X - L0[W] {words}"
    figure = draw_design_nest(points([point("gemmini")]), mappings([layer("gemmini", "a", 11e6, mapping=mapping)]))
    assert outside(figure) == []
    tops = sorted(box.y0 for text, box in boxes(figure) if text.get_text().startswith(("for ", "in space")))
    heights = [box.height for text, box in boxes(figure) if text.get_text().startswith("for ")]
    assert len(heights) == 4 * 8
    assert min(b - a for a, b in pairwise(tops)) >= 0.9 * min(heights)


def test_a_design_without_mappings_has_no_nest():
    assert draw_design_nest(points([point("fa-dosa")]), mappings([])) is None


@pytest.mark.slow
def test_each_search_is_a_line_of_steps_down_to_its_last_evaluation():
    searches = {"random": ([9e12, 6e12, 5.6e12], 4000), "cma": ([8e12, 5.2e12], 3000), "exact": ([5e12], 7000)}
    rows = [
        point("gemmini", search_engine=engine, edp_pj_cycles=best[-1], bound_edp_pj_cycles=5e12, evaluation_count=count)
        for engine, (best, count) in searches.items()
    ]
    steps = [row for engine, (best, _) in searches.items() for row in convergence("gemmini", engine, best)]
    figure = draw_design_convergence(points(rows[:2]), improvements(steps))
    assert (
        head(figure)[0]
        == "cma comes to 4.0 % above the floor after 10 evaluations; random ends 12.0 % above it after 100"
    )
    assert curve(figure, "random: 12.0 % above") == pytest.approx({1: 1.8, 10: 1.2, 100: 1.12, 4000: 1.12})
    assert curve(figure, "cma: 4.0 % above") == pytest.approx({1: 1.6, 10: 1.04, 3000: 1.04})
    assert outside(figure) == []
    everything = draw_design_convergence(points(rows), improvements(steps))
    assert head(everything)[0].startswith(
        "exact reaches the floor after 1 evaluations; cma ends 4.0 % above it after 10"
    )
    assert draw_design_convergence(points(rows), improvements([])) is None
    alone = convergence("gemmini", "exact", searches["exact"][0])
    assert draw_design_convergence(points(rows[2:]), improvements(alone)) is None


def test_several_searches_are_compared_in_the_report():
    rows = [point("gemmini"), point("gemmini", search_engine="random", is_complete=False)]
    text = html_of({"design_points": records(points(rows)), "design_comparison": records(compared(rows))})
    assert "<td>random</td>" in text and "<td>stopped</td>" in text
    assert text.count("<table ") == 2
    alone = {"design_points": records(points(rows[:1])), "design_comparison": records(compared(rows[:1]))}
    assert html_of(alone).count("<table ") == 1


LONG = points(swept(scratchpads=tuple(range(1, 26)), arrays=(4, 8, 16, 32)))


@pytest.mark.slow
@pytest.mark.parametrize("table", [SWEEP, LONG], ids=["6 designs", "100 designs"])
def test_pictures_keep_their_texts_inside_and_their_numbers_apart(table):
    rows = [group(design, n, f"/stage{n}/block/conv{n}/Conv", 1e6) for design in table["design"] for n in range(9)]
    front, buffer = draw_design_front(table), draw_design_buffer(table)
    energy = draw_design_energy(table, groups(rows))
    assert [outside(figure) for figure in (front, buffer, energy)] == [[], [], []]
    assert overlapping_numbers(front) == []
    listed = [text for text in texts(front) if "J, " in text and "mm²" in text]
    assert len(listed) == min(MOST_LISTED, len(table))
    assert render(front) == render(draw_design_front(table))


def test_one_design_alone_has_no_front_and_no_curve():
    one = points([point("gemmini")])
    assert draw_design_front(one) is None
    assert draw_design_buffer(one) is None
    assert draw_design_energy(one, groups([])) is None
    figure = draw_design_energy(one, groups([group("gemmini", 0, "a", 11e6)]))
    assert len(figure.axes) == 1
    assert outside(figure) == []


def test_the_report_has_the_designs_and_the_best_ones_mappings():
    tables = {name: records(table) for name, table in design_tables().items() if name != "design_summary"}
    text = html_of(tables)
    assert text.count("<table ") == 3
    assert text.index("gemmini scratchpad_kib=128 array=16x16") < text.index("gemmini scratchpad_kib=64 array=16x16")
    assert text.count("<td>/conv1/Conv</td>") == 3  # a contraction, and the first and the last layer of a group
    assert html_of({}) == ""
    long = html_of({"design_points": records(LONG)})
    assert "60 of 100 rows; all of them in design_points.csv" in long
    assert "too small" in html_of({"design_points": records(points([misfit("gemmini buffer_kib=1")]))})
