from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks import process
from benchmarks.pipeline import profiled, scaling, stages, synthetic, unbound
from benchmarks.process import CommandRun
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import Provenance, sidecar
from common.artifacts.stages import STAGES

STUB = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(out / "ran.log").open("a").write(" ".join(["{script}", *sys.argv[1:]]) + "\\n")
pathlib.Path("ran.log").write_text((out / "ran.log").read_text())
"""


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of stubs with a finished folder, whose sidecars record how each stage ran."""
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    for script in stages.BUDGET_S:
        (tmp_path / script).write_text(STUB.format(script=script))
        file = folder / ARTIFACTS[STAGES[script].primary].file
        sidecar(file).write_text(Provenance(script, f"{script} --out out --flag 'a b' --quiet").to_json())
    return folder


def test_every_computed_stage_has_a_budget() -> None:
    assert {script: budget for script, budget in stages.BUDGET_S.items() if script < "10"} == {
        "02_shapes_flops_bytes.py": 2.0,
        "03_merge_profile_metrics.py": 2.0,
        "04_critical_path.py": 2.0,
        "05_energy_estimate.py": 2.0,
        "06_plots.py": 6.0,
        "07_fpga_candidates.py": 2.0,
        "09_trace_report.py": 2.0,
    }


@pytest.mark.slow
def test_stages_run_on_a_copy_with_the_flags_they_ran_with(finished: Path) -> None:
    before = sorted(finished.iterdir())
    times = stages.measure(finished, 2)
    lines = (finished.parent / "ran.log").read_text().splitlines()
    assert sorted(finished.iterdir()) == before
    assert [line.split()[0][:2] for line in lines] == [
        n for n in ("02", "03", "04", "05", "07", "09", "06") for _ in "ab"
    ]
    assert all(" --flag a b --out /" in line and line.endswith(" --quiet") for line in lines)
    assert not any(f"--out {finished}" in line for line in lines)
    assert {script: len(taken) for script, taken in times.items()} == dict.fromkeys(stages.BUDGET_S, 2)


def test_the_best_run_counts_and_what_is_above_its_budget_is_marked() -> None:
    text = stages.report({"02_shapes_flops_bytes.py": [2.5, 1.97], "06_plots.py": [6.01, 7.0]})
    rows = [line.split() for line in text.splitlines()[1:]]
    assert rows[0] == ["02_shapes_flops_bytes.py", "1.97", "s", "2.50", "s", "2.00", "s"]
    assert rows[1] == ["06_plots.py", "6.01", "s", "7.00", "s", "6.00", "s", "above"]


@pytest.mark.parametrize(("seconds", "code"), [(1.9, 0), (2.1, 1)])
def test_the_exit_code_says_whether_all_are_in_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, code: int
) -> None:
    monkeypatch.setattr(stages, "measure", lambda folder, repetitions: {"04_critical_path.py": [seconds] * repetitions})
    assert stages.main(["--repetitions", "3"]) == code
    assert f"{seconds:.2f} s" in capsys.readouterr().out


def test_a_folder_that_is_not_finished_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stages.main(["--out", str(tmp_path)]) == 3
    missing = tmp_path / "op_metrics.meta.json"
    assert capsys.readouterr().err == f"stages.py: error: {missing}: not found; run 02_shapes_flops_bytes.py\n"


@pytest.mark.slow
def test_a_stage_that_fails_is_one_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished.parent / "04_critical_path.py").write_text("raise SystemExit('no luck')")
    assert stages.main(["--out", str(finished)]) == 1
    assert "04_critical_path.py: failed (no luck); " in capsys.readouterr().err


# --- scaling --------------------------------------------------------------------------------------------------------

MIB = 2**20
GIB = 2**30


def python(code: str, *, timeout_s: float = 60.0, memory_bytes: int = 8 * GIB) -> CommandRun:
    return process.run([sys.executable, "-S", "-c", code], timeout_s=timeout_s, memory_bytes=memory_bytes)


