"""The pictures: what they say in words and numbers is read out of the figure, and their bytes do not change."""

from itertools import combinations, cycle
from math import hypot

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from common.artifacts.checks.schema import conform
from common.artifacts.frames import records
from common.view.executed_nodes import rank_nodes
from common.view.findings import Findings, StageRecord
from common.view.node_labels import labels_of
from common.view.profile.energy_plot import draw_energy
from common.view.profile.latency_plot import draw_latency
from common.view.profile.schedule_plot import MAX_DRAWN, MAX_LANES, draw_schedule, pack_lanes
from common.view.report.gallery import draw_all, roof_of
from common.view.roofline.roofline_plot import draw_roofline
from common.view.roofline.roofs import Ceiling, Roof, roof_from
from common.view.style import render
from common.view.text import duration
from tests.support.tables.energy import host_ceilings
from tests.support.tables.view import BANDWIDTH, PEAK, all_tables, many_nodes

MEASURED = host_ceilings(
    peak_flop_per_s=PEAK,
    memory_bytes_per_s=BANDWIDTH,
    int8_op_per_s=4 * PEAK,
    fp16_flop_per_s=None,
    bf16_flop_per_s=None,
    cache_bytes_per_s=3 * BANDWIDTH,
    one_thread_peak_flop_per_s=PEAK / 2,
    one_thread_int8_op_per_s=2 * PEAK,
    one_thread_fp16_flop_per_s=None,
    one_thread_bf16_flop_per_s=None,
    one_thread_memory_bytes_per_s=0.6 * BANDWIDTH,
    one_thread_cache_bytes_per_s=2 * BANDWIDTH,
)
ROOF = roof_from(MEASURED, None, None)


@pytest.fixture(scope="module")
def tables():
    return all_tables()


@pytest.fixture(scope="module")
def keys(tables):
    return rank_nodes(records(tables["op_roofline"]), labels_of(records(tables["op_roofline"])))


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def head(figure):
    """Title and subtitle."""
    return [text.get_text() for text in figure.texts[:2]]


def overlapping(figure, wanted):
    """Pairs of the wanted texts whose boxes overlap as drawn."""
    FigureCanvasAgg(figure).draw()
    shown = [text for text in figure.findobj(Text) if wanted(text) and text.get_text() and text.get_visible()]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in shown]
    return [(a, b) for n, (a, one) in enumerate(boxes) for b, other in boxes[n + 1 :] if one.overlaps(other)]


def is_rank(text):
    return text.get_text().isdigit() and text.get_fontweight() == "bold"


@pytest.mark.slow
def test_the_roofline_names_both_ceilings_the_ridge_and_the_ten_slowest_nodes(tables, keys):
    figure = draw_roofline(records(tables["op_roofline"]), keys, ROOF)
    found = texts(figure)
    assert {"fp32, 2 threads: 240 GFLOP/s", "memory, 2 threads: 8.00 GB/s"} <= set(found)
    assert "ridge 30.0 FLOP/byte" in found  # 240 / 8
    assert head(figure)[0] == "Conv takes 95 % of the latency and reaches 52 % of its roof, mostly compute-bound"
    assert {str(number) for number in range(1, 11)} <= set(found)
    assert "conv1" in found
    assert "above its roof: operands from a cache" in found
    assert not any("Winograd" in text for text in found)  # no compute-bound node is above it


@pytest.mark.slow
def test_the_roofline_draws_every_roof_with_its_label(tables, keys):
    figure = draw_roofline(records(tables["op_roofline"]), keys, ROOF)
    others = {
        "fp32, 1 thread: 120 GFLOP/s",
        "int8, 2 threads: 960 GOP/s",
        "int8, 1 thread: 480 GOP/s",
        "memory, 1 thread: 4.80 GB/s",
        "cache, 2 threads: 24.0 GB/s",
        "cache, 1 thread: 16.0 GB/s",
    }
    assert others <= set(texts(figure))
    flat = {y[0] for line in figure.axes[0].lines if len(set(y := line.get_ydata())) == 1 < len(y)}
    assert flat == {PEAK, PEAK / 2, 4 * PEAK, 2 * PEAK}
    slopes = [line.get_xydata() for line in figure.axes[0].lines if len(set(line.get_xdata())) == 2]
    rising = {round(float(y / x)) for (x, y), (_, end) in slopes if y != end}
    assert rising == {8e9, 4.8e9, 24e9, 16e9}


