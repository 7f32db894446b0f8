from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.cli import ROOT
from common.messages.errors import ConfigurationError, PipelineError, UnusableValueError, UpstreamError
from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import Executed, Model, executed_resnet50, resnet50, small, write_tables

SCRIPT = "07_fpga_candidates.py"
stage = importlib.import_module("07_fpga_candidates")


TOTAL_US = 31 + 5_003 + 211 + 2_503 + 401 + 17
CASES = ("pessimistic", "likely", "optimistic")
TABLES = ("fpga_candidates", "offload_plan", "offload_schedule", "offload_comparison", "board_resources", "speedup")
TABLES += ("offload_verdict",)


@pytest.fixture
def out(tmp_path):
    return write_tables(tmp_path / "out", *small())


@pytest.fixture(scope="module")
def resnet_out(tmp_path_factory):
    model = resnet50()
    return write_tables(tmp_path_factory.mktemp("resnet"), model, executed_resnet50(model))


@pytest.fixture(scope="module")
def planned(resnet_out):
    """Tables of ResNet-50 for some flags, planned once for all tests: a test must not change them."""

    @cache
    def plan(*flags: str) -> dict[str, pd.DataFrame]:
        return run(resnet_out, *flags)

    return plan


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of the small model without flags, planned once for all tests: a test must not change them."""
    return run(write_tables(tmp_path_factory.mktemp("small"), *small()))


FP32 = ("--precision", "fp32")  # the formats of most tests here; a later flag overrides it


def run(out: Path, *flags: str) -> dict[str, pd.DataFrame]:
    assert stage.main(["--out", str(out), "--all-notes", *FP32, *flags]) == 0
    tables = Folder(out, Provenance("test", "test"))
    return {name: tables.table(name) for name in TABLES}


def term(tables: dict[str, pd.DataFrame], objective: str, name: str) -> pd.Series:
    found = tables["speedup"]
    return found[(found["objective"] == objective) & (found["term"] == name)].iloc[0]


def shell(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--out", str(out), *FP32, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_microsecond_of_the_trace_is_in_one_group_or_stays_with_the_host(tables):
    found = tables["fpga_candidates"]
    found = found[found["group_count"] == 1]
    assert found["host_latency_us"].sum() == pytest.approx(5_003 + 211 + 2_503 + 401)
    assert found["host_energy_uj"].sum() == pytest.approx(300_007 + 10_007 + 150_001 + 20_011)
    assert found["candidate"].tolist() == ["G1", "G2", "G3", "G4", "G5"]
    assert found["pattern"].tolist() == ["Conv+Relu", "Conv", "Gemm", "MaxPool", "Flatten"]
    # the only group with multiplications takes the node that also computes the Flatten
    assert found["host_latency_us"].tolist() == [5_003.0, 2_503.0, 401.0, 211.0, 0.0]
    assert found["executed_nodes"].tolist()[-1] == ["gemm"]
    assert found["host_latency_share"].iloc[0] == pytest.approx(5_003 / TOTAL_US)


def test_a_chain_costs_the_host_what_its_groups_cost(tables):
    found = tables["fpga_candidates"]
    chains = found[found["kernel_kind"] == "chain"]
    assert len(chains)
    cost = dict(zip(found["candidate"], found["host_latency_us"], strict=True))
    nodes = {name: found["source_nodes"].iloc[row] for row, name in enumerate(found["candidate"])}
    for chain in chains["candidate"]:
        members = [name for name in cost if name[0] == "G" and set(nodes[name]) <= set(nodes[chain])]
        assert cost[chain] == pytest.approx(sum(cost[name] for name in members))


@pytest.mark.slow
def test_the_timeline_adds_up_to_the_terms(out):
    """From the intervals alone: what each lane does, and when the last one ends."""
    tables = run(out, "--precision", "int8")
    spans = tables["offload_schedule"]
    spans = spans.assign(us=spans["interval_finish_us"] - spans["interval_start_us"])
    before, after = (spans[spans["scenario"] == name] for name in ("before", "after"))
    assert before["interval_finish_us"].max() == pytest.approx(TOTAL_US)
    assert after["interval_finish_us"].max() == pytest.approx(term(tables, "latency", "new_total")["likely"])
    took = after.groupby("activity")["us"].sum()
    for activity, name in (("transfer", "transfer"), ("launch", "launch"), ("conversion", "conversion")):
        assert took[activity] == pytest.approx(term(tables, "latency", name)["likely"])
    kernels_us = tables["offload_plan"]["kernel_latency_likely_us"].sum()
    assert took["kernel"] == pytest.approx(kernels_us)
    share = term(tables, "latency", "accelerated_fraction")["likely"]
    assert took["host"] == pytest.approx(TOTAL_US * (1 - share))
    assert term(tables, "latency", "kernel_speedup")["likely"] == pytest.approx(TOTAL_US * share / kernels_us)
    overlap = term(tables, "latency", "overlap")["likely"]
    assert took.sum() - overlap == pytest.approx(after["interval_finish_us"].max())


@pytest.mark.slow
def test_no_lane_does_two_things_at_once_and_the_host_keeps_its_order(planned):
    spans = planned("--precision", "int8")["offload_schedule"]
    for (_, lane), found in spans.groupby(["scenario", "lane"]):
        if lane.startswith("convert"):  # each tensor in flight has its converter
            continue
        rows = found.sort_values("interval_start_us")
        gaps = rows["interval_start_us"].iloc[1:].to_numpy() - rows["interval_finish_us"].iloc[:-1].to_numpy()
        assert (gaps > -1e-6).all(), lane
    order = spans[(spans["scenario"] == "before")]["item"].tolist()
    host = spans[(spans["scenario"] == "after") & (spans["lane"] == "host")].sort_values("interval_start_us")
    assert [order.index(item) for item in host["item"]] == sorted(order.index(item) for item in host["item"])


@pytest.mark.slow
def test_what_stands_on_the_board_is_the_sum_of_its_engines_and_closes(planned):
    tables = planned("--precision", "int8")
    plan, board = tables["offload_plan"], tables["board_resources"].set_index(["region", "resource"])
    for resource, column in (("lut", "lut_count"), ("dsp", "dsp_count"), ("bram36", "bram36_count")):
        assert board.loc[("board", resource), "used_count"] == pytest.approx(plan[column].sum())
    assert (board["used_count"] <= board["budget_count"] * (1 + 1e-9)).all()
    assert (board["budget_count"] <= board["usable_count"]).all()
    assert (board["usable_count"] <= board["total_count"]).all()
    regions = board.drop("board", level="region")["total_count"].groupby("resource").sum()
    assert regions["dsp"] == board.loc[("board", "dsp"), "total_count"] == 9_024


@pytest.mark.slow
def test_the_plan_is_no_worse_than_its_baselines_and_no_better_than_its_bound(planned):
    for precision in ("int8", "fp32"):
        found = planned("--precision", precision)["offload_comparison"].set_index("alternative")
        finish = found["plan_latency_likely_us"]
        for other in ("host alone", "greedy", "rule of thumb"):
            assert finish["plan"] <= finish[other] * (1 + 1e-9), other
        assert finish["proven bound"] <= finish["plan"] * (1 + 1e-6)
        assert finish["launch-per=phase"] <= finish["plan"] * (1 + 1e-6)  # fewer launches, and planned for itself
        assert found.loc[["plan", "launch-per=phase"], "launch_per"].tolist() == ["group", "phase"]
        assert finish["host alone"] == pytest.approx(64_000.0 * 0.93, rel=0.2)


@pytest.mark.slow
def test_pessimistic_is_worse_for_the_decision_in_every_table(out):
    tables = run(out)
    speedup = tables["speedup"].set_index(["objective", "term"])
    for objective in ("latency", "energy", "throughput"):
        row = speedup.loc[(objective, "total_speedup")]
        assert row["pessimistic"] < row["likely"] < row["optimistic"]
    costs = {
        "fpga_candidates": ("kernel_{}_cycles", "kernel_latency_{}_us"),
        "offload_plan": ("kernel_{}_cycles", "kernel_latency_{}_us", "kernel_power_{}_w", "kernel_energy_{}_uj"),
        "offload_comparison": ("plan_latency_{}_us",),
    }
    for name, columns in costs.items():
        for column in columns:
            worst, likely, best = (tables[name][column.format(case)].dropna() for case in CASES)
            assert len(worst)
            assert (worst > likely[worst.index]).all()
            assert (likely[best.index] >= best).all()  # equal where the likely case is the physical bound: a pool
            assert (likely[best.index] > best).any()


DISTURBED = {
    "other work": {"notes": ("the host was busy: other work took 1.3 of its 2 processors; stop it",)},
    "a level that changes": {"steady_state": "no steady state", "median_ends": (0.93, 1.05)},
    "many slow runs": {"slow_tenth": 1.17},
    "a gap": {"gap_us": 5_000.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", DISTURBED)
def test_a_disturbed_host_is_not_judged_and_nothing_pays(tmp_path, capsys, disturbance):
    """Other work on the machine made a median of 149 ms out of 18.3, and the plan was said to pay."""
    model, executed = small()
    out = write_tables(tmp_path, model, replace(executed, **DISTURBED[disturbance]))
    verdicts = run(out, "--precision", "int8")["offload_verdict"]
    assert verdicts["verdict"].tolist() == ["not judged"] * 3
    assert all(len(doubts) == 1 for doubts in verdicts["doubts"])
    printed = capsys.readouterr()
    assert printed.out.startswith("Not judged: ")
    assert "\n  - rerun 01_profile_onnx.py on an idle host\n" in printed.out
    assert not re.search(r"\d(\.\d+)?x\b", printed.out)
    assert "note: not judged: rerun 01_profile_onnx.py on an idle host (" in printed.err
    assert not re.search(r"\bpays?\b|breaks even", printed.out + printed.err)


@pytest.mark.slow
def test_a_level_that_changes_without_moving_the_median_is_judged_with_the_interval(tmp_path, capsys):
    model, executed = small()
    moving = replace(executed, steady_state="no steady state", median_ends=(0.98, 1.03))
    verdicts = run(write_tables(tmp_path, model, moving), "--precision", "int8")["offload_verdict"]
    assert "not judged" not in verdicts["verdict"].tolist()
    assert not capsys.readouterr().out.startswith("Not judged")


@pytest.mark.slow
def test_the_summary_says_first_that_nothing_is_judged(tmp_path):
    model, executed = small()
    out = write_tables(tmp_path, model, replace(executed, **DISTURBED["other work"]))
    run(out, "--precision", "int8")
    lines = run_stage("06_plots.py", "--out", out).stdout.splitlines()
    assert lines[0].startswith("Not judged: the host was busy")
    assert "  - rerun 01_profile_onnx.py on an idle host" in lines[: lines.index("WARNINGS")]
    assert not re.search(r"\bpays?\b", "\n".join(lines))
    offload = (out / "plots" / "offload.svg").read_text(encoding="utf-8")
    assert "Not judged: the host was busy" in offload


@pytest.mark.slow
def test_the_interval_of_the_median_is_in_every_figure_and_no_offload_stays_1(tmp_path):
    model, executed = small()
    wide = replace(executed, median_ends=(0.97, 1.06))
    exact = run(write_tables(tmp_path / "a", model, executed), "--precision", "int8")
    unsure = run(write_tables(tmp_path / "b", model, wide), "--precision", "int8")
    totals = term(unsure, "latency", "host_total")[list(CASES)].tolist()
    assert totals == pytest.approx([0.97 * TOTAL_US, TOTAL_US, 1.06 * TOTAL_US])
    for objective in ("latency", "energy", "throughput"):
        narrow, broad = (term(tables, objective, "total_speedup") for tables in (exact, unsure))
        assert broad["likely"] == pytest.approx(narrow["likely"])
        assert objective == "throughput" or broad["pessimistic"] < narrow["pessimistic"]
        assert objective == "throughput" or broad["optimistic"] > narrow["optimistic"]
    tiny = replace(wide, nodes=[(*node[:3], 0.001 * node[3], 0.001 * node[4]) for node in wide.nodes], gap_us=0.017)
    alone = run(write_tables(tmp_path / "c", model, tiny), "--precision", "int8")
    assert alone["offload_verdict"]["verdict"].tolist() == ["host alone"] * 3
    for objective in ("latency", "energy", "throughput"):
        assert term(alone, objective, "total_speedup")[list(CASES)].tolist() == pytest.approx([1.0] * 3, rel=1e-12)


@pytest.mark.slow
def test_less_moves_where_the_correction_may_have_left_too_much(tmp_path):
    """Each node may be 101 us shorter; at best the gap goes where the nodes go."""
    model, executed = small()
    unsure = replace(executed, correction_us=(200.0, 147.0, 301.0))
    tables = run(write_tables(tmp_path, model, unsure), "--precision", "int8")
    chosen = tables["fpga_candidates"].query("is_chosen")
    moved = {name for nodes in chosen["executed_nodes"] for name in nodes}
    times = {name: us for name, _, _, us, _ in executed.nodes}
    least = sum(us - 101 for name, us in times.items() if name in moved)
    likely = sum(us for name, us in times.items() if name in moved)
    most = likely * TOTAL_US / sum(times.values())
    found = term(tables, "latency", "accelerated_fraction")[list(CASES)].tolist()
    assert found == pytest.approx([least / TOTAL_US, likely / TOTAL_US, most / TOTAL_US])


@pytest.mark.slow
def test_patterns_are_counted_by_kernel(out):
    tables = run(out, "--precision", "int8")
    known = set(tables["fpga_candidates"]["pattern"])
    for row in tables["offload_plan"].to_dict("records"):
        assert sum(row["pattern_counts"].values()) == row["group_count"]
        assert set(row["pattern_counts"]) <= known


def test_resnet50_goes_to_the_card_in_int8(planned):
    tables = planned("--precision", "int8")
    candidates = tables["fpga_candidates"]
    groups = candidates[candidates["group_count"] == 1]
    assert groups.loc[groups["kernel_kind"] == "conv", "macs"].sum() + 2048 * 1000 == 4_089_184_256
    # no group alone reaches 10 %; the classes do
    assert groups["host_latency_share"].max() < 0.1
    conv = groups[groups["kernel_class"].isin(["conv 1x1", "conv 3x3"])]
    assert len(conv) == 3 * 16 + 4
    assert conv["is_large"].all()
    chosen = candidates[candidates["is_chosen"]]
    taken = {name for nodes in chosen["source_nodes"] for name in nodes}
    convolutions = {nodes[0] for nodes in groups.loc[groups["kernel_kind"] == "conv", "source_nodes"]}
    assert convolutions <= taken
    assert term(tables, "latency", "total_speedup")["pessimistic"] > 1
    assert tables["offload_plan"]["group_count"].sum() == chosen["group_count"].sum()


def test_every_group_is_computed_once(planned):
    chosen = planned("--precision", "int8")["fpga_candidates"].query("is_chosen")
    taken = [name for nodes in chosen["source_nodes"] for name in nodes]
    assert len(taken) == len(set(taken))


@pytest.mark.slow
def test_lower_precision_is_faster_and_its_accuracy_is_said_to_be_unknown(resnet_out, planned, capsys):
    fp32 = term(planned(), "latency", "total_speedup")["likely"]
    int8 = term(run(resnet_out, "--precision", "int8"), "latency", "total_speedup")["likely"]
    assert int8 > fp32
    assert "int8: the model's accuracy in this number format is not judged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_speedup_from_a_vendors_tool(planned):
    tables = planned("--precision", "int8", "--kernel-speedup", "K1=3.2")
    first = tables["offload_plan"].iloc[0]
    assert first["host_latency_us"] / first["kernel_latency_likely_us"] == pytest.approx(3.2)
    assert first["board_bound"] == "given"


@pytest.mark.slow
def test_a_given_speedup_is_compared_with_the_host_alone(resnet_out, capsys):
    """The search did not know of it: no status, no bound, and no baseline in the models' times."""
    found = run(resnet_out, "--precision", "int8", "--kernel-speedup", "k1 = 3.2", "--what-if", "K1=10")
    rows = found["offload_comparison"].set_index("alternative")
    assert list(rows.index) == ["plan", "host alone", "K1=10"]
    assert (rows["plan_status"] == "").all()
    assert rows.loc["K1=10", "plan_latency_likely_us"] < rows.loc["plan", "plan_latency_likely_us"]
    assert found["offload_plan"].set_index("kernel")["kernel_likely_cycles"].isna()["K1"]
    assert "the given kernel speedups were applied to it afterwards" in capsys.readouterr().err


