from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import stages
from common.artifacts.catalogue import ARTIFACTS, STAGES
from common.artifacts.provenance import Provenance, sidecar

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
        file = folder / ARTIFACTS[STAGES[script].writes[0]].file
        sidecar(file).write_text(Provenance(script, f"{script} --out out --flag 'a b' --quiet").to_json())
    return folder


def test_every_computed_stage_has_a_budget() -> None:
    assert {script: budget for script, budget in stages.BUDGET_S.items() if script < "08"} == {
        "02_shapes_flops_bytes.py": 2.0,
        "03_merge_profile_metrics.py": 2.0,
        "04_critical_path.py": 2.0,
        "05_energy_estimate.py": 2.0,
        "06_plots.py": 6.0,
        "07_fpga_candidates.py": 2.0,
    }


def test_stages_run_on_a_copy_with_the_flags_they_ran_with(finished: Path) -> None:
    before = sorted(finished.iterdir())
    times = stages.measure(finished, 2)
    lines = (finished.parent / "ran.log").read_text().splitlines()
    assert sorted(finished.iterdir()) == before
    assert [line.split()[0][:2] for line in lines] == [n for n in ("02", "03", "04", "05", "07", "06") for _ in "ab"]
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


def test_a_stage_that_fails_is_one_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished.parent / "04_critical_path.py").write_text("raise SystemExit('no luck')")
    assert stages.main(["--out", str(finished)]) == 1
    assert "04_critical_path.py: failed (no luck); " in capsys.readouterr().err