@pytest.mark.slow
@pytest.mark.parametrize("is_on_slope", [False, True])
def test_no_mark_covers_the_label_of_a_roof(tables, keys, is_on_slope):
    """Labels of peaks have room beyond the marks; those of slopes are where the marks are not."""
    table = tables["op_roofline"]
    if is_on_slope:  # where the label of the memory's bandwidth would be without them
        intensities = [1.0, *(10 * 1.017**place for place in range(len(table) - 1))]
        rates = [BANDWIDTH * intensity for intensity in intensities]
        table = table.assign(arithmetic_intensity_flop_per_byte=intensities, attained_flop_per_s=rates)
    figure = draw_roofline(records(table), keys, ROOF)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    centres = [point for drawn in axes.collections for point in axes.transData.transform(drawn.get_offsets())]
    for label in (text for text in axes.texts if "thread" in text.get_text()):
        box = Text.get_window_extent(label)
        inside = [(x, y) for x, y in centres if box.x0 < x < box.x1 and box.y0 < y < box.y1]
        assert label.get_rotation() or not inside, label.get_text()
        if label.get_rotation():  # its box is mostly empty: the text is on the diagonal
            steps = [(box.x0 + part * box.width, box.y0 + part * box.height) for part in (0.1, 0.3, 0.5, 0.7, 0.9)]
            assert min(hypot(x - a, y - b) for x, y in centres for a, b in steps) > 8, label.get_text()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "from_", "to"), [(0.25, 16, 170), (1.0, 20, 100)])
def test_the_label_of_a_slope_covers_no_other_label_and_ends_within_the_axes(tables, keys, first, from_, to):
    """One thread has the bandwidth of all, and the peaks' labels are side by side: as on a busy host."""
    rates = {"peak_flop_per_s": 181e9, "int8_op_per_s": 997e9, "memory_bytes_per_s": 13.3e9, "cache_bytes_per_s": 64e9}
    alone = dict(zip(rates, (164e9, 691e9, 13.3e9, 84.2e9), strict=True))
    roof = roof_from({**MEASURED, **rates, **{f"one_thread_{name}": rate for name, rate in alone.items()}}, None, None)
    table = tables["op_roofline"]
    count = len(table) - 3
    intensities = [first, 2 * first, 4 * first, *(from_ * (to / from_) ** (place / count) for place in range(count))]
    attained = [min(13.3e9 * intensity, 150e9) for intensity in intensities]
    table = table.assign(arithmetic_intensity_flop_per_byte=intensities, attained_flop_per_s=attained)
    figure = draw_roofline(records(table), keys, roof)
    FigureCanvasAgg(figure).draw()
    axes, inside = figure.axes[0], figure.axes[0].get_window_extent()
    labels = [text for text in axes.texts if "thread" in text.get_text()]
    along = {label: diagonal(Text.get_window_extent(label)) for label in labels if label.get_rotation()}
    assert len(along) == 4
    for label, points in along.items():
        assert all(inside.contains(x, y) for x, y in points), label.get_text()
        flat = [Text.get_window_extent(other) for other in labels if not other.get_rotation()]
        assert not any(box.contains(x, y) for box in flat for x, y in points), label.get_text()
        others = [place for other in along if other is not label for place in along[other]]
        assert min(hypot(x - a, y - b) for x, y in points for a, b in others) > 5, label.get_text()


@pytest.mark.slow
def test_the_labels_of_the_memory_keep_apart_where_all_threads_are_slower_than_one(tables, keys):
    """The ceilings of a busy host; nodes far above the roof leave little room along its slopes."""
    rates = {"peak_flop_per_s": 14e9, "int8_op_per_s": 15e9, "memory_bytes_per_s": 4.29e9, "cache_bytes_per_s": 22e9}
    alone = dict(zip(rates, (15.6e9, 15.6e9, 6.37e9, 24.1e9), strict=True))
    roof = roof_from({**MEASURED, **rates, **{f"one_thread_{name}": rate for name, rate in alone.items()}}, None, None)
    table = tables["op_roofline"]
    parts = [place / (len(table) - 1) for place in range(len(table))]
    table = table.assign(
        arithmetic_intensity_flop_per_byte=[0.25 * (90 / 0.25) ** part for part in parts],
        attained_flop_per_s=[1.9e9 * (1.7e12 / 1.9e9) ** part for part in parts],
    )
    figure = draw_roofline(records(table), keys, roof)
    FigureCanvasAgg(figure).draw()
    labels = [text for text in figure.axes[0].texts if text.get_text().startswith("memory, ")]
    one, other = (diagonal(Text.get_window_extent(label)) for label in labels)
    assert min(hypot(x - a, y - b) for x, y in one for a, b in other) > 12


