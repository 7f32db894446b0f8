"""A comparison as picture, text, Markdown and page: what they say, and that names stay text."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from common.artifacts.frames import records
from common.comparison.stated_figures import FIGURES
from common.timeline.flamegraph import differential_stacks
from common.view.comparison.comparison_tables import (
    comparison_markdown,
    comparison_page,
    comparison_report,
    difference_table,
    value_text,
)
from common.view.comparison.plots import MOST_BARS, draw_comparison


def row(subject="", kind="node", verdict="unchanged", share=0.01, **changes):
    known = {
        "compared_folder": "out",
        "compared_kind": kind,
        "compared_figure": "node_latency_us" if kind == "node" else "p50_us",
        "compared_subject": subject,
        "comparison_verdict": verdict,
        "baseline_value": 1000.0,
        "candidate_value": 1000.0 * (1 + share),
        "difference_share": share,
        "difference_low_share": share - 0.01,
        "difference_high_share": share + 0.01,
        "noise_floor_share": 0.02,
        "latency_change_share": share / 10 if kind == "node" else None,
        "runs_needed_count": None,
        "verdict_reason": "",
        "source_nodes": [f"/block/{subject}/Conv", f"/block/{subject}/Relu"] if subject else [],
        "baseline_nodes": [subject] if subject else [],
        "candidate_nodes": [subject] if subject else [],
    }
    return {**known, **changes}


LATENCY = row(kind="end_to_end", verdict="regressed", share=0.07)
SLOWER = row("a|<b>_nchwc", verdict="regressed", share=0.3)
ROWS = [LATENCY, row("small"), SLOWER, row("undecided", verdict="undecided", runs_needed_count=1234)]


def test_the_text_says_the_verdict_first_and_names_changed_nodes_by_their_labels():
    lines = comparison_report(ROWS, ["differs: threads: 1 against 2"], {"a|<b>_nchwc": "block/conv"}, "main").split(
        "\n"
    )
    assert lines[:2] == [
        "latency regressed: +7.0 %; 1 of its nodes changed (baseline: main)",
        "differs: threads: 1 against 2",
    ]
    assert any(line.startswith("block/conv") and "+30.0 %" in line for line in lines)
    assert lines[-1] == "3 groups of nodes: 1 unchanged, 1 regressed, 1 undecided; all of them in comparison.csv"


def test_every_figure_that_is_compared_has_a_name_that_fits_80_columns_whole():
    figures = ["p50_us", "p99_9_us", *(figure.name for figure in FIGURES)]
    rows = [row(kind="plan", compared_figure=name, verdict="undecided", runs_needed_count=15_838) for name in figures]
    lines = comparison_report(rows, [], {}, "main").splitlines()
    table = lines[lines.index("") + 1 :][: len(figures) + 1]
    assert max(map(len, table)) <= 80
    assert "…" not in "".join(table)
    assert [line.split("  ")[0] for line in table[1:3]] == ["p50", "p99.9"]
    assert not any("_" in line for line in table)
    assert any(line.startswith("runs that would decide: p50 15,838, p99.9 15,838") for line in lines)


def test_markdown_keeps_a_name_in_its_cell():
    text = comparison_markdown(ROWS, [], {}, "main")
    line = next(line for line in text.split("\n") if "+30.0 %" in line)
    assert line.startswith("| a\\|&lt;b>\\_nchwc | 1.00 ms | 1.30 ms |")
    assert line.replace("\\|", "").count("|") == 8


def test_a_page_shows_every_node_and_no_markup_of_a_name():
    page = comparison_page([(ROWS, ["differs: threads: 1 against 2"])], {}, "<main>")
    assert "<b>" not in page
    assert "a|&lt;b&gt;_nchwc" in page
    assert "undecided (1,234 runs)" in page
    assert page.index("threads: 1 against 2") < page.index("Figures of the whole")


def test_the_keys_scroll_each_table_of_a_page_without_a_script():
    """axe-core's rule scrollable-region-focusable."""
    page = comparison_page([(ROWS, [])], {}, "")
    boxes = re.findall(r'<div class="scroll"([^>]*)>', page)
    assert boxes and all('tabindex="0"' in box and "aria-label=" in box for box in boxes)


def test_the_report_shows_what_changed():
    table = difference_table(records(pd.DataFrame(ROWS)))
    assert "a|&lt;b&gt;_nchwc" in table
    assert "small" not in table


def test_the_picture_states_the_finding_and_draws_nodes_by_what_they_change():
    nodes = [row(f"n{index}", share=0.001 * index) for index in range(40)]
    figure = draw_comparison(records(pd.DataFrame([LATENCY, *nodes])))
    assert figure.texts[0].get_text() == "Latency regressed: +7.0 %; 0 of 40 groups of nodes changed"
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(labels) == MOST_BARS
    assert labels[:3] == ["p50_us", "block/n39", "block/n38"]
    assert f"{41 - MOST_BARS} more" in figure.texts[1].get_text()


def test_a_node_that_one_side_alone_executes_is_named_below_the_picture():
    """It has no difference, and is often what changed."""
    new = row("new", verdict="regressed", share=0.0, baseline_value=0.0, candidate_value=143.0)
    alone = {"difference_share": None, "difference_low_share": None, "difference_high_share": None}
    rows = pd.DataFrame([*ROWS, {**new, **alone, "verdict_reason": "only the candidate executes it"}])
    (axes,) = draw_comparison(records(rows)).axes
    assert axes.get_xlabel() == "difference from the baseline (%)\nonly one side executes new (143 µs)"


def test_there_is_no_picture_without_an_interval():
    assert draw_comparison(records(pd.DataFrame([{**LATENCY, "difference_low_share": None}]))) is None


@pytest.mark.parametrize(
    ("figure", "value", "text"),
    [("p50_us", 1500.0, "1.50 ms"), ("arena_bytes", 2e6, "2.00 MB"), ("energy_uj", 3e6, "3.00 J"),
     ("peak_flop_per_s", 1e12, "1.00 TFLOP/s"), ("answered_requests_per_s", 70.0, "70.0 /s"),
     ("likely", 0.343, "0.343"), ("used_count", 624080.0, "624080"),
     ("request_energy_j", 0.002, "2.00 mJ"), ("million_requests_usd", 0.00225, "0.00225 USD")],
)  # fmt: skip
def test_a_value_has_the_unit_of_its_figure(figure, value, text):
    assert value_text({"compared_figure": figure}, value) == text


def test_stacks_have_both_times_and_their_sums():
    times = {"block/a": (2.4, 3.3), "block/b": (5.4, 7.3), "new": (0.0, 11.0), "nothing": (0.0, 0.0)}
    lines = differential_stacks(times, "model").splitlines()
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in lines] == [
        "model;block;a",
        "model;block;b",
        "model;new",
    ]
    assert sum(int(line.split(" ")[-2]) for line in lines) == round(7.8)
    assert sum(int(line.split(" ")[-1]) for line in lines) == round(21.6)
