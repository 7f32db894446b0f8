"""Stage 06 through its command line: any subset of the tables, stale, foreign and corrupt ones."""

import errno
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.artifacts.folder import Folder
from common.artifacts.journal import STAGING
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.messages.errors import PipelineError, UpstreamError
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.design import design_tables
from tests.support.tables.view import all_tables, write

SCRIPT = "06_plots.py"
PICTURES = {
    f"{name}.{suffix}"
    for name in ("roofline", "energy", "schedule", "latency", "offload", "timeline", "front", "resources")
    for suffix in ("svg", "png")
}
DESIGNS = ("front", "buffer", "energy", "nest", "progress")
DESIGN_PICTURES = {f"design_{name}.{suffix}" for name in DESIGNS for suffix in ("svg", "png")}
stage = importlib.import_module("06_plots")
TABLES = all_tables()


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def out(tmp_path):
    return write(tmp_path / "tables", TABLES)


def drawn(out):
    return {path.name for path in (out / "plots").glob("*")} if (out / "plots").exists() else set()


def run(out, *flags):
    assert stage.main(["--out", str(out), *flags]) == 0
    return (out / "summary.txt").read_text(encoding="utf-8")


def shell(*flags):
    return subprocess.run([sys.executable, SCRIPT, *flags], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_full_folder_gives_every_picture_the_report_and_the_summary(out):
    result = shell("--out", str(out))
    assert (result.returncode, result.stdout) == (0, (out / "summary.txt").read_text(encoding="utf-8"))
    assert drawn(out) == PICTURES
    report = (out / "report.html").read_text(encoding="utf-8")
    assert report.count("<svg") == len(PICTURES) / 2 + 1  # and the graph by blocks
    assert result.stdout.splitlines()[0] in report
    written = [line for line in result.stderr.splitlines() if line.startswith("wrote ")]
    assert re.fullmatch(rf"wrote {re.escape(str(out))}/report\.html and \d+ more files", *written)
    assert not (out / STAGING).exists()


@pytest.mark.slow
def test_the_design_space_is_drawn_where_08_has_run(tmp_path):
    summary = run(write(tmp_path / "both", TABLES | design_tables()))
    assert drawn(tmp_path / "both") == PICTURES | DESIGN_PICTURES
    assert "DESIGN SPACE\n  best       gemmini scratchpad_kib=128 array=16x16, exact: EDP 3.0518e+13" in summary
    report = (tmp_path / "both" / "report.html").read_text(encoding="utf-8")
    assert '<section id="design">' in report
    assert "08_design_space.py --out both" in report


@pytest.mark.slow
def test_the_design_space_is_drawn_alone(tmp_path, capsys):
    summary = run(write(tmp_path / "alone", design_tables()), "--all-notes")
    assert drawn(tmp_path / "alone") == DESIGN_PICTURES
    assert "DESIGN SPACE" in summary
    notes = capsys.readouterr().err
    assert "absent: ops_profile.csv" in notes
    assert "design" not in "".join(line for line in notes.splitlines() if line.startswith("note"))


@pytest.mark.slow
def test_where_08_has_not_run_nothing_says_so(out):
    summary = run(out)
    assert "DESIGN" not in summary and "08_design_space" not in summary
    assert "design" not in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.no_cover
def test_two_runs_give_the_same_bytes(out):
    run(out)
    first = {path: path.read_bytes() for path in [out / "report.html", *(out / "plots").iterdir()]}
    run(out)
    assert {path: path.read_bytes() for path in first} == first


@pytest.mark.slow
def test_quiet_says_nothing(out, capsys):
    run(out, "--quiet")
    assert capsys.readouterr() == ("", "")


def test_ceilings_that_another_version_wrote_are_no_table_to_draw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "host_ceilings.json").write_text("{}")
    (tmp_path / "out" / "host_ceilings.meta.json").write_text('{"format_version": 1}')
    result = run_stage(SCRIPT, "--out", tmp_path / "none")
    assert (result.returncode, "no tables to draw" in result.stderr) == (3, True)