@pytest.mark.slow
def test_what_if_keeps_a_given_speedup_unless_it_names_another_board_or_format(planned):
    flags = ("--precision", "int8", "--kernel-speedup", "K1=3.2")
    rows = planned(*flags, "--what-if", "precision=int8", "--what-if", "precision=int4")["offload_comparison"]
    finish = rows.set_index("alternative")["plan_latency_likely_us"]
    assert finish["precision=int8"] == finish["plan"]
    assert finish["precision=int4"] != finish["plan"]


def test_chains_move_what_crosses_their_border(planned):
    found = planned("--precision", "int8")["fpga_candidates"]
    moved = dict(zip(found["candidate"], found["bytes"], strict=True))
    nodes = dict(zip(found["candidate"], map(set, found["source_nodes"]), strict=True))
    for chain in (name for name in moved if name.startswith("C")):
        members = [name for name in moved if name.startswith("G") and nodes[name] <= nodes[chain]]
        assert moved[chain] < sum(moved[name] for name in members)


def test_what_no_engine_serves_says_what_is_missing(planned):
    found = planned("--precision", "int8")["fpga_candidates"].set_index("candidate")
    pools = found[found["pattern"].str.contains("Pool") & found["engine"].isna()]
    assert (pools["reason"] == "no engine computes a pool within a chain").all()
    kept = found[found["reason"].str.startswith("no engine has buffers for the ")]
    assert (kept["kernel_kind"] == "chain").all()
    assert not found["is_chosen"][kept.index].any()