OF_A_BUSY_HOST = (  # intensity and rate of each node of a text encoder and a few convolutions
    "0.042:3.8e5 0.042:1.6e6 0.083:2.8e5 0.083:9.7e6 0.083:4e7 0.083:4.4e8 0.083:1.9e9 0.12:5.3e5 0.12:1.1e6 "
    "0.12:1.3e8 0.12:4.4e8 0.12:7.1e8 0.12:7.9e8 0.12:8.8e8 0.12:1.9e9 0.17:4.3e5 0.17:7.7e5 0.23:1.5e8 "
    "0.25:1.1e7 0.25:4.4e9 0.49:1.9e7 0.49:4.4e7 0.49:1.6e9 0.49:3.6e9 0.62:4.1e8 0.79:2.3e9 2:1.4e9 2:3.3e9 "
    "3.9:5.4e10 4.1:1.2e7 4.1:3.4e10 4.1:3.8e10 10:7.6e10 47:1.1e11 77:1.1e11 170:2e9"
)


@pytest.mark.slow
def test_labels_of_slopes_cover_marks_before_they_cover_each_other(tables, keys):
    """Four slopes within a factor of three, and nodes all along them."""
    rates = {"peak_flop_per_s": 32e9, "int8_op_per_s": 210e9, "memory_bytes_per_s": 8e9, "cache_bytes_per_s": 15e9}
    alone = dict(zip(rates, (25.7e9, 399e9, 23.1e9, 20.3e9), strict=True))
    roof = roof_from({**MEASURED, **rates, **{f"one_thread_{name}": rate for name, rate in alone.items()}}, None, None)
    table = tables["op_roofline"]
    points = [[*map(float, pair.split(":"))] for pair in OF_A_BUSY_HOST.split()]
    intensities, attained = zip(
        *(point for _, point in zip(range(len(table)), cycle(points), strict=False)), strict=True
    )
    table = table.assign(arithmetic_intensity_flop_per_byte=intensities, attained_flop_per_s=attained)
    figure = draw_roofline(records(table), keys, roof)
    FigureCanvasAgg(figure).draw()
    labels = [text for text in figure.axes[0].texts if text.get_rotation()]
    along = [diagonal(Text.get_window_extent(label)) for label in labels]
    assert len(along) == 4
    for one, other in combinations(along, 2):
        assert min(hypot(x - a, y - b) for x, y in one for a, b in other) > 8


def diagonal(box):
    """Points along a rotated text, from the corners of its box."""
    return [(box.x0 + part / 16 * box.width, box.y0 + part / 16 * box.height) for part in range(1, 16)]


@pytest.mark.slow
def test_the_legend_names_why_a_compute_bound_node_is_above_its_roof(tables, keys):
    table = tables["op_roofline"]
    convs = (table["op_type"] == "Conv") & (table["bound"] == "compute")
    reasons = table["roof_share_reason"].where(~convs, "winograd")
    both = table.assign(is_above_roof=table["is_above_roof"] | convs, roof_share_reason=reasons)
    found = texts(draw_roofline(records(both), keys, ROOF))
    assert {"above its roof: operands from a cache", "above its roof: Winograd or FFT multiplies less"} <= set(found)
    none = table.assign(is_above_roof=False, roof_share_reason="unstable", roof_share=None)
    found = texts(draw_roofline(records(none), keys, ROOF))
    assert not any(text.startswith("above") for text in found)
    assert any(text.endswith("; the ceilings are unstable, so no share of a roof is stated") for text in found)
    assert "compute-bound" in found
    title = draw_roofline(records(none), (), ROOF).texts[0].get_text()
    assert title.startswith("Conv takes ")
    assert "-bound" not in title  # such ceilings do not say it of every node


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.0, 1.02, 1.3, 4.0])
def test_no_two_labels_of_roofs_touch(tables, ratio):
    """However close the roofs are: here each is so many times the next."""
    peaks = tuple(Ceiling(f"peak {n}, 2 threads: 123 GFLOP/s", PEAK * ratio**n, judges=n == 0) for n in range(4))
    slopes = tuple(Ceiling(f"slope {n}: 12.3 GB/s", BANDWIDTH * (1.2 * ratio) ** n, judges=n == 0) for n in range(3))
    figure = draw_roofline(records(tables["op_roofline"]), (), Roof(peaks, slopes))
    assert overlapping(figure, lambda text: text.get_text().startswith("peak ")) == []


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.02, 1.1, 1.26])
def test_the_roof_above_does_not_run_through_the_label_of_the_lowest(tables, ratio):
    """On a busy host, two threads are little faster than one: the lower label is beneath its line."""
    peaks = (Ceiling("both", PEAK * ratio, judges=True), Ceiling("one", PEAK, is_one_thread=True))
    figure = draw_roofline(records(tables["op_roofline"]), (), Roof(peaks, ROOF.slopes))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    box = next(text for text in axes.texts if text.get_text() == "one").get_window_extent()
    upper = axes.transData.transform((1.0, PEAK * ratio))[1]
    assert not box.y0 < upper < box.y1


