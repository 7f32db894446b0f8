"""Pictures and text of the offload plan: parts that add up, lanes in order, what the words say."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from common.artifacts.frames import records
from common.messages.errors import UpstreamError
from common.precision.judgement.measures import limits
from common.view.plan.answer.cases import HARDWARE, Terms, interval, probability, said_of, value_text
from common.view.plan.answer.headline import headline
from common.view.plan.answer.uncertainty_text import deciding_lines, verdict_statements
from common.view.plan.fpga_text import (
    ENGINES,
    FRONT,
    TIMES,
    amdahl_table,
    break_even,
    comparison_table,
    offload_report,
    operators,
    verdict_lines,
)
from common.view.plan.pictures.front_plot import draw_front
from common.view.plan.pictures.offload_plot import HIDDEN, PARTS, bars, draw_offload
from common.view.plan.pictures.resource_plot import draw_resources
from common.view.plan.pictures.timeline_plot import draw_timeline, join, lane_order
from common.view.plan.pictures.what_if_plot import draw_what_if
from common.view.plan.replicas_text import replica_headline, replica_report
from common.view.plan.verdict_text import offload_lines, outlook
from common.view.plan.what_if_text import what_if_report
from common.view.style import render
from common.view.text import WIDTH
from tests.support.drawn import head, outside, texts
from tests.support.tables.offload import board, comparison, front, plan, speedup, timeline, uncertainty, verdicts

TOTAL_US, TOTAL_UJ = 71_011.0, 428_009.0
CASES = ("pessimistic", "likely", "optimistic")


@pytest.fixture(scope="module")
def gains():
    return speedup(TOTAL_US, TOTAL_UJ)


@pytest.fixture(scope="module")
def kernels():
    return plan(TOTAL_US)


# --- bars of before and after ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["latency", "energy"])
def test_the_parts_of_each_bar_sum_to_its_total(gains, objective):
    terms = Terms.of(records(gains))
    totals = [sum(parts.values()) for parts in bars(terms, objective).values()]
    expected = [terms[objective, "host_total"]["likely"], *(terms[objective, "new_total"][case] for case in CASES)]
    assert totals == pytest.approx(expected)


def test_the_drawn_widths_are_the_parts_and_the_hidden_time_lies_over_their_end(gains):
    latency = draw_offload(records(gains)).axes[0]
    likely = list(bars(Terms.of(records(gains)), "latency").values())[2]
    drawn = [patch for patch in latency.patches if patch.get_y() == pytest.approx(2 - 0.31)]
    widths = sorted(patch.get_width() for patch in drawn)
    hidden_ms = -likely[HIDDEN] * 1e-3
    parts_ms = [value * 1e-3 for name, value in likely.items() if name != HIDDEN]
    assert widths == pytest.approx(sorted([*parts_ms, hidden_ms, hidden_ms]))  # white cover and hatch
    assert max(patch.get_x() + patch.get_width() for patch in drawn) == pytest.approx(sum(parts_ms))
    solid = [line for line in latency.lines if line.get_linestyle() == "-"]
    marks = [line.get_xdata()[0] for line in solid if list(line.get_ydata()) == [2 - 0.31, 2 + 0.31]]
    assert marks == pytest.approx([sum(likely.values()) * 1e-3])


@pytest.mark.parametrize("objective", [0, 1])
def test_each_bar_is_compared_with_the_host_in_its_own_case(gains, objective):
    """A host that is slower in one case moves the mark of that bar alone, and the speedup beside it."""
    rows = gains.copy()
    name = ("latency", "energy")[objective]
    host = (rows["objective"] == name) & (rows["term"] == "host_total")
    likely = float(rows.loc[host, "likely"].iloc[0])
    rows.loc[host, "optimistic"] = 3 * likely
    axes = draw_offload(records(rows)).axes[objective]
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() != "-"]
    scale = (1e-3, 1e-6)[objective]
    assert dashed == pytest.approx([scale * likely * factor for factor in (1, 1, 1, 3)])
    totals = [sum(parts.values()) for parts in bars(Terms.of(records(rows)), name).values()]
    labels = [text.get_text() for text in axes.texts]
    for label, total, factor in zip(labels[1:], totals[1:], (1, 1, 3), strict=True):
        assert float(label.split(", ")[1].removesuffix("x")) == pytest.approx(factor * likely / total, rel=0.01)


@pytest.mark.parametrize("term", ["kernel_speedup", "host_total"])
def test_a_lost_term_is_named(gains, term):
    with pytest.raises(UpstreamError, match=rf"speedup\.csv: corrupt \(no row latency {term}\); rerun <speedup>"):
        draw_offload(records(gains[(gains["objective"] != "latency") | (gains["term"] != term)]))


def test_the_title_is_the_answer_and_each_panel_has_its_verdict(gains, kernels):
    """A title never claims more than the verdict: this plan is undecided."""
    tables = {"offload_verdict": records(verdicts(gains)), "offload_plan": records(kernels)}
    figure = draw_offload(records(gains), records(kernels), tables["offload_verdict"], headline(tables))
    # 1 / (0.4 + 0.6/1.6 + 0.003 + 0.002 + 0.011 - 0.003) = 1.269; 0.4 + 0.6/0.5 + 0.313 = 1.913
    assert head(figure) == [
        "Undecided whether to offload 52 Conv, 1 Gemm to a U280 in fp32: 1.3x faster, 90 % within 0.88 to 1.6, "
        "pays with probability 0.86",
        "K1 systolic-32x32x4-fp32, K2 streaming-16 on u280 in fp32 · estimated, not measured",
    ]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "latency undecided: 1.27x, 90 % within 0.881 to 1.56, pays with probability 0.86",
        "energy does not pay: 0.523x, 90 % within 0.311 to 0.810, pays with probability 0.01",
    ]
    assert {"with the card,\nleast gain", "with the card,\nmost gain"} <= set(texts(figure))


@pytest.mark.slow
def test_only_what_is_drawn_is_in_the_legend(gains, kernels):
    found = texts(draw_offload(records(gains), records(kernels)))
    assert {"conversion", "card static", "kernels: memory", "hidden by overlap", "end of the inference"} <= set(found)
    plain = gains[~gains["term"].isin(["conversion", "overlap"])]
    assert not {"conversion", "hidden by overlap", "end of the inference"} & set(
        texts(draw_offload(records(plain), records(kernels)))
    )


@pytest.mark.slow
def test_a_part_too_thin_to_be_seen_is_not_in_the_legend(gains, kernels):
    thin = gains.copy()
    thin.loc[thin["term"] == "conversion", list(CASES)] *= 1e-4
    assert "conversion" not in texts(draw_offload(records(thin), records(kernels)))


def test_no_two_parts_look_alike():
    assert len({(colour, hatch) for colour, hatch, _ in PARTS.values()}) == len(PARTS)


def test_a_plan_without_kernels_has_no_picture(gains):
    assert draw_offload(records(gains.assign(**dict.fromkeys(CASES, pd.NA))), None) is None


@pytest.mark.slow
def test_more_kernels_than_the_title_holds_are_counted(gains, kernels):
    many = pd.concat([kernels] * 3)
    assert " and 2 more on u280" in head(draw_offload(records(gains), records(many)))[1]
    assert head(draw_offload(records(gains)))[1] == "estimated, not measured"


def test_unknown_energy_leaves_latency_alone(gains):
    rows = gains.copy()
    rows.loc[rows["objective"] == "energy", list(CASES)] = pd.NA
    assert len(draw_offload(records(rows)).axes) == 1


# --- timeline -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_timeline_has_a_lane_for_each_resource_and_says_how_busy_it_is():
    figure = draw_timeline(timeline())
    found = texts(figure)
    assert head(figure) == [
        "One inference takes 172 µs on the host and 87.0 µs with the card, likely case",
        "1 of 4 steps of the host move to the card, in 1 call · likely case, estimated, not measured",
    ]
    # 71, 42, 5 and 7 of 87 us
    assert {"172 µs, 100 %", "71.0 µs, 82 %", "42.0 µs, 48 %", "5.00 µs, 6 %", "7.00 µs, 8 %"} <= set(found)
    assert outside(figure) == []


def test_lanes_follow_the_way_of_the_data():
    table = timeline()
    busier = table.iloc[[9]].assign(lane="second", interval_finish_us=86.0)
    after = pd.concat([table, busier])
    order = ["host", "h2d", "convert-in", "second", "array", "convert-out", "d2h"]
    assert lane_order(after[after["scenario"] == "after"]) == order


def test_every_microsecond_is_drawn_once():
    axes = draw_timeline(timeline()).axes[0]
    extents = [path.get_extents() for collection in axes.collections for path in collection.get_paths()]
    width = sum(box.width for box in extents if box.width < 0.172 - 1e-9)  # without backgrounds
    table = timeline()
    assert width == pytest.approx(1e-3 * (table["interval_finish_us"] - table["interval_start_us"]).sum())


def test_bars_that_the_eye_cannot_part_are_one_unless_another_lies_between():
    rows = pd.DataFrame(
        {
            "interval_start_us": [30, 0, 10.5, 20.0, 20.3],
            "interval_finish_us": [40, 10, 20, 20.3, 30],
            "activity": ["launch", "launch", "launch", "kernel", "launch"],
            "item": ["e", "a", "b", "k", "d"],
        }
    )
    found = join(rows, 1.0)
    assert found.keys() == {"launch", "kernel"}
    extents = [(bar.start_ms, bar.length_ms) for bar in found["launch"]]
    assert [value for extent in extents for value in extent] == pytest.approx([0, 0.02, 0.0203, 0.0197])
    (kernel,) = found["kernel"]
    assert (kernel.start_ms, kernel.length_ms) == pytest.approx((0.02, 0.0003))
    assert [bar.items for bar in found["launch"]] == [("a", "b"), ("d", "e")]
    assert len(join(rows, 0.1)["launch"]) == 3


def test_the_gap_is_no_step_of_the_host():
    table = timeline()
    gaps = [table.iloc[[at]].assign(item="(gap)", interval_start_us=end, interval_finish_us=end + 500)
            for at, end in ((3, 172), (12, 87))]  # fmt: skip
    figure = draw_timeline(pd.concat([table, *gaps]))
    assert "1 of 4 steps of the host move to the card" in head(figure)[1]
    assert "gap between nodes" in texts(figure) and "gap between nodes" not in texts(draw_timeline(table))
    assert {"672 µs, 100 %", "571 µs, 97 %"} <= set(texts(figure))


DOUBTS = ["the host was busy", "one run in ten takes over 17% longer than the median"]


def test_every_doubt_stands_in_the_picture_of_a_plan_that_is_not_judged(gains, kernels):
    tables = {"offload_verdict": records(verdicts(gains, DOUBTS)), "offload_plan": records(kernels)}
    figure = draw_offload(records(gains), records(kernels), tables["offload_verdict"], headline(tables))
    assert head(figure) == ["Not judged: the host was busy (and 1 more)", "; ".join(DOUBTS)]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["latency not judged", "energy not judged"]


def test_a_copy_of_the_plan_says_each_verdict_and_every_doubt(gains, kernels):
    tables = {"offload_verdict": records(verdicts(gains, DOUBTS)), "offload_plan": records(kernels)}
    assert verdict_statements(tables) == [
        "Not judged: the host was busy (and 1 more)",
        *(f"{objective} not judged" for objective in ("latency", "energy", "throughput")),
        *(f"doubt: {doubt}" for doubt in DOUBTS),
    ]
    assert said_of(tables["offload_verdict"])["doubts"] == "; ".join(DOUBTS)


def test_a_plan_that_calls_no_kernel_has_no_timeline():
    table = timeline()
    assert draw_timeline(table[table["activity"] != "kernel"]) is None


def test_the_title_of_the_timeline_has_the_verdict_with_its_interval(gains):
    title = head(draw_timeline(timeline(), records(verdicts(gains))))[0]
    assert title.endswith(" with the card: undecided, 1.27x, 90 % within 0.881 to 1.56, pays with probability 0.86")


# --- what if --------------------------------------------------------------------------------------------------------


def asked(subject, setting, likely_us):
    gain = {"latency_speedup_factor": 9_000.0 / likely_us, "is_judged": True, "latency_pays_probability": 0.97}
    gain["is_other_host"] = False
    ends = {"latency_speedup_p5_factor": 1.2, "latency_speedup_p95_factor": 3.4}
    row = {"what_if_subject": subject, "what_if_setting": setting, "plan_latency_likely_us": likely_us}
    return {**row, **gain, **ends}


QUESTIONS = [
    asked("plan", "u280, int8", 3_000.0),
    asked("link", "0.5x the rate", 3_100.0),
    asked("link", "2x the rate", 2_900.0),
    asked("board", "u50", 5_000.0),
    asked("board", "v80", 2_000.0),
]


def test_the_tornado_has_the_widest_bar_above_and_each_bar_from_its_shortest_to_its_longest():
    figure = draw_what_if(QUESTIONS)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["board", "link"]
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert [end for bar in ends for end in bar] == pytest.approx([2.0, 3.0, 3.0, 5.0, 2.9, 3.0, 3.0, 3.1])
    assert {"u50", "v80", "0.5x the rate", "2x the rate"} <= set(texts(figure))
    assert head(figure)[0] == "One inference takes 3.00 ms as planned; the board changes it most"
    assert outside(figure) == []
    assert draw_what_if(QUESTIONS[:1]) is None
    assert head(draw_what_if(QUESTIONS, "Not judged: a doubt"))[0] == "Not judged: a doubt"


def test_the_table_of_questions_opens_with_what_changes_most():
    shown = what_if_report(QUESTIONS)
    assert " ".join(shown.split()).startswith(
        "The board changes one inference most: 2.00 ms with v80, 5.00 ms with u50; 3.00 ms as planned what if"
    )
    assert "1.20 to 3.40" in shown and "0.97" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_a_board_with_another_host_changes_nothing_that_the_times_of_the_profiled_one_show():
    """An Ultra96 is slowest, but what stays on the host would take its Arm longer than the x86 that was profiled."""
    unjudged = {"is_judged": False, "latency_speedup_p5_factor": None}
    arm = {**asked("board", "ultra96", 50_000.0), **unjudged, "is_other_host": True}
    doubted = [{**row, **unjudged} for row in QUESTIONS]
    for rows in ([*QUESTIONS, arm], [*doubted, arm]):
        shown, figure = what_if_report(rows), draw_what_if(rows)
        assert "5.00 ms with u50" in shown and "left out, as the profiled host is not theirs: ultra96" in shown
        assert "50.0 ms" in shown  # in the table, without a gain
        assert shown.startswith("Not judged: ") == (rows[0] in doubted)
        assert "not theirs: ultra96" in head(figure)[1]
        assert max(bar.get_x() + bar.get_width() for bar in figure.axes[0].patches) == pytest.approx(5.0)
    every = [{**row, "is_other_host": True} for row in (*doubted, arm)]  # the plan's board has such a host itself
    assert "50.0 ms with ultra96" in what_if_report(every)


# --- board ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_board_names_its_tightest_resource():
    figure = draw_resources(board())
    assert head(figure)[0] == "The tightest resource is DSP in SLR0: 94 % of the timing limit"  # 2,048 / 2,186.4
    found = texts(figure)
    assert {"LUT", "DSP", "memory channels", "2048 / 2186", "101k / 258k", "16 / 32"} <= set(found)
    assert "used, above the limit" not in found
    assert outside(figure) == []


def test_the_shell_and_the_limit_of_timing_are_drawn_to_scale():
    dsp = next(axes for axes in draw_resources(board()).axes if axes.get_title(loc="left") == "DSP")
    limits = {round(float(line.get_xdata()[0]), 4) for line in dsp.lines}
    assert limits == {round(2_186.4 / 2_880, 4)}
    hatched = [patch for patch in dsp.patches if patch.get_hatch()]
    assert [patch.get_width() for patch in hatched] == pytest.approx([1 - 2_733 / 2_880] * 4)
    used = [patch.get_width() for patch in dsp.patches if patch.get_height() < 0.4]
    assert used == pytest.approx([2_048 / 2_880, 0, 0, 2_048 / 8_640])


@pytest.mark.slow
def test_what_spans_regions_is_said_to_be_in_none():
    table = board()
    assert "span regions" not in head(draw_resources(table))[1]
    table["used_count"] = table["used_count"].where(~table["region"].str.startswith("SLR"), table["used_count"] // 2)
    figure = draw_resources(table)
    assert head(figure)[1].endswith("engines that span regions count for the board only")
    assert "at least 1024 / 2186" in texts(figure)
    assert not [text for text in texts(figure) if text.startswith("at least 2048")]  # the board's use is whole
    table.loc[table["region"].str.startswith("SLR"), "used_count"] = 0.0
    found = texts(draw_resources(table))
    assert not [text for text in found if text.startswith(("0 /", "SLR"))]  # nobody knows the use of a region
    assert found.count("board") == 6


def test_what_does_not_close_stands_out():
    found = texts(draw_resources(board(used_dsp=2_187)))
    assert "used, above the limit" in found


def test_a_plan_that_takes_nothing_has_no_picture():
    table = board()
    assert draw_resources(table.assign(used_count=0.0)) is None


@pytest.mark.slow
@pytest.mark.parametrize("draw", [lambda: draw_timeline(timeline()), lambda: draw_resources(board())])
def test_the_same_tables_give_the_same_bytes(draw):
    assert render(draw()) == render(draw())


# --- text -----------------------------------------------------------------------------------------------------------


def test_the_report_fits_the_terminal_and_has_all_its_tables(gains, kernels):
    tables = {"offload_plan": kernels, "speedup": gains, "offload_verdict": verdicts(gains)}
    tables = {name: records(table) for name, table in tables.items()}
    shown = offload_report({**tables, "offload_comparison": records(comparison(TOTAL_US))})
    assert max(len(line) for line in shown.splitlines()) <= WIDTH
    for word in (
        "Kernel",
        "Engine",
        "card power",
        "latency:",
        "energy:",
        "throughput:",
        "verdict",
        "greedy",
        "proven bound",
    ):
        assert word in shown
    assert "67 W (43 to 131)" in shown
    assert "53 Conv" not in shown
    assert "52 Conv" in shown


def test_a_comparison_is_relative_to_the_plan():
    lines = comparison_table(records(comparison(TOTAL_US))).splitlines()
    # 0.788 of 71,011 us; 1 / 0.788 - 1 = 26.9 %
    assert lines[1].split() == [
        "plan,",
        "per",
        "group",
        "56.0",
        "ms",
        "42.6",
        "ms",
        "to",
        "90.9",
        "ms",
        "1.27x",
        "0.523x",
    ]
    assert lines[2].split() == ["host", "alone", "71.0", "ms", "+26.9", "%", "1.00x", "–"]
    assert lines[5].split() == ["proven", "bound", "55.9", "ms", "-0.1", "%", "1.27x", "–"]
    assert [line.split()[0] for line in lines if "†" in line] == ["board=u5…precision=int8", "†"]  # which is feasible
    unknown = comparison(TOTAL_US).assign(plan_latency_likely_us=float("nan"))
    assert comparison_table(records(unknown)).splitlines()[2].split() == ["host", "alone", "–", "–", "1.00x", "–"]


def test_what_is_not_proved_optimal_is_marked_and_names_are_whole():
    rows = comparison(TOTAL_US)
    rows.loc[rows.index[0], "plan_status"] = "feasible"
    rows.loc[rows.index[1], "alternative"] = "launch-per=phase, same calls"
    lines = comparison_table(records(rows)).splitlines()
    assert lines[1].startswith("plan, per group † ") and lines[2].startswith("per phase, same calls ")
    assert lines[-1] == "† not proved optimal"
    proved = comparison_table(records(comparison(TOTAL_US).assign(plan_status="optimal")))
    assert "†" not in proved


def test_a_difference_that_rounds_to_nothing_is_none():
    rows = comparison(TOTAL_US)
    rows.loc[rows.index[1], "plan_latency_likely_us"] = rows["plan_latency_likely_us"].iloc[0] * 0.9996
    assert "%" not in comparison_table(records(rows)).splitlines()[2]


def test_terms_that_nobody_knows_are_left_to_the_table(gains):
    never = gains.copy()
    never.loc[never["term"] == "break_even_batch", list(CASES)] = pd.NA
    rounding = gains.copy()
    rounding.loc[rounding["term"] == "overlap", list(CASES)] = [0.0, 5.8e-10, -4.2e-10]
    assert "batch to break even" in amdahl_table(records(gains)) and "hidden by overlap" in amdahl_table(records(gains))
    assert "batch to break even" not in amdahl_table(records(never))
    assert "hidden by overlap" not in amdahl_table(records(rounding))


def test_terms_that_are_zero_throughout_are_left_to_the_table(gains):
    nothing = gains.copy()
    nothing.loc[nothing["term"] == "conversion", list(CASES)] = 0.0
    assert "conversion" in amdahl_table(records(gains))
    assert "conversion" not in amdahl_table(records(nothing))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "us", "–"),
        (0.25, "share", "25.0 %"),
        (1.5, "ratio", "1.50x"),
        (7.0, "count", "7"),
        (31.52, "per_s", "31.5/s"),
        (1_500.0, "us", "1.50 ms"),
        (2_500_000.0, "uj", "2.50 J"),
    ],
)
def test_units_of_the_gains(value, unit, text):
    assert value_text(value, unit) == text


def test_time_that_is_bought_with_energy_is_said(gains):
    lines = verdict_lines(records(verdicts(gains)), Terms.of(records(gains)))
    assert " ".join(" ".join(lines[:2]).split()) == (
        "verdict latency undecided: 1.27x, 90 % within 0.881 to 1.56, pays with probability 0.86"
    )
    # 0.913 of 428,009 uJ
    assert lines[-1] == "          the plan trades energy for time: 391 mJ more for each inference"
    better = gains.copy()
    better.loc[(better["objective"] == "energy") & (better["term"] == "total_speedup"), list(CASES)] = 1.1
    assert "bought" not in "\n".join(verdict_lines(records(verdicts(better)), Terms.of(records(better))))


@pytest.mark.slow
def test_a_disturbed_host_is_said_first_and_nothing_is_said_to_pay(gains, kernels):
    judged = verdicts(gains, ["one run in ten takes over 17% longer than the median", "the gap between nodes is +38 %"])
    tables = {"offload_plan": kernels, "speedup": gains, "offload_verdict": judged}
    tables = {name: records(table) for name, table in tables.items()}
    tables["offload_comparison"] = records(comparison(TOTAL_US))
    shown = offload_report(tables, lambda text: text.replace("<op_latency>", "01"))
    assert shown.splitlines()[:4] == [  # the first reason once, in the first sentence
        "Not judged: one run in ten takes over 17% longer than the median (and 1 more)",
        "  - the gap between nodes is +38 %",
        "  - rerun 01 on an idle host",
        "",
    ]
    assert offload_lines(tables)[-1].split()[-2:] == ["not", "judged"]
    of_frames = offload_report({**tables, "replica_plans": replica_rows(), "replica_rates": []})
    assert of_frames.startswith("Not judged: one run in ten") and "5 x systolic" in of_frames
    assert outlook(tables) == [*judged["doubts"].iloc[0], "rerun <op_latency> on an idle host"]
    picture = draw_offload(records(gains), records(kernels), records(judged), headline(tables))
    said = [shown, *offload_lines(tables), *texts(picture)]
    assert not [text for text in said if re.search(r"\bpays?\b|better|faster|breaks? even|\d(\.\d+)?x\b", text)]
    assert head(picture)[0].startswith("Not judged: one run in ten")
    assert head(draw_timeline(timeline(), records(judged), "Not judged"))[0] == "Not judged"


def test_a_plan_for_another_host_is_not_judged_either_and_the_reason_is_its_own(gains, kernels):
    doubt = "the host of a zcu104 is its own Arm, and the times are those of another"
    judged = verdicts(gains, [doubt]).assign(verdict="not judged for this host")
    tables = {"offload_plan": kernels, "speedup": gains, "offload_verdict": judged}
    tables = {name: records(table) for name, table in tables.items()}
    shown = offload_report(tables)
    assert " ".join(shown.split()).startswith(f"Not judged for this host: {doubt} - give <host_tables>")
    assert "idle host" not in shown and "S_total" not in shown
    assert outlook(tables) == [doubt, "give <host_tables> or <host_scale>"]


def test_every_doubt_ends_within_the_picture_and_above_its_legend(gains, kernels):
    """Four doubts of a busy host with another processor than the board's: 250 letters."""
    doubts = [f"a doubt of {number} that takes about as many letters as those of a busy host do" for number in range(4)]
    figure = draw_offload(records(gains), records(kernels), records(verdicts(gains, doubts)), "Not judged")
    FigureCanvasAgg(figure).draw()
    _, subtitle = figure.texts
    box = Text.get_window_extent(subtitle)
    assert " ".join(subtitle.get_text().split()) == "; ".join(doubts)
    assert box.x1 < figure.bbox.width and box.y0 > figure.legends[0].get_window_extent().y1 - 4
    # At the dots of the PNG, hints of the font make the same line up to a fifteenth longer.
    assert box.x1 < 0.9 * figure.bbox.width


