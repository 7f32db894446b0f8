"""The comparison of load tests with LoadGen: its arithmetic on written-out figures, and real runs of a tiny model."""

import argparse
import sys

import numpy as np
import onnx
import pytest

from benchmarks.load import server_scenario
from common.latency.statistics import Estimate
from common.load.search.batch_times import Response
from common.load.search.curve import CurvePoint
from common.load.search.halving import Configuration, Trial
from models.small.tiny import build_tiny_mlp


@pytest.mark.parametrize(
    ("ours_us", "verdict"),
    [([103.0] * 20, "ok"), ([150.0] * 20, "OUT"), ([60.0] * 20, "OUT"), ([50.0, 150.0, 151.0] * 7, "undecided")],
)
def test_the_ratio_of_the_rounds_is_judged_by_its_interval(ours_us, verdict):
    row = server_scenario.Row(40.0, "p50", np.array(ours_us), np.full(len(ours_us), 100.0))
    assert row.difference.value == pytest.approx(np.median(ours_us) / 100 - 1)
    assert (row.spread, row.verdict) == (0.0, verdict)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    path = tmp_path_factory.mktemp("load") / "mlp.onnx"
    onnx.save(build_tiny_mlp(), path)
    return server_scenario.open_service(path, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5, 11])
def test_both_send_the_same_requests(service, seed):
    """LoadGen counts one more in each round, or the comparison says so."""
    pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    rows = server_scenario.compare(service, 1000.0, 200, seed, 2)
    assert [row.name for row in rows] == ["p50", "p90", "p99"]
    assert all(len(row.ours_us) == len(row.theirs_us) == 2 for row in rows)
    assert (rows[0].ours_us <= rows[2].ours_us).all() and (rows[0].theirs_us <= rows[2].theirs_us).all()
    assert all((row.ours_us > 0).all() and (row.theirs_us > 0).all() for row in rows)


def test_a_row_says_what_was_predicted_and_why_it_differs():
    setup = Configuration(4, 0.0, 1, 1)
    found = Trial(setup, None, 20.0, 20.0, Estimate(5000.0, 4900.0, 5100.0), Estimate(9000.0, 8000.0, 9900.0))
    points = [CurvePoint(found, Response(4000.0, 9000.0, 0.5), 1.4), CurvePoint(found, None, 1.0)]
    lines = server_scenario.prediction_table("net", points).splitlines()
    assert lines[-2].split()[:2] == ["20.0/s", "50.0"]
    assert "5.000 ms" in lines[-2] and "4.000 ms" in lines[-2] and "calls took 1.4 times" in lines[-2]
    assert "unknown" not in lines[-1] and "calls" not in lines[-1]


def test_without_loadgen_the_way_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    assert server_scenario.main([]) == 2
    assert "mlperf_loadgen: is not installed; run: python -m pip install mlcommons-loadgen" in capsys.readouterr().err


def test_the_models_are_networks_of_their_papers(tmp_path):
    """Parameters of MobileNet v1 (Howard et al. 2017, table 8: 4.2 million), DeiT-Ti (Touvron et al. 2021: 5 M) and
    SqueezeNet 1.1 (torchvision's table: 1,235,496)."""
    counts = {
        name: sum(int(np.prod(weight.dims)) for weight in build().graph.initializer)
        for name, build in server_scenario.BUILDERS.items()
    }
    assert counts["mobilenet-v1"] == pytest.approx(4.2e6, rel=0.02)
    assert counts["squeezenet"] == pytest.approx(1_235_496, rel=0.001)
    assert counts["vit-ti16"] == pytest.approx(5.7e6, rel=0.02)


def test_the_defaults_compare_every_model_at_three_rates():
    options = server_scenario.arguments([])
    assert isinstance(options, argparse.Namespace)
    assert options.models == [*server_scenario.BUILDERS] and len(server_scenario.LOADS) == 3