@pytest.mark.slow
def test_each_number_format_that_judges_has_its_ridge(tables, keys):
    roof = roof_from(MEASURED, None, None, {"fp32", "int8"})
    found = texts(draw_roofline(records(tables["op_roofline"]), keys, roof))
    assert {"ridge 30.0 FLOP/byte", "ridge 120 FLOP/byte"} <= set(found)


def test_one_thread_and_missing_formats_have_no_line_of_their_own():
    roof = roof_from(MEASURED | {"threads": 1, "int8_op_per_s": None, "one_thread_int8_op_per_s": None}, None, None)
    assert [line.text for line in roof.peaks] == ["fp32, 1 thread: 240 GFLOP/s"]
    assert [line.text for line in roof.slopes] == ["memory, 1 thread: 8.00 GB/s", "cache, 1 thread: 24.0 GB/s"]


@pytest.mark.slow
def test_no_two_numbers_of_the_roofline_touch(tables, keys):
    assert overlapping(draw_roofline(records(tables["op_roofline"]), keys, ROOF), is_rank) == []


@pytest.mark.slow
def test_no_number_covers_the_label_of_a_peak(tables, keys):
    """The slowest nodes lie at the peak, below its label."""
    table = tables["op_roofline"].assign(attained_flop_per_s=0.97 * PEAK)
    table["arithmetic_intensity_flop_per_byte"] = [0.01, *(200.0 * 1.01**place for place in range(1, len(table)))]
    figure = draw_roofline(records(table), keys, ROOF)
    assert overlapping(figure, lambda text: is_rank(text) or text.get_text().startswith("fp32, 2 threads")) == []


@pytest.mark.slow
def test_nodes_that_have_no_place_on_logarithmic_axes_are_counted(tables, keys):
    found = texts(draw_roofline(records(tables["op_roofline"]), keys, ROOF))
    assert any("not drawn: 1 without FLOPs or time" in text for text in found)


@pytest.mark.slow
def test_without_ceilings_the_nodes_are_drawn_without_a_roof(tables, keys):
    found = texts(draw_roofline(records(tables["op_roofline"]), keys, None))
    assert "Executed nodes by arithmetic intensity (no ceilings known)" in found
    assert not any(text.startswith("ridge") for text in found)


def test_a_roofline_of_nodes_without_flops_has_roofs_alone(tables):
    empty = tables["op_roofline"].assign(arithmetic_intensity_flop_per_byte=None, bound="", roof_share=None)
    found = texts(draw_roofline(records(conform("op_roofline", empty)), (), ROOF))
    assert "ridge 30.0 FLOP/byte" in found
    assert any(text.startswith("0 executed nodes") for text in found)


@pytest.mark.slow
def test_hollow_marks_and_other_operators_are_explained():
    table = all_tables(many_nodes(12))["op_roofline"]
    table.loc[:7, "op_type"] = [f"Op{n}" for n in range(8)]
    found = texts(draw_roofline(records(table), rank_nodes(records(table), labels_of(records(table))), ROOF))
    assert "profiler dominates" in found
    assert "other operators" in found


