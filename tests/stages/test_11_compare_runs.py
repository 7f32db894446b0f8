"""Stage 11 through its command line: measurements that a test writes run by run, and one that 01 to 03 made."""

from __future__ import annotations

import json
import shutil
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from models.__main__ import BUILDERS
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage

SCRIPT, PROFILE = "11_compare_runs.py", "01_profile_onnx.py"
RUNS = 101
HOST = {"hostname": "quiet", "cpu_model": "CPU of 7 cores"}


def summary(latencies_us, **changes):
    """latency_summary of a series; what no test looks at is empty, or as good as it can be."""
    empty = {
        column.name: None if column.nullable else {"string": "x", "integer": 1, "mapping": {}}.get(column.kind, 1.0)
        for column in ARTIFACTS["latency_summary"].columns
    }
    median = float(np.median(latencies_us))
    known = {"steady_state": "flat", "steady_start_index": 0, "provider": "CPUExecutionProvider"}
    ends = {"p50_us": median, "p50_low_us": median, "p50_high_us": median, "threads": 3, "graph_optimization": "all"}
    return {**empty, **known, **ends, **changes}


def series(level_us, seed, scatter=0.004):
    return level_us * (1 + scatter * np.random.default_rng(seed).standard_normal(RUNS))


def measurement(
    folder, level_us=1009.0, *, seed=0, scatter=0.004, model_id="m" * 64, notes=(), host=HOST, more_us=(), **changes
):
    """A folder with the runs of a session, and of further ones at other levels."""
    latencies_us = series(level_us, seed, scatter)
    record = Provenance(PROFILE, PROFILE, model_id=model_id, model_path="m.onnx", host=dict(host), notes=list(notes))
    with Transaction(folder, record) as transaction:
        rows = [
            {"is_profiled": False, "run_index": run, "is_warmup": False, "start_us": 2e3 * run, "latency_us": one}
            for run, one in enumerate(latencies_us)
        ]
        transaction.add_rows("run_latency", rows)
        further = [
            {"session_index": index, "run_index": run, "is_warmup": False, "start_us": 0.0, "latency_us": one}
            for index, level in enumerate(more_us, 1)
            for run, one in enumerate(series(level, seed + index))
        ]
        transaction.add_rows("session_latency", further)
        transaction.add_document("latency_summary", summary(latencies_us, **changes))
    return folder


def compared(out, *flags, code=0):
    done = run_stage(SCRIPT, "--out", out, *flags)
    assert done.returncode == code, done.stderr
    return done, pd.read_csv(out / "comparison.csv", keep_default_na=False, na_values={"difference_share": [""]})


def latency(table):
    return table[table["compared_figure"] == "p50_us"].iloc[0]


@pytest.fixture
def main(tmp_path):
    return measurement(tmp_path / "main")


def test_a_repeat_is_unchanged(main, tmp_path):
    _, table = compared(measurement(tmp_path / "out", seed=1), "--baseline", main, "--fail-above", "5%")
    assert latency(table)["comparison_verdict"] == "unchanged"
    assert latency(table)["baseline_run_count"] == RUNS


@pytest.mark.parametrize(("share", "code"), [("5%", 4), ("0.05", 4), ("9%", 0)])
def test_a_slowdown_fails_above_the_given_share(main, tmp_path, share, code):
    out = measurement(tmp_path / "out", 1.07 * 1009, seed=1)
    _, table = compared(out, "--baseline", main, "--fail-above", share, code=code)
    row = latency(table)
    assert row["comparison_verdict"] == "regressed"
    assert row["difference_share"] == pytest.approx(0.07, abs=0.005)
    assert float(row["difference_low_share"]) < 0.07 < float(row["difference_high_share"])


def test_without_a_share_to_fail_above_a_slowdown_is_reported_and_nothing_more(main, tmp_path):
    done, _ = compared(measurement(tmp_path / "out", 1200.0, seed=1), "--baseline", main)
    assert done.stdout.startswith("latency regressed: +18.")


def test_a_speedup_is_no_failure(main, tmp_path):
    out = measurement(tmp_path / "out", 0.9 * 1009, seed=1)
    assert latency(compared(out, "--baseline", main, "--fail-above", "5%")[1])["comparison_verdict"] == "improved"


def test_no_time_of_a_busy_host_is_judged(main, tmp_path):
    note = "the host was busy: other work took 1.0 of its 2 processors during the runs; stop it"
    out = measurement(tmp_path / "out", 1200.0, seed=1, notes=[note])
    done, table = compared(out, "--baseline", main, "--fail-above", "5%")
    assert latency(table)["comparison_verdict"] == "undecided"
    assert latency(table)["verdict_reason"].startswith("the host was busy")
    assert f"not judged: {out}: the host was busy" in done.stdout