def test_an_empty_folder_names_the_first_command(tmp_path):
    result = run_stage(SCRIPT, "--out", tmp_path / "none")
    assert result.returncode == 3
    assert result.stderr == f"06_plots.py: error: {tmp_path}/none: no tables to draw; run 01_profile_onnx.py first\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "pictures"),
    [
        (("run_latency",), {"latency"}),
        (("op_roofline", "host_ceilings"), {"roofline"}),
        (("op_schedule", "critical_path"), {"schedule"}),
        (("ops_profile",), {"energy"}),
        (("energy_summary", "efficiency"), set()),
        (("latency_summary",), set()),
        (("speedup",), {"offload"}),
        (("fpga_candidates", "offload_plan"), set()),
    ],
)
def test_any_subset_is_drawn_and_the_rest_is_noted_with_its_command(tmp_path, capsys, names, pictures):
    out = write(tmp_path / "some", {name: TABLES[name] for name in names})
    run(out, "--all-notes")
    assert drawn(out) == {f"{name}.{suffix}" for name in pictures for suffix in ("svg", "png")}
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: absent")]
    absent = {name for name in (*TABLES, "replica_plans", "replica_rates") if name not in names}
    assert sum(note.count(".csv") + note.count(".json") for note in notes) == len(absent)
    assert all("; run 0" in note for note in notes)


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_stale_table_is_drawn_with_a_note(out):
    record = Provenance("05_energy_estimate.py", "05")
    Folder(out, record).table("op_roofline")
    with Transaction(out, record) as transaction:
        transaction.add_table("ops_profile", TABLES["ops_profile"])
    changed = TABLES["op_roofline"].assign(raw_total_us=13.0)
    merge = Provenance("03_merge_profile_metrics.py", "03", model_id=record.model_id)
    with Transaction(out, merge) as transaction:
        transaction.add_table("op_roofline", changed)
    summary = run(out)
    assert drawn(out) == PICTURES
    assert "stale: op_roofline.csv was written again after it" in " ".join(summary.split())


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_table_of_another_model_is_drawn_with_one_note(out):
    write(out, {name: TABLES[name] for name in ("op_schedule", "critical_path")}, model_id="12" * 32)
    notes = run(out)
    assert drawn(out) == PICTURES
    assert " ".join(notes.split()).count("of model 121212121212") == 1


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_corrupt_table_is_left_out_and_its_old_picture_goes(out):
    run(out)
    (out / "op_schedule.csv").write_text("nonsense\n", encoding="utf-8")
    summary = " ".join(run(out).split())
    assert drawn(out) == {name for name in PICTURES if not name.startswith("schedule")}
    assert "left out: " in summary
    assert "op_schedule.csv: changed since it was written; run 04_critical_path.py" in summary


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_corrupt_sidecar_leaves_its_table_out(out):
    (out / "speedup.meta.json").write_text("{", encoding="utf-8")
    (out / "fpga_candidates.meta.json").write_text("{", encoding="utf-8")
    assert "speedup.meta.json: corrupt" in " ".join(run(out).split())
    assert "offload.svg" not in drawn(out)


@pytest.mark.slow
def test_ceilings_may_stand_in_the_shared_folder_or_where_the_flag_says(tmp_path):
    out = write(tmp_path / "some", {"op_roofline": TABLES["op_roofline"]})
    ceilings = {"host_ceilings": TABLES["host_ceilings"] | {"stable": False, "peak_halves_difference_share": 0.11}}
    other = write(tmp_path / "other", ceilings) / "host_ceilings.json"
    assert "unstable" not in run(out)
    assert "unstable" in run(out, "--ceilings", str(other))
    write(tmp_path / "out", ceilings)
    assert "unstable" in run(out)


@pytest.mark.slow
def test_ceilings_that_the_flag_names_must_exist(out, tmp_path):
    with pytest.raises(
        UpstreamError, match=r"none.json: not found; run 00_host_ceilings.py first, or leave --ceilings"
    ):
        run(out, "--ceilings", str(tmp_path / "none.json"))


def test_ceilings_alone_are_nothing_to_draw(tmp_path):
    out = write(tmp_path / "some", {"host_ceilings": TABLES["host_ceilings"]})
    with pytest.raises(UpstreamError, match=r"no tables to draw; run 01_profile_onnx.py first"):
        run(out)


@pytest.mark.slow
@pytest.mark.no_cover
def test_notes_of_every_stage_reach_the_summary(tmp_path):
    out = write(
        tmp_path / "some", TABLES, notes={"07_fpga_candidates.py": ["an estimate"], "00_host_ceilings.py": ["loud"]}
    )
    summary = run(out)
    assert "  - [00] loud" in summary
    assert "  - [07] an estimate" in summary


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_failure_while_writing_leaves_the_earlier_pictures(out, monkeypatch):
    run(out)
    before = {path: path.read_bytes() for path in (out / "plots").iterdir()}
    write(out, {"op_schedule": TABLES["op_schedule"].head(31)})

    def fill(path, content):
        if path.name == "latency.png":
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(content)

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(PipelineError, match="the disk is full; free some space or use --out FOLDER"):
        run(out)
    assert {path: path.read_bytes() for path in before} == before
    assert not (out / STAGING).exists()


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit):
        stage.main(["--help-all"])
    assert "EXAMPLE of input" in capsys.readouterr().out