def test_a_pool_between_convolutions_stays_on_the_card(planned):
    """ResNet-50's MaxPool: on the host, its operands would cross the link twice."""
    found = planned("--precision", "int8")
    pool = found["fpga_candidates"].set_index("pattern").loc["MaxPool"]
    assert pool["is_chosen"]
    assert pool["engine"].startswith("rowwise-")


@pytest.mark.slow
def test_shares_stay_within_one_where_the_nodes_sum_above_the_median(tmp_path):
    model, executed = small()
    executed.gap_us = -2_011.0
    tables = run(write_tables(tmp_path, model, executed), "--precision", "int8")
    assert tables["offload_plan"]["host_latency_share"].sum() <= 1 + 1e-9
    before = tables["offload_schedule"].query("scenario == 'before'")
    assert before["interval_finish_us"].max() == pytest.approx(31 + 5_003 + 211 + 2_503 + 401 - 2_011)


@pytest.mark.slow
def test_nothing_hides_what_the_runtime_adds(tmp_path):
    """The gap comes last and waits for all: a plan is never quicker than the gap and its own kernels."""
    model, executed = small()
    executed.gap_us = 50_021.0
    spans = run(write_tables(tmp_path, model, executed), "--precision", "int8")["offload_schedule"]
    after = spans[spans["scenario"] == "after"]
    gap = after[after["item"] == "(gap)"].iloc[0]
    others = after[after["item"] != "(gap)"]
    kernels = others[others["activity"].isin(["kernel", "host"])]
    assert gap["interval_start_us"] >= kernels["interval_finish_us"].max() - 1e-6
    assert gap["interval_finish_us"] == pytest.approx(after["interval_finish_us"].max())