SURE = "{}: 5.9x faster, 90 % within 3.9 to 7.6, pays with probability"


@pytest.mark.parametrize(
    ("likely", "ends", "chance", "verdict", "sentence"),
    [
        (
            5.9,
            (3.92, 7.61),
            0.991,
            "pays",
            f"Offload {SURE} 0.99",
        ),
        (
            5.9,
            (3.92, 7.61),
            1.0,
            "pays",
            f"Offload {SURE} over 0.99",
        ),
        (
            *(0.7, (0.5, 0.9), 0.021, "does not pay"),
            "Do not offload {}: 0.70x as fast, 90 % within 0.50 to 0.90, pays with probability 0.02",
        ),
        (
            *(1.61, (0.83, 2.87), 0.81, "undecided"),
            "Undecided whether to offload {}: 1.6x faster, 90 % within 0.83 to 2.9, pays with probability 0.81",
        ),
    ],
)
def test_the_answer_is_one_sentence_with_the_interval_and_the_probability(
    gains, kernels, likely, ends, chance, verdict, sentence
):
    judged, columns = (
        verdicts(gains),
        ["verdict", "likely", "speedup_p5_factor", "speedup_p95_factor", "pays_probability"],
    )
    judged.loc[judged["objective"] == "latency", columns] = [verdict, likely, *ends, chance]
    tables = {"offload_verdict": records(judged), "offload_plan": records(kernels.assign(precision="int8"))}
    plan = "52 Conv, 1 Gemm to a U280 in {}"
    assert headline(tables) == f"{sentence.format(plan.format('int8'))}; accuracy not judged: run <format_precision>"
    assert headline({**tables, "offload_plan": records(kernels)}) == sentence.format(plan.format("fp32"))