def test_what_differs_besides_stands_first(main, tmp_path):
    host = {**HOST, "hostname": "other"}
    out = measurement(tmp_path / "out", seed=1, host=host, threads=5, graph_optimization="disable")
    done, _ = compared(out, "--baseline", main)
    lines = done.stdout.splitlines()
    assert lines[1:4] == [
        "differs: hostname: quiet against other",
        "differs: graph optimization: all against disable",
        "differs: threads: 3 against 5",
    ]
    text = (out / "comparison.md").read_text()
    assert text.index("hostname: quiet against other") < text.index("**latency")
    assert "hostname: quiet against other" in (out / "comparison.html").read_text()


def test_several_folders_stand_against_several_baselines(tmp_path):
    """Sessions of the baseline lie 6 % apart, so 5 % are what a repeat scatters."""
    baselines = [measurement(tmp_path / f"b{seed}", level, seed=seed) for seed, level in enumerate((1000.0, 1060.0))]
    candidates = [measurement(tmp_path / f"c{seed}", level, seed=seed) for seed, level in enumerate((1080.0, 1700.0))]
    flags = [word for folder in baselines for word in ("--baseline", folder)]
    flags += [word for folder in candidates for word in ("--candidate", folder)]
    _, table = compared(tmp_path / "out", *flags)
    first, second = (table[table["compared_folder"] == str(folder)] for folder in candidates)
    assert latency(first)["comparison_verdict"] == "undecided"
    assert latency(second)["comparison_verdict"] == "regressed"
    assert latency(second)["baseline_run_count"] == 2 * RUNS


def test_one_session_on_each_side_names_what_it_cannot_know_and_the_paired_script(main, tmp_path):
    done, _ = compared(measurement(tmp_path / "out", seed=1), "--baseline", main)
    beside = next(line for line in done.stdout.splitlines() if line.startswith("between sessions: 1 against 1"))
    assert beside.endswith("run 15_paired_runs.py, or measure both sides with 01_profile_onnx.py --sessions 3")
    assert "between sessions: 1 against 1" in (tmp_path / "out/comparison.md").read_text()


def test_further_sessions_are_compared_and_enter_the_floor(tmp_path):
    """Sessions 2 % apart: a difference of 3 %, which two sessions would call real, is what sessions scatter."""
    alone = [measurement(tmp_path / f"alone{level}", level) for level in (1000.0, 1030.0)]
    _, table = compared(alone[1], "--baseline", alone[0])
    assert latency(table)["comparison_verdict"] == "regressed"
    sides = [
        measurement(tmp_path / f"side{level}", level, more_us=(level + 20, level - 20)) for level in (1000.0, 1030.0)
    ]
    done, table = compared(sides[1], "--baseline", sides[0])
    assert latency(table)["comparison_verdict"] == "undecided"
    assert latency(table)["baseline_run_count"] == 3 * RUNS
    assert "between sessions" not in done.stdout


@pytest.mark.slow
def test_another_model_is_compared_only_if_asked(main, tmp_path):
    out = measurement(tmp_path / "out", 1200.0, seed=1, model_id="n" * 64)
    done = run_stage(SCRIPT, "--out", out, "--baseline", main)
    assert (done.returncode, done.stdout) == (1, "")
    assert "of another model" in done.stderr
    assert "--across-models" in done.stderr
    assert latency(compared(out, "--baseline", main, "--across-models")[1])["comparison_verdict"] == "regressed"