def test_energy_bars_add_up_and_the_title_names_source_and_largest_cause(tables, keys):
    figure = draw_energy(
        tables["ops_profile"], tables["energy_summary"], keys, labels_of(records(tables["ops_profile"]))
    )
    groups, nodes = figure.axes
    total_mj = tables["energy_summary"]["energy_uj"] * 1e-3
    assert sum(patch.get_width() for patch in groups.patches) == pytest.approx(total_mj)
    assert len(nodes.patches) == 3 * 10
    found = texts(figure)
    assert head(figure)[0] == "One inference takes 428 mJ (modelled), 68 % of it compute"
    assert "energy (mJ)" in found


def test_a_bar_too_short_to_be_seen_has_a_line_at_its_end(tables, keys):
    """A part of 30 µJ of 400 mJ is narrower than a pixel, and a white outline would cover it."""
    table = tables["ops_profile"]
    groups, _ = draw_energy(table, tables["energy_summary"], keys, labels_of(records(table))).axes
    ends_mj = {line.get_xdata()[0] for line in groups.lines}
    by_type = table.groupby("op_type")["energy_uj"].sum() * 1e-3
    slivers = by_type[(by_type > 0) & (by_type < 0.006 * by_type.max())]
    assert len(slivers) >= 2
    assert sorted(ends_mj) == pytest.approx(sorted(slivers))
    widest = max(patch.get_width() for patch in groups.patches)
    assert all(patch.get_linewidth() == 0 for patch in groups.patches if patch.get_width() < 0.003 * widest)


def test_many_operator_types_share_a_bar(tables):
    table = tables["ops_profile"].copy()
    table.loc[:8, "op_type"] = [f"Op{n}" for n in range(9)]
    found = texts(draw_energy(table, None, (), labels_of(records(table))))
    assert "8 other types" in found  # 9 new, 4 of before (Conv, ReorderOutput, Gemm, Pool), the gap: 14 less 6
    assert "energy_summary.json is absent: no interval" in found


def test_small_energies_are_in_microjoules(tables):
    columns = [name for name in tables["ops_profile"] if name.endswith("_uj")]
    tiny = tables["ops_profile"].assign(**{name: tables["ops_profile"][name] * 1e-4 for name in columns})
    assert "energy (µJ)" in texts(draw_energy(tiny, None, (), labels_of(records(tiny))))


@pytest.mark.slow
def test_the_schedule_draws_every_node_of_a_resnet_once_in_each_order(tables, keys):
    schedule = tables["op_schedule"]
    figure = draw_schedule(schedule, keys)
    bars_drawn = [c for c in figure.axes[0].collections if c.get_paths()]
    count = len(schedule)
    slack = int((schedule["slack_us"] > 50).sum())
    assert sum(len(c.get_paths()) for c in bars_drawn) == 2 * count + slack + 2  # two backgrounds
    assert overlapping(figure, is_rank) == []
    assert head(figure)[0] == "94 % of the work is one chain: span 65.9 ms of 70.4 ms, parallelism 1.07"


def test_nodes_side_by_side_have_lanes_of_their_own(tables):
    schedule = tables["op_schedule"]
    lanes = pack_lanes(schedule)
    assert set(schedule["executed_node"]) == set(lanes)
    by_lane = schedule.assign(lane=schedule["executed_node"].map(lanes)).sort_values("earliest_start_us")
    for _, rows in by_lane.groupby("lane"):
        finishes = rows["earliest_finish_us"].tolist()
        assert all(
            finish <= start + 1e-6 for finish, start in zip(finishes, rows["earliest_start_us"][1:], strict=False)
        )


@pytest.mark.slow
def test_a_wide_graph_fills_its_lanes_with_the_longest_and_says_what_is_left_out():
    # 23 independent nodes of 1 to 23 µs: the longest is critical, eight fit beside it
    nodes = [
        {"name": f"n{n}", "op": "Add", "us": float(n), "flops": 7, "bytes": 11, "before": ()} for n in range(1, 24)
    ]
    schedule = all_tables(nodes)["op_schedule"]
    lanes = pack_lanes(schedule)
    assert lanes["n23"] == 0
    assert sorted(lanes) == sorted(f"n{n}" for n in range(23 - MAX_LANES, 24))
    # 15+16+...+23 = 171 of 276 µs are drawn
    assert any(
        "9 of 23 nodes drawn; 14 short ones (38.0 % of the work)" in t for t in texts(draw_schedule(schedule, ()))
    )