@pytest.mark.slow
def test_a_plan_that_does_not_pay_says_so(out, capsys):
    tables = run(out, "--kernel-speedup", "K1=0.5")
    assert term(tables, "latency", "total_speedup")["optimistic"] < 1
    assert "verdict   latency does not pay: 0." in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_that_is_too_quick_for_a_launch_stays_on_the_host(tmp_path, capsys):
    model, executed = small()
    faster = [(name, kind, sources, latency / 500, energy) for name, kind, sources, latency, energy in executed.nodes]
    tables = run(write_tables(tmp_path, model, Executed(faster)))
    assert tables["offload_plan"].empty
    assert term(tables, "latency", "total_speedup")["likely"] == 1
    assert pd.isna(term(tables, "latency", "kernel_speedup")["likely"])
    assert "no kernel chosen: with transfers and launches, every plan finishes later" in capsys.readouterr().err
    assert not tables["fpga_candidates"]["is_chosen"].any()
    assert tables["fpga_candidates"]["reason"].str.contains("later").any()


@pytest.mark.slow
def test_a_model_without_contractions_has_nothing_to_choose(tmp_path, capsys):
    model = Model(outputs=["y"])
    model.floats(x=(101,), y=(101,))
    model.add("Softmax", "x", "y", flops=505)
    run(write_tables(tmp_path, model, Executed([("soft", "node", ["/y"], 53.0, 7.0)])))
    assert "no kernel chosen: the model has no convolution, GEMM or attention" in capsys.readouterr().err


