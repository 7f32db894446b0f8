"""Pictures of load tests: many models and two models together, with few and many rows, long names, and no figures."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from common.artifacts.frames import records
from common.load.interference import ROLES
from common.load.service.concurrency import USUAL
from common.view.load.compared_loads_plot import LABEL_WIDTH, MOST_MODELS, draw_fleet, draw_interference
from common.view.load.compared_loads_text import load_section
from tests.support.drawn import outside, texts

EXTRA = "_with_a_name_that_is_longer_than_any_axis_has_room_for"


def model(path, rate=100.0, **changed):
    times = {"request_p50_us": 5e5 / rate, "request_p99_us": 2e6 / rate}
    limits = {f"{name[:-3]}_{end}_us": 1.1**sign * us for name, us in times.items() for end, sign in LIMITS}
    setup = {"session_count": 1, "threads": 2, "batch_max_count": 1, "batch_wait_us": 0.0, **USUAL.columns}
    row = {"model_file": path, "hostname": "north", "validity": "valid", "validity_reason": None, "sent_count": 211}
    return {
        **row,
        **setup,
        **times,
        **limits,
        "offered_requests_per_s": rate,
        "answered_requests_per_s": rate,
        **changed,
    }


LIMITS = (("low", -1), ("high", 1))
NO_TIMES = {f"request_{name}{end}_us": None for name in ("p50", "p99") for end in ("", "_low", "_high")}


def refused(path, reason="is not an ONNX model"):
    counts = {"sent_count": 0, "offered_requests_per_s": None, "answered_requests_per_s": 0.0}
    return model(path, validity="invalid", validity_reason=reason, **counts, **NO_TIMES)


def fleet(rows):
    """The rows as a table is read: an empty cell of a number is not a number."""
    return pd.DataFrame(rows).astype(dict.fromkeys([*NO_TIMES, "offered_requests_per_s"], float))


def service(role, state, p99_us, **changed):
    factor = {"request_p50_slowdown": 2.03, "request_p99_slowdown": 3.07, "answered_rate": 0.97}
    factors = {
        f"{name}{end}_factor": value * size if state == "together" else None
        for name, value in factor.items()
        for end, size in (("", 1), ("_low", 0.9), ("_high", 1.2))
    }
    times = {
        f"request_{name}{end}_us": us * size
        for name, us in (("p50", p99_us / 7), ("p99", p99_us))
        for end, size in (("", 1), ("_low", 0.9), ("_high", 1.2))
    }
    row = {"model_role": role, "load_state": state, "served_model": f"{role}.onnx", "validity": "valid"}
    return {**row, "validity_reason": None, "answered_requests_per_s": 31.0, **times, **factors, **changed}


def pair(**changed):
    states = (("alone", 7e3), ("together", 23e3))
    return pd.DataFrame([service(role, state, us, **changed) for role in ROLES for state, us in states])


def test_the_fleet_is_drawn_from_the_fastest_to_the_refused():
    rows = [refused("a/bad.onnx"), model("b/slow.onnx", 13.0), model("c/fast.onnx", 170.0)]
    figure = draw_fleet(fleet(rows))
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["fast", "slow", "bad"]
    assert [bar.get_width() for bar in left.patches] == [170.0, 13.0]
    assert "invalid: is not an ONNX model" in texts(figure)
    assert figure.texts[0].get_text() == "170 answers/s by fast to 13.0 by slow"
    medians, p99s = (one.lines[0].get_xdata(orig=False) for one in right.containers)
    np.testing.assert_allclose(medians, [500 / 170, 500 / 13])
    np.testing.assert_allclose(p99s, [2000 / 170, 2000 / 13])


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, MOST_MODELS, 61])
def test_a_fleet_of_any_size_stays_inside(count):
    rows = [model(f"folder/{'resnet'}{index}{EXTRA}.onnx", 3.0 + 7 * index) for index in range(count)]
    figure = draw_fleet(fleet(rows))
    assert outside(figure) == []
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == len({*labels}) == min(count, MOST_MODELS)
    assert max(map(len, labels)) <= LABEL_WIDTH
    left_out = f"{count - MOST_MODELS} more in load_fleet.csv"
    assert (left_out in figure.texts[1].get_text()) == (count > MOST_MODELS)


def test_two_files_of_one_name_are_told_apart():
    figure = draw_fleet(fleet([model("int8/bert.onnx", 9.0), model("fp32/bert.onnx", 5.0)]))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["int8/bert", "fp32/bert"]


def test_a_fleet_without_a_figure_says_why():
    figure = draw_fleet(fleet([refused("x.onnx", f"its reason{EXTRA * 3}"), refused("y.onnx")]))
    assert figure.texts[0].get_text() == "None of 2 models could be measured"
    assert any(text.startswith("invalid: its reason") for text in texts(figure)) and outside(figure) == []
    assert draw_fleet(fleet([refused("x.onnx")]).head(0)) is None


def test_the_pair_shows_each_service_alone_and_together():
    figure = draw_interference(pair())
    left, right = figure.axes
    assert figure.texts[0].get_text() == "Together over alone: main: p99 x 3.07, other: p99 x 3.07"
    named = {one.get_label(): one.lines[0].get_xdata(orig=False) for one in left.containers}
    np.testing.assert_allclose(named["alone"], [1, 7, 1, 7])
    np.testing.assert_allclose(named["together"], [23 / 7, 23, 23 / 7, 23])
    np.testing.assert_allclose(
        [one.lines[0].get_xdata(orig=False)[0] for one in right.containers], [2.03, 3.07, 0.97] * 2
    )
    assert outside(figure) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.onnx", f"bert{EXTRA}.onnx"])
def test_a_pair_of_the_same_model_or_of_long_names_stays_inside(name):
    figure = draw_interference(pair(served_model=name))
    assert outside(figure) == []
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert len(labels) == len({*labels}) == 6
    starts = [Text.get_window_extent(label).x0 for label in figure.axes[1].get_yticklabels()]
    assert min(starts) > figure.axes[0].get_window_extent().x1


@pytest.mark.slow
def test_a_pair_without_a_latency_is_no_error():
    factors = [
        f"{name}{end}_factor" for name in ("request_p50_slowdown", "request_p99_slowdown") for end in ("", "_low")
    ]
    empty = pair(**NO_TIMES, **dict.fromkeys(factors, np.nan), validity="overload", validity_reason="the queue grows")
    figure = draw_interference(empty.astype(dict.fromkeys(NO_TIMES, float)))
    assert figure.texts[0].get_text().startswith("No p99 to compare") and texts(figure).count("unknown") == 4
    FigureCanvasAgg(figure).draw()


def test_the_report_names_the_host_of_each_model_and_the_reason():
    rows = [model("b/slow.onnx", 13.0), refused("a/bad<.onnx")]
    page = load_section({"load_fleet": records(fleet(rows)), "load_interference": records(pair())}, {})
    assert "<td>north</td>" in page and "bad&lt;.onnx" in page and "is not an ONNX model" in page
    assert "main" in page and "3.07 (2.76 to 3.68)" in page
