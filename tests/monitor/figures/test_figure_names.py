"""Names of figures, their metrics, and the text for Prometheus."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from common.monitor.figures.alarms import read_alarms
from common.monitor.figures.figure_names import FIGURES, exposition, is_known, metric
from common.monitor.figures.gauges import Conditions, derived_figures
from tests.support.paths import ROOT

SAMPLE = re.compile(r'([a-z0-9_]+)(?:\{([a-z]+="[^"\n]*"(?:,[a-z]+="[^"\n]*")*)\})? (-?[0-9.e+-]+|nan|inf)')


def test_no_two_figures_have_one_metric():
    metrics = Counter((name, tuple(labels.items())) for name, labels, _ in map(metric, FIGURES))
    assert [found for found, count in metrics.items() if count > 1] == []
    assert all(re.fullmatch(r"onnx_[a-z][a-z0-9_]*", name) for name, _ in metrics)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("window_p99_9_us", ("onnx_window_latency_seconds", {"quantile": "0.999"}, 1e-6)),
        ("whole_p50_us", ("onnx_whole_latency_seconds", {"quantile": "0.5"}, 1e-6)),
        ("window_jitter_us", ("onnx_window_jitter_seconds", {}, 1e-6)),
        ("power_w:package-0/dram", ("onnx_power_watts", {"domain": "package-0/dram"}, 1.0)),
        ("sm_clock_mhz:gpu-0", ("onnx_sm_clock_hertz", {"domain": "gpu-0"}, 1e6)),
        ("throughput_runs_per_s", ("onnx_throughput_runs_per_second", {}, 1.0)),
        ("flop_per_s_per_w", ("onnx_flop_per_joule", {}, 1.0)),
        ("whole_run_count", ("onnx_whole_runs", {}, 1.0)),
        ("cpu_utilization_share:host", ("onnx_cpu_utilization_ratio", {"domain": "host"}, 1.0)),
    ],
)
def test_metrics_are_in_base_units(key, expected):
    assert metric(key) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("power_w", True),
        ("power_w:package-0/dram", True),
        ("power_w:", False),
        ('power_w:a"b', False),
        ("power_w:a\nb", False),
        ("power_w:" + "x" * 65, False),
        ("weights", False),
        ("input_values", False),
        ("", False),
    ],
)
def test_only_declared_figures_may_be_in_a_message(key, expected):
    assert is_known(key) is expected


def test_each_line_is_one_that_prometheus_reads():
    figures = dict.fromkeys(FIGURES, 1.5) | {"power_w:package-0": 20.25, "window_p99_us": None}
    alarms = [alarm.name for alarm in read_alarms(ROOT / "configs" / "dashboard.yaml")]
    text = exposition(figures, ["hot"], alarms)
    assert text.endswith("\n")
    samples, typed = {}, []
    for line in text.splitlines():
        if line.startswith("#"):
            typed += re.findall(r"# TYPE (\S+) gauge", line)
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        assert name == typed[-1]  # each family stands together, below its type
        assert (name, labels) not in samples
        samples[name, labels] = float(value)
    assert len(typed) == len(set(typed))
    assert samples["onnx_power_watts", 'domain="package-0"'] == 20.25
    assert samples["onnx_window_latency_seconds", 'quantile="0.5"'] == pytest.approx(1.5e-6)
    assert ("onnx_window_latency_seconds", 'quantile="0.99"') not in samples
    assert samples["onnx_alarm_active", 'alarm="hot"'] == 1
    assert samples["onnx_alarm_active", 'alarm="slow"'] == 0


def test_derived_figures_by_hand():
    known = Conditions(7e9, 2e9, 1e11, 1e10, 360.0, 0.5)
    figures = derived_figures(11.0, 22.0, known)
    assert figures["energy_per_run_j"] == pytest.approx(2.0)
    assert figures["flop_per_s"] == pytest.approx(7.7e10)
    assert figures["flop_per_s_per_w"] == pytest.approx(3.5e9)
    assert figures["peak_share"] == pytest.approx(0.77)
    assert figures["attainable_flop_per_s"] == pytest.approx(3.5e10)  # bound by memory: 3.5 FLOP/byte x 1e10 B/s
    assert figures["million_runs_gco2e"] == pytest.approx(200.0)  # 2 MJ are 0.5556 kWh
    assert figures["runs_per_usd"] == pytest.approx(11 * 3600 / 0.5)


def test_what_needs_an_unknown_figure_is_unknown():
    assert {name for name, value in derived_figures(11.0, None, Conditions()).items() if value is not None} == set()
    still = derived_figures(0.0, 22.0, Conditions(7e9, 2e9, 1e11, 1e10, 360.0, 0.5))
    assert still["flop_per_s"] == 0.0
    assert still["energy_per_run_j"] is None
    assert still["runs_per_usd"] is None


def table_line(name, meaning):
    called, labels, _ = metric(name)
    label = "".join(f'{{{key}="{value}"}}' for key, value in labels.items())
    return f"| `{name}` | `{called}{label}` | {meaning} |"


def test_the_documentation_lists_the_figures():
    lines = ["| figure | metric | meaning |", "|---|---|---|", *(table_line(*figure) for figure in FIGURES.items())]
    assert "\n".join(lines) in (ROOT / "docs" / "DASHBOARD.md").read_text()