@pytest.mark.slow
def test_what_if_plans_again_and_leaves_the_plan_as_it_is(out, capsys):
    plain = run(out, "--precision", "int8")
    asked = run(out, "--precision", "int8", "--what-if", "board=u50,clock-mhz=200", "--what-if", "precision=int4")
    assert plain["offload_plan"].equals(asked["offload_plan"])
    found = asked["offload_comparison"].set_index("alternative")
    other = found.loc["board=u50,clock-mhz=200"]
    assert (other["board"], other["clock_mhz"], other["precision"]) == ("u50", 200, "int8")
    alone = run(out, "--precision", "int8", "--board", "u50")["offload_comparison"].set_index("alternative")
    assert alone.loc["plan", "plan_latency_likely_us"] <= other["plan_latency_likely_us"]  # at its own 300 MHz
    assert found.loc["precision=int4", "precision"] == "int4"
    shown = capsys.readouterr().out
    assert "board=u50" in shown
    assert "precision=int4" in shown


@pytest.mark.slow
def test_what_if_with_a_vendors_speedup_in_it(out):
    found = run(out, "--what-if", "K1=1000")["offload_comparison"].set_index("alternative")
    assert found.loc["K1=1000", "plan_latency_likely_us"] < found.loc["plan", "plan_latency_likely_us"]


@pytest.mark.slow
def test_an_overlay_may_stand_on_the_board_too(planned):
    flags = ("--board", "kv260", "--precision", "int8")
    alone, besides = planned(*flags), planned(*flags, "--engine", "dpu-b4096")
    finish = [found["offload_comparison"]["plan_latency_likely_us"][0] for found in (alone, besides)]
    assert finish[1] <= finish[0]
    assert "dpu-b4096" in set(besides["fpga_candidates"]["engine"])


@pytest.mark.slow
@pytest.mark.parametrize("unknown", [{"static_power_w": None}, {"gap_energy_uj": None}])
def test_energy_without_its_sources_is_empty_and_not_zero(tmp_path, capsys, unknown):
    model, executed = small()
    for name, value in unknown.items():
        setattr(executed, name, value)
    tables = run(write_tables(tmp_path, model, executed))
    energy = tables["speedup"][tables["speedup"]["objective"] == "energy"]
    assert energy[list(CASES)].isna().all(axis=None)
    assert term(tables, "latency", "total_speedup")["likely"] > 1
    shown = capsys.readouterr()
    assert "energy or static power is unknown; give 05_energy_estimate.py --cpu" in shown.err
    assert "verdict   energy unknown" in shown.out


@pytest.mark.slow
def test_work_that_data_decide_stays_on_the_host_and_is_named(tmp_path, capsys):
    model, executed = small()
    model.nodes[-1] |= {"macs": None, "flops": None, "m_count": None}  # the Gemm: half of 401 in 8,166 µs
    run(write_tables(tmp_path, model, executed))
    assert "2.5 % of the latency is in groups whose extents data decide" in capsys.readouterr().err