def judged_format(name, agreed, count, verdict, ratio=30.0):
    """A row of precision.csv on samples."""
    share = limits([1.0] * agreed + [0.0] * (count - agreed))
    ends = dict(zip(("", "_low", "_high"), (share.value, share.low, share.high), strict=True))
    return {
        **{f"top1_agreement{end}_share": value for end, value in ends.items()},
        "number_format": name,
        "quantization_scheme": "per channel, min-max",
        "output_name": "scores",
        "format_verdict": verdict,
        "format_problem": "",
        "is_arithmetic": True,
        "sample_source": "given",
        "judged_sample_count": count,
        "sqnr_db": ratio,
        "calibration_sqnr_db": ratio,
    }


def test_the_answer_names_the_agreement_on_samples(gains, kernels):
    tables = {"offload_verdict": records(verdicts(gains)), "offload_plan": records(kernels.assign(precision="int8"))}
    worse = judged_format("int8", 300, 500, "breaks", ratio=3.0) | {"quantization_scheme": "per tensor, min-max"}
    rows = [judged_format("int8", 491, 500, "undecided"), worse]
    assert headline({**tables, "format_precision": rows}).endswith(
        "; outputs agree in 98.2 % of 500 samples (96.6 to 99.1)"
    )
    unmade = judged_format("int8", 491, 500, "not judged") | {"sample_source": "random"}
    assert headline({**tables, "format_precision": [unmade]}).endswith("; accuracy not judged: run <format_precision>")