@pytest.mark.slow
def test_the_peak_is_that_of_the_command_and_not_of_who_started_it() -> None:
    held = bytearray(200 * MIB)
    small = python("pass")
    large = python("bytearray(96 << 20)")
    assert not small.failure
    assert small.peak_bytes < 64 * MIB < len(held)
    assert 96 * MIB < large.peak_bytes < 128 * MIB


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("raise SystemExit('no luck')", "no luck"),
        ("bytearray(9 << 30)", "MemoryError"),
        ("raise SystemExit(5)", "exit code 5"),
    ],
)
def test_a_command_that_fails_says_why(code: str, failure: str) -> None:
    run = python(code)
    assert (run.failure, run.timed_out) == (failure, False)


def test_a_command_that_takes_too_long_is_killed() -> None:
    run = python("import time; time.sleep(60)", timeout_s=0.2)
    assert run.timed_out
    assert scaling.figures(run) == ["> 0", "-"]


@pytest.mark.slow
def test_the_first_failure_ends_the_repetitions(tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"
    options = {"timeout_s": 60.0, "memory_bytes": 8 * GIB}
    assert not process.best([sys.executable, "-S", "-c", count], 3, **options).failure
    assert process.best([sys.executable, "-S", "-c", f"{count}; exit(1)"], 3, **options).failure
    assert (tmp_path / "runs").read_text() == "xxxx"


@pytest.mark.parametrize(("build", "asked", "made"), [("transformer", 100, 3 * 36), ("convolutional", 10, 2 * 7)])
def test_models_are_valid_and_as_large_as_asked_for(tmp_path: Path, build: str, asked: int, made: int) -> None:
    path = tmp_path / "model.onnx"
    assert getattr(synthetic, build)(path, asked) == made
    model = onnx.load(path)
    assert len(model.graph.node) == made
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    assert all(dim.dim_value for value in inferred.value_info for dim in value.type.tensor_type.shape.dim)


def test_a_side_file_is_a_hole_of_the_size_that_was_asked_for(tmp_path: Path) -> None:
    """Two layers of 12 squares of float32: 12 * 2 * 4 * 3344**2 is the first even width above 1 GiB."""
    assert synthetic.width_for(72, GIB) == 3346
    assert 12 * 2 * 4 * 3344**2 < GIB <= 12 * 2 * 4 * 3346**2
    synthetic.main(["transformer", "72", str(tmp_path / "large.onnx"), "--weights-gib", "1"])
    side = (tmp_path / "large.onnx.data").stat()
    assert side.st_size >= GIB
    assert side.st_blocks * 512 < MIB
    assert (tmp_path / "large.onnx").stat().st_size < MIB


def test_a_scale_is_fused_into_its_product_and_nothing_else_is_lost(tmp_path: Path) -> None:
    """A layer of 36 nodes has eight products, of which the one of the scores has a scale."""
    synthetic.transformer(tmp_path / "model.onnx", 36)
    graph = onnx.load(tmp_path / "model.onnx").graph
    before = {name for node in graph.node if node.op_type != "MatMul" for name in node.output}
    profiled.fuse_scales(graph)
    assert len(graph.node) == 35
    assert [node.op_type for node in graph.node].count("FusedMatMul") == 1
    assert [node.op_type for node in graph.node].count("MatMul") == 7
    assert {name for node in graph.node for name in node.output} >= before


@pytest.mark.slow
def test_the_stages_read_what_stands_in_for_a_profile(tmp_path: Path) -> None:
    case = scaling.Case("transformer", 36)
    model, count = case.build(tmp_path)
    for name in ("02", "03", "04"):
        if name == "03":
            profiled.main([str(model), str(tmp_path / "out")])
        done = subprocess.run(
            scaling.stage(name, model, tmp_path / "out"), cwd=process.ROOT, capture_output=True, text=True, check=False
        )
        assert (name, done.returncode, done.stderr) == (name, 0, "")
    assert count == 36
    assert len((tmp_path / "out" / "op_schedule.csv").read_text().splitlines()) == 1 + 35


def row(program: str, nodes: int, seconds: float, megabytes: float = 120.0, **options: object) -> scaling.Row:
    case = scaling.Case("transformer", {1512: 1_500, 12_024: 12_000}[nodes])
    return scaling.Row(case, nodes, program, CommandRun(seconds, int(megabytes * 1e6), **options))  # type: ignore[arg-type]


def test_the_table_holds_ratios_budgets_and_failures() -> None:
    rows = [
        row("02", 1512, 0.8),
        row("onnx", 1512, 0.2),
        row("onnxsim", 1512, 0.5, failure="ModuleNotFoundError: No module named 'onnxsim'"),
        row("onnx-tool", 1512, 60.0, failure="exit code -9", timed_out=True),
        row("02", 12_024, 2.0),
    ]
    lines = scaling.against_peers(rows).splitlines()
    assert lines[1].split() == ["transformer", "1512", "02", "0.80", "120", "1.00", "1.2", "s,", "160", "MB"]
    assert lines[2].split() == ["transformer", "1512", "onnx", "0.20", "120", "0.25"]
    assert lines[3].split() == ["transformer", "1512", "onnxsim", "fails", "-", "-"]
    assert lines[4].split() == ["transformer", "1512", "onnx-tool", ">", "60", "-", "-"]
    assert lines[5].endswith("1.8 s, 160 MB: above")
    assert lines[6:] == ["onnxsim on transformer of 1512 nodes fails (ModuleNotFoundError: No module named 'onnxsim')"]


def test_growth_is_per_further_node() -> None:
    """(1.85128 - 0.8) s and (141.024 - 120) MB over 10512 nodes."""
    rows = [row("03", 1512, 0.8), row("03", 12_024, 1.85120, 141.024)]
    lines = scaling.growth(rows).splitlines()
    assert lines[1].split() == ["03", "transformer", "1512", "0.80", "120"]
    assert lines[2].split() == ["03", "transformer", "12024", "1.85", "141", "100.0", "2.00"]


def test_every_peer_is_a_program_that_compiles() -> None:
    for peer in scaling.PEERS:
        command = scaling.peer_command(peer, Path("model.onnx"))
        compile(command[2], peer, "exec")
        assert command[3] == "model.onnx"


@pytest.mark.parametrize(("seconds", "megabytes", "is_kept"), [(3.8, 159, True), (4.2, 159, False), (3.8, 161, False)])
def test_unbound_dimensions_have_limits_of_time_and_memory(seconds: float, megabytes: float, is_kept: bool) -> None:
    bound = CommandRun(1.1, 120_000_000, processor_seconds=2.0)
    run = CommandRun(1.0, int(megabytes * 1e6), processor_seconds=seconds)
    assert unbound.is_kept(run, bound) is is_kept
    row = unbound.report(37, run, bound).splitlines()[-1].split()
    assert row[:4] == ["37", f"{seconds:.2f}", "2.00", f"{seconds / 2:.2f}"]
    assert ("within" in row) is is_kept


@pytest.mark.slow
def test_unbound_and_bound_runs_are_compared(tmp_path: Path) -> None:
    """Both kinds run, on a model whose dimensions the bindings name."""
    model, count = scaling.Case("unbound", 30).build(tmp_path)
    assert count == synthetic.LAYER_NODES
    runs = unbound.compare(model, unbound.BINDINGS, tmp_path / "out", 1)
    assert all(run.processor_seconds > 0 and run.peak_bytes > 50e6 for run in runs)
    with pytest.raises(SystemExit, match="fails"):
        unbound.compare(model, ["none=3"], tmp_path / "out", 1)
