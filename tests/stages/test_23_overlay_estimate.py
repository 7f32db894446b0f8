"""Stage 23 through its command line: ResNet-50 on a DPU, and what is refused."""

from __future__ import annotations

import importlib

import pytest

from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import executed_resnet50, resnet50, small, write_tables

SCRIPT = "23_overlay_estimate.py"
stage = importlib.import_module("23_overlay_estimate")


@pytest.mark.slow
def test_the_whole_model_on_an_overlay_needs_no_profile(tmp_path, capsys):
    model = resnet50()
    folder = write_tables(tmp_path, model, executed_resnet50(model))
    for path in [*folder.glob("ops_profile*"), *folder.glob("op_schedule*"), *folder.glob("node_map*")]:
        path.unlink()
    assert stage.main(["--out", str(folder), "--board", "zcu104", "--engine", "dpu-b4096"]) == 0
    tables = Folder(folder, Provenance("test", "test"))
    summary, layers = tables.document("overlay_summary"), tables.table("overlay_layers")
    assert summary["likely_frames_per_s"] == pytest.approx(1e6 / summary["batch_latency_likely_us"])
    # the convolutions and the classifier at 8 × 16 × 16 MACs and 300 MHz, if nothing were lost: a bound
    assert layers["macs"].sum() == 4_089_184_256
    assert layers["op_types"][0] == ["Conv", "BatchNormalization", "Relu"]
    assert summary["batch_latency_pessimistic_us"] > summary["batch_latency_likely_us"]
    assert summary["pessimistic_frames_per_s"] < summary["likely_frames_per_s"] < summary["optimistic_frames_per_s"]
    assert summary["batch_latency_likely_us"] > 4_089_184_256 / (8 * 16 * 16 * 300) > 0.9 * summary["roof_us"]
    assert "frames per second" in capsys.readouterr().out
    assert not (folder / "offload_plan.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ((), "--engine: is missing; add for example --engine dpu-b4096"),
        (("--engine", "dpu-b4096", "--board", "u280"), "dpu-b4096 is not built for u280"),
        (("--engine", "dpu"), "'dpu' is neither a known engine nor a YAML file"),
        (("--engine", "dpu-b4096", "--board", "u999"), "'u999' is neither a known board nor a YAML file"),
    ],
)
def test_unusable_flags_are_refused(tmp_path, flags, complaint):
    done = run_stage(SCRIPT, "--out", write_tables(tmp_path / "out", *small()), *flags)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert complaint in done.stderr
    assert not (tmp_path / "out/overlay_layers.csv").exists()