def test_a_mixed_plan_has_the_agreement_of_its_mixture(gains, kernels):
    """Its format alone breaks the model, and that says nothing about the mixture."""
    compared = records(comparison(TOTAL_US).assign(precision="int8", wider_precision="bf16"))
    tables = {"offload_verdict": records(verdicts(gains)), "offload_plan": records(kernels.assign(precision="int8"))}
    tables |= {"offload_comparison": compared, "format_precision": [judged_format("int8", 305, 500, "breaks")]}
    mixture = judged_format("int8", 496, 500, "survives") | {"is_written_model": True}
    answer = headline({**tables, "precision_mixtures": [{**mixture, "is_written_model": False}, mixture]})
    assert "to a U280 in int8 and bf16: " in answer
    assert answer.endswith("; outputs agree in 99.2 % of 500 samples (98.0 to 99.7)")
    assert headline(tables).endswith("; accuracy not judged: run <format_precision>")


def test_a_format_that_breaks_the_model_is_no_advice(gains, kernels):
    judged = verdicts(gains)
    judged.loc[judged["objective"] == "latency", "likely"] = 5.9
    compared = records(comparison(TOTAL_US).assign(precision="int8"))
    other = {**compared[0], "alternative": "precision=bf16", "precision": "bf16", "latency_speedup_factor": 1.31}
    tables = {"offload_verdict": records(judged), "offload_plan": records(kernels.assign(precision="int8"))}
    tables["offload_comparison"] = [*compared, other]
    rows = [judged_format("int8", 305, 500, "breaks"), judged_format("bf16", 500, 500, "survives", 50.0)]
    answer = headline({**tables, "format_precision": rows})
    assert answer.startswith(
        "int8 breaks the model: outputs agree in 61.0 % of 500 samples (56.7 to 65.2), so 5.9x to "
    )
    assert answer.endswith("is worth nothing; bf16 pays 1.3x")
    rows[1]["format_verdict"] = "breaks"
    assert headline({**tables, "format_precision": rows}).endswith("is worth nothing")


