"""The table of growing transformers."""

import dataclasses
import json

import pytest

from benchmarks.designs import growth
from benchmarks.designs.growth import LARGEST_MB, LARGEST_S, Row
from benchmarks.process import CommandRun
from models.transformers.bert import build_bert

RUN = CommandRun(seconds=2.5, peak_bytes=119_000_000, processor_seconds=2.1)


def row(layers, run=RUN, hardware="gemmini"):
    return Row("bert-base", layers, 100 * layers, hardware, run, 1.25e18)


def test_growth_is_the_time_of_each_further_layer():
    slower = dataclasses.replace(RUN, processor_seconds=2.4)
    lines = growth.report([row(24, slower), row(12), row(12, hardware="fa-dosa")]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["bert-base", "12", "1200", "fa-dosa", "2.5", "2.1", "119", "1.2500e+18"],
        ["bert-base", "12", "1200", "gemmini", "2.5", "2.1", "119", "1.2500e+18"],
        ["bert-base", "24", "2400", "gemmini", "2.5", "2.4", "119", "25", "1.2500e+18"],  # 300 ms for 12 layers
    ]


@pytest.mark.parametrize(
    ("layers", "change", "is_kept"),
    [
        (12, {}, True),
        (12, {"seconds": LARGEST_S + 0.1}, False),
        (96, {"seconds": LARGEST_S + 0.1}, False),
        (96, {"peak_bytes": int(LARGEST_MB * 1e6) + 1}, False),
        (13, {"failure": "killed"}, False),
    ],
)
def test_models_of_all_depths_have_limits_and_no_run_may_fail(monkeypatch, layers, change, is_kept):
    only = row(layers, dataclasses.replace(RUN, **change))
    monkeypatch.setattr(growth, "measured", lambda depths, hardware: [only])
    assert growth.main([]) == int(not is_kept)


@pytest.mark.exhaustive
def test_the_product_of_equal_contractions_grows_with_the_square_of_their_number(monkeypatch, tmp_path):
    """Energy and cycles are sums over layers, so three times the contractions cost nine times the product."""
    sizes = {"width": 21, "heads": 3, "feed": 37, "vocabulary": 97, "positions": 31}
    small = {"small": lambda layers: build_bert(batch=1, seq=8, layers=layers, has_weights=False, **sizes)}
    monkeypatch.setattr(growth, "MODELS", small)
    alone, whole = [], []
    for layers in (1, 3):
        folder = tmp_path / str(layers)
        folder.mkdir()
        assert growth.counted("small", layers, folder) > 50 * layers
        run, edp = growth.searched("gemmini", folder)
        assert not run.failure
        summary = json.loads((folder / "design_summary.json").read_text(encoding="utf-8"))
        alone.append(summary["contraction_edp_pj_cycles"])
        whole.append(edp)
        assert edp == summary["edp_pj_cycles"]
    assert alone[1] == pytest.approx(9 * alone[0])
    assert whole[0] < whole[1] <= 9 * whole[0]  # what stands beside the layers is there once