@pytest.mark.slow
def test_inserted_nodes_stay_on_the_host_and_are_named(out, capsys):
    run(out)
    assert (
        "0.4 % of the latency is in nodes that the runtime inserted; they stay on the host" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_unknown_dimensions_leave_cells_empty_and_name_the_flag(tmp_path):
    model, executed = small()
    model.nodes[0] |= {"macs": None, "flops": None, "m_count": None}
    model.sizes["r"] = None
    del model.shapes["a"], model.shapes["r"]
    candidates = run(write_tables(tmp_path, model, executed))["fpga_candidates"]
    first = candidates.iloc[0]
    assert pd.isna(first["macs"])
    assert pd.isna(first["arithmetic_intensity_flop_per_byte"])
    assert "unknown" in first["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--board", "u999"), "'u999' is neither a known board nor a YAML file"),
        (("--board", "u280-seed003"), "u280-seed003"),
        (("--what-if", "board=u999"), "'u999' is neither a known board"),
        (("--what-if", "precision=fp64"), "--what-if: 'precision=fp64' is unknown; known: board=NAME"),
        (("--what-if", "clock-mhz=0"), "'0' is no positive number"),
        (("--what-if", "clock-mhz=1e300"), "such a device cannot run at 1e.300 MHz; give 1 to 1000"),
        (("--kernel-speedup", "K1=1e300"), "--kernel-speedup: 1e.300 is no speedup of a kernel; give 0.001 to 1e.06"),
        (
            ("--board", "kv260", "--engine", "dpu-b4096", "--precision", "fp32"),
            "--engine: dpu-b4096 computes in int8 only; give --precision int8",
        ),
        (("--batch", "1025"), "--batch: '1025' is no batch to plan for; give 1 to 1024"),
        (("--batch", "0"), "--batch: "),
        (("--batch", "2", "--kernel-speedup", "K1=3"), "--batch: does not go with --kernel-speedup: it holds for one"),
        (("--what-if", "K1=nan"), "'nan' is no positive number"),
        (("--effort", "0"), "'0' is not a finite number above 0"),
        (("--precision", "fp64"), "invalid choice: 'fp64'"),
        (("--kernel-speedup", "K9=2"), "--kernel-speedup: K9 is no kernel of this plan; its kernels: K1"),
        (("--kernel-speedup", "K1"), "'K1' is no kernel with a speedup; give for example K1=3.2"),
        (("--kernel-speedup", "K1=-2"), "-2 is no speedup of a kernel; give 0.001 to 1e.06"),
        (("--min-share", "nan"), "'nan' is not a finite number above 0"),
        (("--fpga-config", "missing.yaml"), "missing.yaml: cannot be read"),
    ],
)
def test_unusable_flags_are_refused(out, flags, complaint):
    with pytest.raises(PipelineError, match=complaint) as caught:
        stage.main(["--out", str(out), *flags])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ("board=u999", "'u999' is neither a known board"),
        ("board=" + "b" * 300, "bbb' is neither a known board"),
        ("K0=3", "'K0=3' is unknown"),
        ("K²=3", "'K²=3' is unknown"),
        ("K1=1e9", "is no speedup of a kernel"),
        ("precision=fp64,board=u50", "'precision=fp64' is unknown"),
    ],
)
def test_a_question_is_checked_before_anything_is_read(tmp_path, question, complaint):
    with pytest.raises(UnusableValueError, match=complaint):
        stage.main(["--out", str(tmp_path), "--what-if", question])


@pytest.mark.slow
def test_a_mapping_to_a_node_that_the_model_lacks_is_refused(tmp_path):
    model, executed = small()
    executed.nodes.append(("ghost", "node", ["/ghost"], 3.0, 5.0))
    with pytest.raises(PipelineError, match="executed node ghost is mapped to /ghost, which is no node of the model"):
        run(write_tables(tmp_path, model, executed))


@pytest.mark.slow
def test_tables_of_two_models_are_refused(out):
    schedule = Folder(out, Provenance("test", "test")).table("op_schedule")
    with Transaction(out, Provenance("04_critical_path.py", "04", model_id="ef" * 32)) as transaction:
        transaction.add_table("op_schedule", schedule)
    with pytest.raises(UpstreamError, match="of model efefefefefef"):
        run(out)


@pytest.mark.slow
def test_settings_record_where_each_threshold_came_from(out, tmp_path):
    config = tmp_path / "settings.ini"
    config.write_text("[07_fpga_candidates]\nkernel_speedup = K1=3.2\nmin_fused_share = 0.2\n")
    run(out, "--config", str(config), "--min-share", "0.2")
    settings = json.loads((out / "speedup.meta.json").read_text())["settings"]
    assert settings["min_share"] == {"value": 0.2, "from": "flag"}
    assert settings["min_fused_share"] == {"value": 0.2, "from": "settings.ini"}
    assert settings["min_intensity_flop_per_byte"] == {"value": 8.0, "from": "fpga.yaml"}
    assert settings["launch_per"] == {"value": "group", "from": "fpga.yaml"}
    plan = pd.read_csv(out / "offload_plan.csv")
    assert plan["host_latency_us"][0] / plan["kernel_latency_likely_us"][0] == pytest.approx(3.2)


@pytest.mark.slow
def test_a_configured_precision_that_no_flag_would_take_is_refused(out, tmp_path):
    config = tmp_path / "settings.ini"
    config.write_text("[07_fpga_candidates]\nprecision = fp64\n")
    with pytest.raises(ConfigurationError, match="fp64"):
        run(out, "--config", str(config))


@pytest.mark.slow
def test_a_node_that_the_schedule_lacks_keeps_its_time(tmp_path):
    folder = write_tables(tmp_path, *small())
    schedule = Folder(folder, Provenance("test", "test")).table("op_schedule")
    with Transaction(folder, Provenance("04_critical_path.py", "04", model_id="cd" * 32)) as transaction:
        transaction.add_table("op_schedule", schedule[schedule["executed_node"] != "conv_b"])
    found = run(folder)["fpga_candidates"].query("group_count == 1")
    assert found["host_latency_us"].sum() == pytest.approx(5_003 + 211 + 2_503 + 401)


@pytest.mark.slow
def test_a_second_run_writes_the_same_bytes(out):
    run(out)
    first = {path.name: path.read_bytes() for path in out.glob("*.csv")}
    run(out)
    assert first == {path.name: path.read_bytes() for path in out.glob("*.csv")}