def test_outputs_without_a_ratio_are_judged(gains, kernels):
    """Outputs of infinity have no signal-to-noise ratio, and they are the ones that a user must hear of."""
    tables = {"offload_verdict": records(verdicts(gains)), "offload_plan": records(kernels.assign(precision="int8"))}
    lost = judged_format("int8", 0, 20, "breaks", ratio=None)
    assert headline({**tables, "format_precision": [lost]}).startswith("int8 breaks the model: outputs agree in 0.0 %")
    plain = {name: None if "agreement" in name else value for name, value in lost.items()}
    assert "outputs are NaN or infinite on 20 samples" in headline({**tables, "format_precision": [plain]})


@pytest.mark.parametrize(
    ("board", "name"),
    [("zcu104", "a ZCU104"), ("u280", "a U280"), ("ultra96", "an Ultra96"), ("u280-seed003", "a U280-seed003")],
)
def test_nothing_worth_offloading_is_said_with_the_bound(gains, board, name):
    compared = comparison(TOTAL_US).assign(board=board, precision="int8")
    compared.loc[compared["alternative"] == "proven bound", "latency_speedup_factor"] = 1.0144
    alone = verdicts(gains).assign(verdict="host alone")
    tables = {"offload_verdict": records(alone), "offload_comparison": records(compared), "offload_plan": []}
    assert headline(tables) == f"Nothing is worth offloading to {name} in int8: at most 1.01x"