@pytest.mark.slow
def test_two_thousand_nodes_stay_readable():
    schedule = all_tables(many_nodes(2_000))["op_schedule"]
    found = texts(draw_schedule(schedule, rank_nodes(records(schedule), labels_of(records(schedule)))))
    assert any(text.startswith(f"{MAX_DRAWN} of 2000 nodes drawn") for text in found)
    assert "short nodes, not drawn one by one" in found


@pytest.mark.slow
def test_latency_marks_the_percentiles_that_exist_and_says_which_do_not(tables):
    figure = draw_latency(tables["run_latency"], tables["latency_summary"])
    found = texts(figure)
    assert {"p50 75.4 ms", "p90 78.9 ms", "p95 78.9 ms"} <= set(found)
    low_us, high_us = (tables["latency_summary"][f"p50_{end}_us"] for end in ("low", "high"))
    assert f"Median latency 75.4 ms ({duration(low_us)} to {duration(high_us)}), p95 78.9 ms" in head(figure)[0]
    assert any(text.endswith("too few for p99, p99.9") for text in found)
    assert any("2 beyond the scale, up to 231 ms" in text for text in found)
    assert overlapping(figure, lambda text: text.get_text().startswith("p")) == []


def test_latency_without_a_summary_takes_the_median_of_the_runs(tables):
    runs = tables["run_latency"]
    measured = runs[~runs["is_warmup"] & ~runs["is_profiled"]]
    assert head(draw_latency(runs, None))[0] == f"Median of {len(measured)} runs: 75.4 ms"


def test_a_series_of_warm_up_alone_is_drawn(tables):
    runs = tables["run_latency"]
    warmup = runs[runs["is_warmup"] & ~runs["is_profiled"]]
    assert any("10 of them warm-up" in text for text in texts(draw_latency(warmup, None)))


@pytest.mark.slow
def test_the_picture_of_many_runs_is_no_larger_than_that_of_few(tables):
    """Each marker would take 150 bytes of an SVG: a million runs, 150 MB."""
    runs = tables["run_latency"]
    many = pd.concat([runs] * 120, ignore_index=True)
    many["run_index"] = range(len(many))
    assert len(many) > 20_000
    assert len(render(draw_latency(many, None))[".svg"]) < 400_000


def test_a_percentile_without_limits_has_a_mark_without_a_bar(tables):
    summary = tables["latency_summary"] | {"p90_low_us": None, "p90_high_us": None}
    full, less = (draw_latency(tables["run_latency"], s) for s in (tables["latency_summary"], summary))
    assert len(less.axes[1].lines) == len(full.axes[1].lines) - 1


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(tables, keys):
    first, second = (render(draw_roofline(records(tables["op_roofline"]), keys, ROOF)) for _ in range(2))
    assert first == second
    assert b"<dc:date>" not in first[".svg"]
    assert first[".png"].startswith(b"\x89PNG")


def record(**settings):
    told = {name: {"value": value, "from": "flag"} for name, value in settings.items()}
    return StageRecord("03", ("op_roofline", "node_map"), "03 --x", "", "", {}, {}, told, ())


def test_ceilings_that_03_was_given_stand_before_the_measured_ones(tables):
    documents = {"host_ceilings": MEASURED}
    assert roof_of(Findings(documents=documents)) == ROOF
    given = roof_of(Findings(documents=documents, stages=(record(peak_flops=2e12, mem_bw=None),)))
    assert given.peaks == (Ceiling("given peak: 2.00 TFLOP/s", 2e12, judges=True),)
    assert given.slopes == ROOF.slopes
    given = roof_of(Findings(documents=documents, stages=(record(peak_flops=None, mem_bw=3e9),)))
    assert given.peaks == ROOF.peaks
    assert given.slopes == (Ceiling("given memory: 3.00 GB/s", 3e9, judges=True),)
    assert given.ridges() == [(80.0, PEAK)]
    assert roof_of(Findings(stages=(record(peak_flops=2e12, mem_bw=None),))) is None


def test_the_formats_that_judge_are_those_of_the_table(tables):
    table = tables["op_roofline"].copy()
    table.loc[:3, "roof"] = "int8"
    found = Findings(tables={"op_roofline": records(table)}, documents={"host_ceilings": MEASURED})
    assert [line.text[:4] for line in roof_of(found).peaks if line.judges] == ["fp32", "int8"]


