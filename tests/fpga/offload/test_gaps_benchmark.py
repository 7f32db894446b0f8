"""The problems of the benchmark of gaps: those of stage 07, from counted graphs and times that follow from the work."""

import importlib

import pytest

from benchmarks.plans.gaps import problem, workload
from models.__main__ import BUILDERS, save

STAGE = importlib.import_module("02_shapes_flops_bytes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "launch_per", "rules"), [("int8", "group", {"call"}), ("fp32", "phase", {"entry"})]
)
def test_a_counted_model_is_a_problem_whose_calls_cover_it(tmp_path, precision, launch_per, rules):
    save(BUILDERS["tiny-cnn"](), tmp_path / "m.onnx")
    STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), "--dim", "batch=1"])
    counted = workload(tmp_path)
    given = problem(counted, "u280", precision, launch_per)
    assert {engine.launch_per for engine in given.engines} == rules
    covered = {item for option in given.options for item in option.covers}
    contractions = {index for index, item in enumerate(given.items) if item.name.startswith("G1")}
    assert contractions <= covered
    assert given.host_only_us == pytest.approx(counted.host.latency.likely, rel=1e-6)