def test_an_interval_that_ends_at_the_likely_value_is_marked_and_explained(kernels):
    assert interval((152.0, 47.2, 47.2)) == "47.2 µs to 152 µs ="
    assert interval((119.0, 119.0, 91.8)) == "91.8 µs to 119 µs ="
    assert interval((152.0, 99.0, 47.2)) == "47.2 µs to 152 µs"
    assert interval((47.2, 47.2, 47.2)) == "47.2 µs to 47.2 µs"
    assert interval((None, 47.2, 47.2)) == ""
    total = speedup(TOTAL_US, TOTAL_UJ)
    tables = {"speedup": records(total), "offload_verdict": records(verdicts(total))}
    wide = kernels.assign(kernel_latency_optimistic_us=kernels["kernel_latency_likely_us"])
    for plan_rows, count in ((kernels, 0), (wide, 1)):
        text = offload_report({**tables, "offload_plan": records(plan_rows)})
        assert text.count("\n= the interval ends at the likely value: no kernel is known to go beyond it\n") == count


def test_what_other_plans_gain_more_would_change_the_answer(gains):
    compared = comparison(TOTAL_US)
    compared.loc[compared.index[-1], ["alternative", "latency_speedup_factor"]] = ["board=u50", 2.97]
    lines = outlook({"speedup": records(gains), "offload_comparison": records(compared)})
    assert lines[0] == "with board=u50: 2.97x is likely"