def test_an_unavailable_energy_is_not_drawn(tables):
    unknown = tables["ops_profile"].assign(
        energy_uj=pd.Series(pd.NA, index=tables["ops_profile"].index, dtype="Float64")
    )
    assert draw_all(Findings(tables={"ops_profile": records(unknown)})) == {}


@pytest.mark.slow
def test_names_that_look_alike_once_they_are_escaped_stay_two_nodes():
    """A control character, and a name that spells out its escape."""
    names = ["a\x1b[31mred", r"a\x1b[31mred"]
    nodes = [{"name": n, "op": "MatMul", "us": 97.0, "flops": 7, "bytes": 11, "before": ()} for n in names]
    tables = {name: records(table) for name, table in all_tables(nodes).items() if isinstance(table, pd.DataFrame)}
    for row, sources in zip(tables["op_roofline"], [[name] for name in names] + [[]], strict=True):
        row["source_nodes"] = sources
    found = Findings(tables=tables)
    keys = found.key_nodes()
    labels = [key.label for key in keys]
    assert labels == [r"a\x1b[31mred", r"a\x1b[31mred #2"]
    figures = draw_all(found)
    assert {"roofline", "schedule", "energy"} <= set(figures)
    for name in ("roofline", "schedule"):
        assert set(labels) <= set(texts(figures[name]))
    assert all(text.replace("\n", "").isprintable() for drawn in figures.values() for text in texts(drawn))


@pytest.mark.slow
def test_ticks_of_less_than_a_decade_are_numbers_and_no_formulas(tables):
    """The dollars of a formula would be drawn as dollars."""
    table = (
        tables["op_roofline"]
        .head(2)
        .assign(arithmetic_intensity_flop_per_byte=[23.0, 29.0], attained_flop_per_s=[13e9, 17e9])
    )
    figure = draw_roofline(records(table), (), None)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    for axis, expected in ((axes.xaxis, {"10", "100"}), (axes.yaxis, {"6 G", "10 G", "20 G", "30 G"})):
        ticks = {label.get_text() for label in axis.get_ticklabels(which="both")}
        assert expected <= ticks
        assert not any("mathdefault" in text or "$" in text for text in ticks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gap", "roofline_title", "schedule_title"),
    [
        # Conv takes 0.953 / 0.98 of the time of all nodes, which is 1 - gap
        (0.02, "Conv takes 95 % of the latency and", "94 % of the work is one chain: span 65.9 ms of 70.4 ms,"),
        (-0.02, "Conv takes 97 % of the node times and", "94 % of the work is one chain: span"),
        (
            -1.05,
            "Node times exceed the unprofiled median by 105 %; Conv takes 97 % of them and",
            "Node times exceed the",
        ),
        (
            0.99,
            "The gap between nodes takes 99 % of the latency; Conv takes 1 % and",
            "The gap between nodes takes 99 %",
        ),
    ],
)
def test_a_gap_that_comes_first_leads_the_titles_and_no_operator_takes_more_than_all(
    tables, gap, roofline_title, schedule_title
):
    table = tables["op_roofline"]
    share = (table["latency_share"] * (1 - gap) / 0.98).where(table["row_kind"] != "gap", gap)
    drawn = {"op_roofline": records(table.assign(latency_share=share)), "op_schedule": records(tables["op_schedule"])}
    figures = draw_all(Findings(tables=drawn, documents={"host_ceilings": MEASURED}))
    assert head(figures["roofline"])[0].startswith(roofline_title)
    assert head(figures["schedule"])[0].startswith(schedule_title)
    assert head(figures["schedule"])[0].endswith("span 65.9 ms of 70.4 ms, parallelism 1.07")


@pytest.mark.parametrize("gap", [0.02, -1.05, 0.99])
def test_a_long_title_ends_inside_the_picture(tables, keys, gap):
    table = tables["op_roofline"].replace({"op_type": {"Conv": "SkipSimplifiedLayerNormalization"}})
    share = (table["latency_share"] * (1 - gap) / 0.98).where(table["row_kind"] != "gap", gap)
    figure = draw_roofline(records(table.assign(latency_share=share)), keys, ROOF)
    assert len(head(figure)[0]) > 90
    for line in figure.texts[:2]:
        assert line.get_window_extent().x1 < figure.bbox.width