@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        ((), 2, "--baseline: is missing"),
        (("--baseline", "nowhere"), 3, "run_latency.csv: not found"),
        (("--baseline", "", "--fail-above", "5%"), 2, "the path is empty"),
        (("--baseline", ".", "--fail-above", "5%%"), 2, "is not a share"),
        (("--baseline", ".", "--fail-above", "-1"), 2, "is not a share"),
        (("--baseline", ".", "--fail-above", "nan"), 2, "is not a share"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(main, tmp_path, flags, code, problem):
    done = run_stage(SCRIPT, "--out", tmp_path / "out", *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert problem in done.stderr


def test_a_changed_baseline_is_refused(main, tmp_path):
    (main / "run_latency.csv").write_text((main / "run_latency.csv").read_text() + "False,999,False,0.0,1.0\n")
    done = run_stage(SCRIPT, "--out", measurement(tmp_path / "out"), "--baseline", main)
    assert done.returncode == 3
    assert "changed since it was written" in done.stderr


# --- executed nodes ---------------------------------------------------------------------------------------------------


LEVELS = ("all", "extended", "basic", "disable")
MODEL = ("--dim", "batch=1")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A small network as the runtime fuses it at each level, and node by node."""
    folder = tmp_path_factory.mktemp("profiled")
    path = folder / "cnn.onnx"
    path.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    for level in LEVELS:
        out, model = folder / level, ("--model", path, *MODEL)
        flags = ("--runs", "7", "--warmup", "2", "--idle", "10ms", "--threads", "1", "--optimization", level)
        for script, *words in (
            (PROFILE, *model, *flags),
            ("02_shapes_flops_bytes.py", *model),
            ("03_merge_profile_metrics.py", "--peak-flops", "1e11", "--mem-bw", "1e10"),
        ):
            assert run_stage(script, *words, "--out", out).returncode == 0
    return folder


@pytest.mark.slow
def test_a_graph_aligns_with_itself_node_by_node(profiled, tmp_path):
    shutil.copytree(profiled / "all", tmp_path / "again")
    _, table = compared(tmp_path / "again", "--baseline", profiled / "all")
    nodes = table[table["compared_kind"] == "node"]
    assert len(nodes) == len(pd.read_csv(profiled / "all/op_latency.csv"))
    assert (nodes["baseline_nodes"] == nodes["candidate_nodes"]).all()
    assert (nodes["difference_share"].fillna(0) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [pair for pair in permutations(LEVELS, 2) if pair[0] < pair[1]])
def test_fused_nodes_stand_against_those_that_they_replaced(profiled, tmp_path, before, after):
    """Every source node that runs is in one group with all executed nodes of both sides that compute it."""
    flags = ("--baseline", profiled / before, "--candidate", profiled / after)
    done, table = compared(tmp_path / "out", *flags)
    assert f"differs: graph optimization: {before} against {after}" in done.stdout
    nodes = table[table["compared_kind"] == "node"]
    groups = [
        {name: json.loads(row[name]) for name in ("source_nodes", "baseline_nodes", "candidate_nodes")}
        for _, row in nodes.iterrows()
    ]
    for side, level in (("baseline_nodes", before), ("candidate_nodes", after)):
        listed = [name for group in groups for name in group[side]]
        assert sorted(listed) == sorted(pd.read_csv(profiled / level / "op_latency.csv")["executed_node"])
        owners = pd.read_csv(profiled / level / "node_map.csv").dropna(subset="executed_node")
        of = {source: index for index, group in enumerate(groups) for source in group["source_nodes"]}
        for executed, source in zip(owners["executed_node"], owners["source_node"], strict=True):
            assert executed in groups[of[source]][side]
    if {before, after} == {"all", "disable"}:
        assert any(len(group["baseline_nodes"]) > 1 for group in groups) or any(
            len(group["candidate_nodes"]) > 1 for group in groups
        )


# --- what later stages state ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stated(profiled, tmp_path_factory):
    """Two folders with one profile: the second plans in int8, takes twice the power, and is under twice the load."""
    root = tmp_path_factory.mktemp("stated")
    for name, precision, power_w, rate_hz in (("one", "fp32", 20, 100), ("other", "int8", 40, 200)):
        shutil.copytree(profiled / "all", out := root / name)
        load = ("--rate", rate_hz, "--duration", "0.3s", "--threads", "1", "--seed", "3")
        for script, *words in (
            ("04_critical_path.py",),
            ("05_energy_estimate.py", "--avg-power-w", power_w),
            ("07_fpga_candidates.py", "--precision", precision),
            ("10_load_test.py", "--model", profiled / "cnn.onnx", *load),
        ):
            done = run_stage(script, *words, "--out", out)
            assert done.returncode == 0, done.stderr
    return root


@pytest.mark.slow
def test_plan_energy_and_load_are_compared_as_their_stages_state_them(stated, tmp_path):
    """Every row of the comparison against the files of both stages, read by other code."""
    done, table = compared(tmp_path / "out", "--baseline", stated / "one", "--candidate", stated / "other")
    rows = table.astype(object).fillna("").set_index(["compared_kind", "compared_figure", "compared_subject"])
    plans = [pd.read_csv(stated / folder / "offload_verdict.csv").set_index("objective") for folder in ("one", "other")]
    is_judged = [plan["verdict"] != "not judged" for plan in plans]  # a busy host has no verdict
    for objective in plans[0].index[is_judged[0] & is_judged[1] & plans[0]["likely"].notna()]:
        row = rows.loc["plan", "likely", f"speedup in {objective}"]
        likely = [plan.loc[objective, "likely"] for plan in plans]
        assert [row["baseline_value"], row["candidate_value"]] == pytest.approx(likely)
    for column, folder in (("baseline_value", "one"), ("candidate_value", "other")):
        resources = pd.read_csv(stated / folder / "board_resources.csv")
        used = resources[resources["region"] == "board"].set_index("resource")["used_count"]
        for resource, used_count in used.items():  # what neither plan uses has no row
            assert rows[column].get(("plan", "used_count", resource), 0.0) == pytest.approx(used_count)
    for kind, file, names in (
        ("energy", "energy_summary", ("energy_uj", "average_power_w")),
        (
            "load",
            "load_summary",
            ("request_p50_us", "answered_requests_per_s", "peak_resident_bytes"),
        ),
        ("memory", "latency_summary", ("peak_memory_bytes", "arena_bytes", "peak_resident_bytes")),
    ):
        one, other = (json.loads((stated / folder / f"{file}.json").read_text()) for folder in ("one", "other"))
        for name in names:  # a slow host may answer too few requests for a percentile
            if one[name] is None or other[name] is None:
                assert (kind, name, "") not in rows.index
                continue
            row = rows.loc[kind, name, ""]
            assert (row["baseline_value"], row["candidate_value"]) == pytest.approx((one[name], other[name]))
    assert rows.loc["energy", "average_power_w", ""]["difference_share"] == pytest.approx(1.0)
    assert "differs: load offered requests per s" in done.stdout


@pytest.mark.slow
def test_a_table_that_is_older_than_the_times_is_left_out_with_a_note(stated, tmp_path):
    """Nodes that were merged again, beside the energy and the plan of the merge before."""
    shutil.copytree(stated / "one", tmp_path / "one")
    flags = ("--peak-flops", "2e11", "--mem-bw", "1e10", "--out", tmp_path / "one")
    assert run_stage("03_merge_profile_metrics.py", *flags).returncode == 0
    done, table = compared(
        tmp_path / "out", "--baseline", tmp_path / "one", "--candidate", stated / "other", "--all-notes"
    )
    assert {*table["compared_kind"]} & {"energy", "plan", "load", "node"} == {"load", "node"}
    assert "energy_summary.json: stale" in done.stderr


FOREIGN = ROOT / "tests/foreign_traces/data"


@pytest.mark.slow
def test_nodes_of_another_runtime_that_tells_means_alone_are_executed_on_both_sides(tmp_path):
    path = tmp_path / "tiny-cnn.onnx"
    path.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    profiles = {
        "openvino": (FOREIGN / "openvino/average.csv", FOREIGN / "openvino/executed.xml"),
        "onnxruntime": (FOREIGN / "onnxruntime-1.23.2/trace.json", FOREIGN / "onnxruntime-1.23.2/optimized.onnx"),
    }
    model_flags = ("--model", path, "--dim", "batch=2")
    for name, (trace, graph) in profiles.items():
        for script, *flags in (
            (PROFILE, *model_flags, "--from-trace", trace, "--executed-graph", graph, "--threads", "2"),
            ("02_shapes_flops_bytes.py", *model_flags),
            ("03_merge_profile_metrics.py", "--peak-flops", "1e12", "--mem-bw", "5e10"),
        ):
            done = run_stage(script, *flags, "--out", tmp_path / name)
            assert done.returncode == 0, done.stderr
    done, table = compared(tmp_path / "onnxruntime", "--baseline", tmp_path / "openvino")
    times_us = pd.read_csv(tmp_path / "openvino/op_latency.csv")["corrected_mean_us"]
    assert len(table) == 5 and {*table["comparison_verdict"]} == {"undecided"}
    assert table["baseline_value"].sum() == pytest.approx(times_us.sum())
    assert "5 groups of nodes: 5 undecided (1 run is too few)" in done.stdout
    assert "figure" not in done.stdout and "| figure" not in (tmp_path / "onnxruntime/comparison.md").read_text()


def test_a_folder_behind_a_loop_of_links_is_one_line(tmp_path):
    (loop := tmp_path / "loop").symlink_to("loop")
    done = run_stage(
        SCRIPT, "--baseline", measurement(tmp_path / "before"), "--candidate", loop, "--out", tmp_path / "out"
    )
    assert done.returncode in (1, 3)
    assert done.stderr.startswith(f"{SCRIPT}: error: {loop}: cannot be ")