def test_a_launch_for_each_phase_comes_last_and_names_its_hardware(gains):
    compared = comparison(TOTAL_US)
    columns = ["alternative", "latency_speedup_factor", "launch_per"]
    compared.loc[compared.index[1], columns] = ["launch-per=phase", 2.97, "phase"]
    lines = outlook({"speedup": records(gains), "offload_comparison": records(compared)})
    assert len(lines) > 1
    assert lines[-1] == "with launch-per=phase: 2.97x is likely, only on a command processor on the card"
    shown = comparison_table(records(compared)).splitlines()
    of_plans = [index for index, line in enumerate(shown) if line.startswith("per phase ")]
    assert of_plans == [len(compared)]  # behind the header and all others
    assert shown[of_plans[0] + 1].startswith("per phase: assumes a command processor on the card")
    compared["launch_per"] = "phase"
    answer = headline({"offload_verdict": records(verdicts(gains)), "offload_comparison": records(compared)})
    assert answer.startswith("Only with a command processor on the card: undecided whether to offload ")


def test_the_front_marks_what_no_plan_beats():
    lines = FRONT.text(records(front(TOTAL_US))).splitlines()
    assert " ".join(lines[1].split()) == "latency 1 1 56.0 ms 17.9/s 52.3 mJ 1"
    assert " ".join(lines[3].split()) == "throughput, stream * 1 3 63.9 ms 43.7/s 39.0 mJ 1"
    assert " ".join(lines[4].split()) == "energy, stream 2 6 107 ms 42.2/s – 1"
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.slow
def test_the_front_is_drawn_with_what_no_plan_beats_in_a_list():
    figure = draw_front(records(front(TOTAL_US)))
    found = texts(figure)
    # 0.788 of 71,011 us; 3.1 in 71,011 us; 0.39 of 0.1 J
    assert head(figure)[0] == (
        "The best plans, one for each aim: 56.0 ms with the card, 43.7/s with the card, 39.0 mJ each with the card"
    )
    assert {"latency, stream, batch 1", "throughput, stream, batch 1", "63.9 ms, 43.7/s, 39.0 mJ each"} <= set(found)
    assert "latency, batch 1" not in found and "energy, stream, batch 2" not in found
    assert outside(figure) == []
    unjudged = draw_front(records(front(TOTAL_US)), (), "Not judged")
    assert head(unjudged)[0] == "Not judged"
    assert "Plans, not judged" in texts(unjudged) and "No plan beats these" not in texts(unjudged)


def test_the_front_has_the_verdicts_of_the_plan(gains):
    """The best of the plans may not pay: nobody should read its title as advice."""
    judged = records(verdicts(gains))
    subtitle = head(draw_front(records(front(TOTAL_US)), judged))[1]
    stated = ", ".join(f"{row['objective']} {row['verdict']}" for row in judged)
    assert subtitle == f"likely case · {stated} · latency is of a batch alone · estimated, not measured"


def test_a_plan_on_the_host_alone_is_not_said_to_be_with_the_card():
    """The plan that is best for energy may move nothing."""
    rows = records(front(TOTAL_US))
    rows[2]["engines"] = []
    assert head(draw_front(rows))[0].endswith(
        "56.0 ms with the card, 43.7/s on the host alone, 39.0 mJ each on the host alone"
    )
    listed = {text for text in texts(draw_front(rows, (), "Not judged: the host was busy")) if ", batch " in text}
    assert [text for text in listed if text.endswith(", host alone")] == ["throughput, stream, batch 1, host alone"]


def test_the_legend_of_the_front_explains_each_mark_that_is_drawn_and_no_other():
    def legend(rows):
        (side,) = (axes for axes in draw_front(rows).axes if axes.get_legend())
        return [(text.get_text()) for text in side.get_legend().get_texts()]

    rows = records(front(TOTAL_US))
    assert legend(rows) == [
        "best for latency, one by one (beaten)",
        *("best for latency, streaming", "best for throughput, streaming", "best for energy, streaming (beaten)"),
    ]
    assert legend(rows[1:3]) == ["best for latency, streaming", "best for throughput, streaming"]


def test_of_plans_at_one_place_every_mark_is_seen():
    rows = records(front(TOTAL_US))
    same = [{**rows[1], "objective": row["objective"], "operation": row["operation"]} for row in rows]
    sizes = [line.get_markersize() for line in draw_front(same).axes[0].lines]
    assert sizes == [24.0, 18.0, 12.0, 6.0]


def test_plans_at_one_place_share_their_numbers():
    rows = front(TOTAL_US)
    same = [name for name in rows.columns if name not in ("objective", "operation")]
    rows.loc[rows.index[3], same] = rows.loc[rows.index[2], same]
    assert {"1", "2, 3"} <= set(texts(draw_front(records(rows))))
    assert {"1", "2"} <= set(texts(draw_front(records(front(TOTAL_US)))))


def test_break_even_in_words(gains):
    lines = break_even(Terms.of(records(gains)))
    assert lines == [
        "breaks even at kernels 1.02x the host; 1.60x is likely",
        "breaks even at 1.42 ms for each launch",
        "weights are loaded once in 3.00 ms, repaid after 2 inferences",
    ]
    changed = gains.copy()
    changed.loc[changed["term"] == "break_even_batch", "likely"] = 7.0
    changed.loc[changed["term"] == "break_even_kernel_speedup", "likely"] = float("nan")
    lines = break_even(Terms.of(records(changed)))
    assert lines[0] == "transfers and launches alone cost at least as much as kernels could save"
    assert "breaks even at a batch of 7, launched once" in lines


def test_no_kernel_makes_what_stays_on_the_host_faster(gains):
    """Hidden time is time of kernels: without them there is less to hide, so 40 % that stay allow 2.5x at most."""
    hidden = gains.copy()
    hidden.loc[hidden["term"] == "overlap", "likely"] = 0.3 * hidden["likely"].iloc[0]
    assert "at most 2.50x with infinitely fast ones" in outlook({"speedup": records(hidden)})[0]
    assert "at most 2.42x with infinitely fast ones" in outlook({"speedup": records(gains)})[0]