@pytest.mark.slow
def test_process_shows_the_plan_within_80_columns_and_notes_on_stderr(resnet_out):
    done = shell(resnet_out)
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "ffload 53 Conv, " in done.stdout.splitlines()[0]
    assert "\n\nKernel  Ops" in done.stdout
    assert "wrote " in done.stderr
    assert "offload_plan.csv" in done.stderr


def interrupted(folder, presses):
    """Run the stage; while a solver works for the first time, Ctrl-C is pressed so many times."""
    code = (
        "import importlib, os, signal, sys, time\n"
        "from ortools.sat.python import cp_model\n"
        "solve, presses = cp_model.CpSolver.solve, [int(sys.argv.pop(1))]\n"
        "def solve_and_interrupt(self, model, *more):\n"
        "    while presses[0]:\n"
        "        presses[0] -= 1\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.5)\n"
        "    return solve(self, model, *more)\n"
        "cp_model.CpSolver.solve = solve_and_interrupt\n"
        "from common import cli\n"
        "sys.argv = sys.argv[1:]\n"
        "cli.run(importlib.import_module('07_fpga_candidates').main)\n"
    )
    flags = ["--out", str(folder), "--precision", "int4", "--all-notes"]
    command = [sys.executable, "-c", code, str(presses), SCRIPT, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_ctrl_c_ends_the_search_with_the_best_plan_and_its_gap(resnet_out):
    done = interrupted(resnet_out, 1)
    assert done.returncode == 0, done.stderr
    assert "note: Ctrl-C ended the search: the tables hold the best that it had found" in done.stderr
    rows = pd.read_csv(resnet_out / "offload_comparison.csv").set_index("alternative")["plan_latency_likely_us"]
    finish_us, bound_us = rows["plan"], rows["proven bound"]
    assert 0 < bound_us < finish_us
    assert f"{100 * (1 - bound_us / finish_us):.2g} % earlier; raise --time-limit" in done.stderr


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_program_and_replaces_nothing(resnet_out):
    run(resnet_out, "--precision", "int8", "--time-limit", "1")
    before = {path.name: path.read_bytes() for path in resnet_out.glob("o*_*.csv")}
    done = interrupted(resnet_out, 2)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert before == {path.name: path.read_bytes() for path in resnet_out.glob("o*_*.csv")}


@pytest.mark.slow
def test_process_is_silent_when_asked(out):
    done = run_stage(SCRIPT, "--out", out, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_process_names_the_missing_table_and_the_stage_that_writes_it(tmp_path):
    done = run_stage(SCRIPT, "--out", tmp_path / "nothing")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("op_metrics.csv: not found; run 02_shapes_flops_bytes.py first\n")


def test_process_refuses_a_board_that_is_not_there_before_reading_tables(tmp_path):
    done = run_stage(SCRIPT, "--out", tmp_path / "nothing", "--board", "u999")
    assert done.returncode == 2
    assert done.stderr.startswith("07_fpga_candidates.py: error: ")
    assert "board" in done.stderr.split(": ")[2]
    assert "'u999' is neither a known board nor a YAML file; known: " in done.stderr


def test_process_prints_its_example_as_help(tmp_path):
    done = run_stage(SCRIPT, "--help-all")
    assert done.returncode == 0
    assert "EXAMPLE of input" in done.stdout


@pytest.mark.slow
def test_the_verdict_on_a_board_with_a_processor_needs_the_times_of_that_processor(resnet_out, capsys):
    """An Arm that takes 8 times as long: what stays on it does, too, and its energy is unknown."""
    board = ("--board", "zcu104", "--precision", "int8")
    unknown = run(resnet_out, *board)
    assert unknown["offload_verdict"]["verdict"].tolist() == ["not judged for this host"] * 3
    assert "<" not in str(unknown["offload_verdict"]["doubts"].tolist())  # copies of it know no flags
    for table in ("offload_verdict", "speedup", "offload_comparison"):
        assert not unknown[table]["is_judged"].any()
    printed = capsys.readouterr()
    assert "not judged for this host: the host of a zcu104 is its own Arm Cortex-A53" in printed.err
    assert " ".join(printed.out.split()).count("its own Arm Cortex-A53") == 1
    judged = run(resnet_out, *board, "--host-scale", "8", "--host-scale-source", "a published ratio")
    verdicts = judged["offload_verdict"].set_index("objective")
    assert verdicts["is_judged"].all()
    assert verdicts["host_basis"].unique().tolist() == ["scaled"]
    assert verdicts.loc["latency", "judged_host"].endswith("times 8: a published ratio")
    assert verdicts.loc["energy", "verdict"] == "unknown"
    alone = [term(tables, "latency", "host_total")["likely"] for tables in (unknown, judged)]
    assert alone[1] == pytest.approx(8 * alone[0])


def of_host(folder: Path, cpu_model: str) -> Path:
    """Say in the sidecar of 01's summary which processor was measured."""
    sidecar = folder / "latency_summary.meta.json"
    record = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({**record, "host": {**record["host"], "cpu_model": cpu_model}}))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "is_judged", "verdict"),
    [("Arm Cortex-A53", True, "pays"), ("Arm Neoverse-N1", False, "not judged for this host")],
)
def test_a_plan_takes_the_times_of_tables_of_the_boards_own_processor(out, tmp_path, processor, is_judged, verdict):
    """The other folder has the times: 10 times those of the stage's own folder. An Arm server's do not count."""
    model, executed = small()
    slower = replace(
        executed, nodes=[(name, kind, sources, 10 * us, *rest) for name, kind, sources, us, *rest in executed.nodes]
    )
    arm = of_host(write_tables(tmp_path / "arm", model, slower), processor)
    own = run(out, "--board", "zcu104", "--precision", "int8")
    other = run(out, "--board", "zcu104", "--precision", "int8", "--host-tables", str(arm))
    alone = [term(tables, "latency", "host_total")["likely"] for tables in (own, other)]
    assert alone[1] > 9 * alone[0]
    verdicts = other["offload_verdict"].set_index("objective")
    assert verdicts["host_basis"].unique().tolist() == ["measured"]
    assert verdicts["judged_host"].unique().tolist() == [processor]
    assert (verdicts.loc["latency", "is_judged"], verdicts.loc["latency", "verdict"]) == (is_judged, verdict)
    reads = json.loads((out / "offload_plan.meta.json").read_text())["reads"]
    assert "../arm/op_latency.csv" in reads


