"""24 plans again with one thing changed at a time, and each row is what 07 says of such a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.fpga.device.board_files import load_board
from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import MODEL_ID, small, write_tables

SCRIPT = "24_what_if.py"
BOARDS = Path(__file__).resolve().parents[2] / "configs" / "boards"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = write_tables(tmp_path_factory.mktemp("out"), *small())
    done = run_stage(SCRIPT, "--out", folder, "--precision", "int8")
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def rows(out):
    return pd.read_csv(out / "what_if_plans.csv").set_index(["what_if_subject", "what_if_setting"])


@pytest.mark.slow
def test_each_question_changes_one_thing(rows):
    plan = rows.loc["plan"].iloc[0]
    assert set(rows.index.get_level_values(0)) == {"plan", "clock", "link", "precision", "board"}
    for subject, columns in {
        "clock": ["board", "precision", "link_bytes_per_s"],
        "link": ["board", "precision", "clock_mhz"],
        "precision": ["board", "link_bytes_per_s"],
    }.items():
        assert (rows.loc[subject, columns] == plan[columns]).all(axis=None), subject
    assert rows.loc["link", "link_bytes_per_s"].tolist() == [
        pytest.approx(factor * plan["link_bytes_per_s"]) for factor in (0.25, 0.5, 2.0, 4.0)
    ]
    assert rows.loc["precision"].index.tolist() == rows.loc["precision", "precision"].tolist()
    assert rows.loc["board"].index.tolist() == rows.loc["board", "board"].tolist()


@pytest.mark.slow
def test_a_faster_clock_or_link_never_takes_longer(rows):
    plan_us = rows.loc["plan", "plan_latency_likely_us"].iloc[0]
    for subject, faster in (("clock", ["375 MHz"]), ("link", ["2x the rate", "4x the rate"])):
        for setting, us in rows.loc[subject, "plan_latency_likely_us"].items():
            assert (us <= plan_us * (1 + 1e-9)) if setting in faster else (us >= plan_us * (1 - 1e-9)), setting


@pytest.mark.slow
def test_a_question_is_answered_as_07_answers_it(out, rows):
    done = run_stage("07_fpga_candidates.py", "--out", out, "--precision", "int8", "--what-if", "board=u50")
    assert done.returncode == 0, done.stderr
    compared = pd.read_csv(out / "offload_comparison.csv").set_index("alternative")
    columns = ["plan_latency_likely_us", "latency_speedup_factor", "latency_pays_probability"]
    for alternative, question in (("plan", rows.loc["plan"].iloc[0]), ("board=u50", rows.loc["board", "u50"])):
        assert compared.loc[alternative, columns].tolist() == pytest.approx(question[columns].tolist())


@pytest.mark.slow
def test_a_board_with_a_processor_of_its_own_has_no_gain(out, rows):
    of_its_own = rows.loc["board", "zcu104"]
    assert not of_its_own["is_judged"] and pd.isna(of_its_own["latency_pays_probability"])
    boards = rows.loc["board", "is_other_host"]
    assert {name for name in boards.index if load_board(name, BOARDS).own_processor} == set(boards.index[boards])
    assert len(boards) > boards.sum() >= 4
    assert not rows.loc[["plan", "clock", "link", "precision"], "is_other_host"].any()
    printed = (out / "printed.txt").read_text()
    line = next(line for line in printed.splitlines() if "zcu104" in line and line.startswith("board"))
    assert line.split()[-3:] == ["–", "–", "–"]
    assert printed.startswith("The ")


FIRST = {"mixture_index": 0, "float_nodes": ["/y"], "is_written_model": False}
WRITTEN = {"mixture_index": 1, "float_nodes": ["/b"], "is_written_model": True}


def with_mixtures(folder, rows):
    """Write what 28 --mixed would have written of mixtures, and no table of formats."""
    shared = {
        "number_format": "int8",
        "quantization_scheme": "per channel, min-max",
        "format_verdict": "survives",
        "sample_source": "given",
        "judged_sample_count": 100,
        "converted_node_count": 2,
        "format_macs_share": 0.6,
        "predicted_sqnr_db": 30.0,
        "sqnr_db": 30.0,
        "calibration_sqnr_db": 30.0,
        "calibration_top1_agreement_share": 1.0,
        "top1_agreement_share": 0.99,
        "top1_agreement_low_share": 0.95,
        "top1_agreement_high_share": 1.0,
        "is_within_bounds": True,
    }
    record = Provenance("28_precision.py", "28_precision.py", model_id=MODEL_ID, model_path="synthetic.onnx")
    with Transaction(folder, record) as transaction:
        transaction.add_rows("precision_mixtures", [{**shared, **row} for row in rows])


@pytest.mark.slow
def test_each_mixture_is_planned_and_07_plans_the_written_one(tmp_path):
    folder = write_tables(tmp_path, *small())
    with_mixtures(folder, [FIRST, WRITTEN])
    flags = ("--out", folder, "--precision", "int8", "--mixed-with", "bf16")
    for script, more in ((SCRIPT, ()), ("07_fpga_candidates.py", ("--hand-off", tmp_path / "design"))):
        assert (done := run_stage(script, *flags, *more)).returncode == 0, done.stderr
    rows = pd.read_csv(folder / "what_if_plans.csv").set_index("what_if_subject").loc["mixture"]
    assert rows["what_if_setting"].tolist() == ["0: int8 and bf16", "1: int8 and bf16"]
    assert rows["planned_mixture_index"].tolist() == [0, 1]
    assert rows["wider_precision"].tolist() == ["bf16", "bf16"]
    plan = pd.read_csv(folder / "offload_comparison.csv").set_index("alternative").loc["plan"]
    assert plan["plan_latency_likely_us"] == pytest.approx(rows["plan_latency_likely_us"].tolist()[1])
    kernels = pd.read_csv(folder / "offload_plan.csv")
    candidates = pd.read_csv(folder / "fpga_candidates.csv")
    chosen = candidates[candidates["is_chosen"]]
    of_wider = chosen[chosen["source_nodes"].str.contains("/b")]["kernel"].tolist()
    assert set(kernels[kernels["precision"] == "bf16"]["kernel"]) == set(of_wider)
    specified = {path.stem: json.loads(path.read_text())["precision"] for path in (tmp_path / "design").glob("K*.json")}
    assert specified == dict(zip(kernels["kernel"], kernels["precision"], strict=True))
    assert "in int8 and bf16" in (tmp_path / "design" / "README.md").read_text()


def test_a_mixed_plan_needs_a_mixture(tmp_path):
    folder = write_tables(tmp_path, *small())
    flags = ("--out", folder, "--precision", "int8", "--mixed-with", "bf16")
    missing = run_stage("07_fpga_candidates.py", *flags)
    assert missing.returncode == 3 and "28_precision.py" in missing.stderr
    with_mixtures(folder, [FIRST])
    unmet = run_stage("07_fpga_candidates.py", *flags)
    assert unmet.returncode == 2
    assert unmet.stderr.splitlines()[-1].endswith(
        "no mixture with int8 met its bounds; run 28_precision.py --mixed in that format"
    )