def test_nothing_chosen_is_said_once(gains):
    nothing = gains.copy()
    nothing.loc[nothing["term"] == "kernel_speedup", list(CASES)] = float("nan")
    alone = verdicts(nothing).assign(verdict="host alone")
    shown = offload_report({"offload_plan": [], "speedup": records(nothing), "offload_verdict": records(alone)})
    assert "everything stays on the host" in shown
    assert "breaks even" not in shown


def test_no_number_of_draws_makes_a_probability_certain():
    assert [probability(value) for value in (None, 0.0, 0.004, 0.5, 0.994, 1.0)] == [
        *("–", "below 0.01", "below 0.01", "0.50", "0.99", "over 0.99")
    ]


def test_an_undecided_plan_says_what_would_decide_it_and_by_how_much(gains, kernels):
    tables = {"offload_plan": kernels, "speedup": gains, "offload_verdict": verdicts(gains)}
    tables = {name: records(table) for name, table in {**tables, "offload_uncertainty": uncertainty()}.items()}
    assert deciding_lines(tables)[0] == (
        "latency is undecided: 71 % of the variance is the efficiency of systolic kernels; at its likely value the "
        "plan pays with probability 0.97; knowing it saves 117 µs an inference on average"
    )
    shown = " ".join(offload_report(tables).split())
    assert "71 % of the variance is the efficiency of systolic kernels, 23 % is the clock of the card" in shown
    assert deciding_lines(tables)[0] in shown and deciding_lines(tables)[0] in outlook(tables)
    decided = [{**row, "verdict": "pays"} for row in tables["offload_verdict"]]
    assert deciding_lines({**tables, "offload_verdict": decided}) == []


def test_a_plan_that_does_not_pay_repays_no_weights_and_unknown_power_is_a_dash(gains, kernels):
    slow = gains.copy()
    slow.loc[slow["term"].isin(["payback_runs", "break_even_launch", "break_even_batch"]), "likely"] = float("nan")
    assert break_even(Terms.of(records(slow))) == ["breaks even at kernels 1.02x the host; 1.60x is likely"]
    assert TIMES.text(records(kernels.assign(kernel_power_likely_w=float("nan")))).splitlines()[1].endswith("–")


def test_operators_of_a_kernel():
    row = {"group_count": 53, "pattern_counts": {"Conv+Relu": 36, "Conv+Add": 16, "Gemm": 1}}
    assert operators(row) == "52 Conv, 1 Gemm"
    row = {
        "group_count": 14,
        "pattern_counts": {"Transpose+MatMul+Mul+Softmax+MatMul+Transpose": 12, "Transpose+MatMul+Add": 2},
    }
    assert operators(row) == "12 attention, 2 Mat…"


def test_resources_are_short_in_the_table_of_engines(kernels):
    line = ENGINES.text(records(kernels)).splitlines()[1]
    assert line.split()[2:] == ["SLR0", "203k", "301k", "211.5", "0", "2048", "16", "300"]


def replica_rows():
    """Two ways to divide frames, and one array, on a card whose host bounds all of them."""
    return [
        {
            "division": division,
            "is_quickest": division == "frames",
            "launch_per": "group",
            "engine": engine,
            "accelerator_count": count,
            "region_replicas": regions,
            "stage_count": 1,
            "call_frame_count": 8,
            "in_flight_count": 16,
            **dict(zip(RATES, rates, strict=True)),
            **dict(zip((f"card_{name}" for name in RATES), (301.0, 467.0, 571.0), strict=True)),
            "bound_inferences_per_s": 701.0,
            "stream_bottleneck": bound,
            "batch_latency_likely_us": 31_000.0,
            "clock_likely_mhz": 287.1,
        }
        for division, engine, count, regions, rates, bound in (
            ("frames", "systolic-8x8x8-int8", 5, {"SLR0": 3, "SLR1": 2}, (101.0, 211.0, 307.0), "host"),
            ("one array", "systolic-16x16x8-int8", 1, {"board": 1}, (53.0, 97.0, 151.0), "arrays"),
        )
    ]


RATES = ("pessimistic_inferences_per_s", "likely_inferences_per_s", "optimistic_inferences_per_s")


def test_a_throughput_is_the_first_thing_that_is_said():
    resource = {"stream_resource": "host", "frame_busy_likely_us": 4_739.0, "is_bottleneck": True, "division": "frames"}
    allowed = {f"{case}_resource_inferences_per_s": per_s for case, per_s in zip(CASES, (101, 211, None), strict=True)}
    text = replica_report(replica_rows(), [{**resource, **allowed}])
    answer = " ".join(text.split("\n\n")[0].split())
    assert answer == (
        "211/s (101/s to 307/s) on 5 x systolic-8x8x8-int8, bound by the host (the card alone 467/s, 301/s to 571/s); "
        "one array over the board: 97.0/s; no mix of such arrays exceeds 701/s"
    )
    assert "3 in SLR0, 2 in SLR1" in text and "host *" in text and "101/s to –" in text
    assert text.endswith("The host starts each call.\nA plan per phase assumes " + HARDWARE + ", as vendors' have.")
    assert max(map(len, text.splitlines())) <= WIDTH
    phased = [{**row, "launch_per": "phase"} for row in replica_rows()]
    assert replica_headline(phased).startswith("only with a command processor on the card: 211/s")
    assert replica_report(phased, []).endswith("how many arrays would fit if each took fewer LUTs.")
    assert replica_report([], []) == "No array of the board computes this model: there is no stream of frames."