def test_a_folder_without_the_tables_of_the_boards_processor_is_refused_by_the_checks(tmp_path):
    done = run_stage(SCRIPT, "--check", "--out", tmp_path / "out", "--host-tables", tmp_path / "arm")
    assert done.returncode == 2
    assert f"--host-tables: {tmp_path}/arm/op_metrics.csv: not found; run 01 to 05 on the board itself" in done.stderr


def test_a_factor_without_a_source_is_refused(resnet_out):
    with pytest.raises(PipelineError, match="has no source") as refused:
        stage.main(["--out", str(resnet_out), "--host-scale", "8"])
    assert "--host-scale-source" in str(refused.value)


@pytest.mark.slow
def test_throughput_prints_frames_first_and_beats_one_array(resnet_out, tmp_path):
    """ResNet-50 on a U280: 14 engines of its vendor give 646 frames a second, which the interval holds."""
    out = tmp_path / "out"
    shutil.copytree(resnet_out, out)
    flags = ("--board", "u280", "--objective", "throughput", "--effort", "0.1", "--hand-off", str(tmp_path / "design"))
    done = run_stage(SCRIPT, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    assert re.match(r"[\d.,]+/s \([\d.,]+/s to [\d.,]+/s\) on \d+ x systolic-", done.stdout)
    tables = Folder(out, Provenance("test", "test"))
    plans = {row["division"]: row for row in tables.rows("replica_plans")}
    best, alone = next(row for row in plans.values() if row["is_quickest"]), plans["one array"]
    assert best["pessimistic_inferences_per_s"] <= 646 <= best["optimistic_inferences_per_s"]
    assert best["likely_inferences_per_s"] > 1.2 * alone["likely_inferences_per_s"]
    assert best["likely_inferences_per_s"] <= best["bound_inferences_per_s"] * (1 + 1e-9)
    assert sum(best["region_replicas"].values()) == best["accelerator_count"] > 1
    for division, plan in plans.items():
        rates = [row for row in tables.rows("replica_rates") if row["division"] == division]
        for case in CASES:
            slowest_us = max(row[f"frame_busy_{case}_us"] for row in rates)
            assert plan[f"{case}_inferences_per_s"] == pytest.approx(1e6 / slowest_us)
        assert [row["stream_resource"] for row in rates if row["is_bottleneck"]] == [plan["stream_bottleneck"]]
    content = json.loads((tmp_path / "design" / "replicas" / "replicas.json").read_text())
    assert len(content["replicas"]) == best["accelerator_count"]
    assert content["inferences_per_s"]["likely"] == pytest.approx(best["likely_inferences_per_s"])
    linked = (tmp_path / "design" / "replicas" / "connectivity.cfg").read_text()
    assert f"nk={content['replicas'][0]['units'][0]['design']}:{best['accelerator_count']}:R1,R2" in linked
    channels = {line.partition(":")[2] for line in linked.splitlines() if line.startswith("sp=R")}
    assert channels <= {f"HBM[{number}]" for number in range(32)}
    assert "`replicas/` is another design" in (tmp_path / "design" / "README.md").read_text()
    assert run_stage(SCRIPT, "--out", out, "--board", "u280", "--effort", "0.1").returncode == 0
    assert tables.rows("replica_plans") == []  # the question was another one


@pytest.mark.slow
def test_a_launch_for_each_phase_names_its_hardware_and_is_never_first(resnet_out, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(resnet_out, out)
    for way in ("group", "phase"):
        done = run_stage(SCRIPT, "--out", out, "--launch-per", way, "--effort", "0.1")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        first = next(index for index, line in enumerate(lines) if line.startswith("one inference"))
        assert "per group" in lines[first + 1]
        assert "per phase: assumes a command processor on the card" in done.stdout
        assert lines[0].startswith("Only with a command processor on the card: offload ") == (way == "phase")
