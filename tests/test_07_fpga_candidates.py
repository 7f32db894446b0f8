from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from fpga_tables import Executed, Model, executed_resnet50, resnet50, write_tables

from common.artifacts.provenance import Provenance
from common.artifacts.store import Store
from common.cli import ROOT
from common.errors import CommandLineError, PipelineError, UpstreamError

SCRIPT = "07_fpga_candidates.py"
stage = importlib.import_module("07_fpga_candidates")


def small() -> tuple[Model, Executed]:
    """Two 3×3 convolutions with a MaxPool between, a Gemm behind a Flatten; the runtime inserts a reorder."""
    model = Model(outputs=["y"])
    model.weights(w=40_009, v=80_021, u=10_007)
    model.sizes |= {"x": 200_003, "a": 300_007, "r": 300_007, "p": 75_011, "b": 75_011, "f": 75_011, "y": 4_001}
    model.add("Conv", "x w", "a", macs=50_000_017, flops=100_000_034, kernel_shape=[3, 3], groups=1)
    model.add("Relu", "a", "r", flops=75_001)
    model.add("MaxPool", "r", "p", flops=300_007)
    model.add("Conv", "p v", "b", macs=25_000_009, flops=50_000_018, kernel_shape=[3, 3], groups=1)
    model.add("Flatten", "b", "f")
    model.add("Gemm", "f u", "y", macs=2_000_003, flops=4_000_006)
    executed = Executed(
        [
            ("reorder", "inserted", [], 31.0, 1_009.0),
            ("conv_a", "node", ["/a", "/r"], 5_003.0, 300_007.0),
            ("pool", "node", ["/p"], 211.0, 10_007.0),
            ("conv_b", "node", ["/b"], 2_503.0, 150_001.0),
            ("gemm", "node", ["/f", "/y"], 401.0, 20_011.0),
        ],
        gap_us=-17.0,
        gap_energy_uj=101.0,
    )
    return model, executed


@pytest.fixture
def out(tmp_path):
    return write_tables(tmp_path / "out", *small())


@pytest.fixture(scope="module")
def resnet_out(tmp_path_factory):
    model = resnet50()
    return write_tables(tmp_path_factory.mktemp("resnet"), model, executed_resnet50(model))


def run(out: Path, *flags: str) -> dict[str, pd.DataFrame]:
    assert stage.main(["--out", str(out), *flags]) == 0
    store = Store(out, Provenance("test", "test"))
    return {name: store.table(name) for name in ("fpga_candidates", "offload_plan", "speedup")}


def term(tables: dict[str, pd.DataFrame], objective: str, name: str) -> pd.Series:
    found = tables["speedup"]
    return found[(found["objective"] == objective) & (found["term"] == name)].iloc[0]


def shell(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--out", str(out), *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_microsecond_of_the_trace_is_in_one_group_or_stays_with_the_host(out):
    found = run(out)["fpga_candidates"]
    assert found["host_latency_us"].sum() == pytest.approx(5_003 + 211 + 2_503 + 401)
    assert found["host_energy_uj"].sum() == pytest.approx(300_007 + 10_007 + 150_001 + 20_011)
    assert found["candidate"].tolist() == ["G1", "G2", "G3", "G4", "G5"]
    assert found["pattern"].tolist() == ["Conv+Relu", "Conv", "Gemm", "MaxPool", "Flatten"]
    # the only group with multiplications takes the node that also computes the Flatten
    assert found["host_latency_us"].tolist() == [5_003.0, 2_503.0, 401.0, 211.0, 0.0]
    assert found["executed_nodes"].tolist()[-1] == ["gemm"]
    total_us = 31 + 5_003 + 211 + 2_503 + 401 - 17
    assert found["host_latency_share"][0] == pytest.approx(5_003 / total_us)


def test_small_model_by_hand(out):
    tables = run(out)
    (kernel,) = tables["offload_plan"].to_dict("records")
    assert (kernel["kernel"], kernel["kernel_class"], kernel["group_count"]) == ("K1", "conv 3x3", 2)
    # 2 × 75,000,026 MACs on 8490 × 0.8 DSPs × 0.2 × 2 × 300 MHz, at 29 %; the memory is never the slower
    peak = 8490 * 0.8 * 0.2 * 2 * 300e6
    kernel_us = 1e6 * 2 * 75_000_026 / (peak * 0.29)
    assert kernel["kernel_latency_us"] == pytest.approx(kernel_us)
    assert kernel["board_bound"] == "compute"
    # x out, r back to the MaxPool, p out, b back through the Flatten to the Gemm
    assert kernel["transfer_bytes"] == 200_003 + 300_007 + 75_011 + 75_011
    transfer_us = 1e6 * kernel["transfer_bytes"] / 10.1e9
    total_us = 8_132.0
    new_us = total_us - 7_506 + kernel_us + transfer_us + 2 * 81
    assert term(tables, "latency", "host_total")["likely"] == total_us
    assert term(tables, "latency", "new_total")["likely"] == pytest.approx(new_us)
    assert term(tables, "latency", "total_speedup")["likely"] == pytest.approx(total_us / new_us)
    assert term(tables, "latency", "accelerated_fraction")["likely"] == pytest.approx(7_506 / total_us)
    total_uj = 1_009 + 300_007 + 10_007 + 150_001 + 20_011 + 101
    new_uj = total_uj - 450_008 + kernel_us * (41.4 + 29 + 20) + (transfer_us + 162) * 61.4 + (total_us - 7_506) * 41.4
    assert term(tables, "energy", "new_total")["likely"] == pytest.approx(new_uj)


def test_low_is_pessimistic_in_every_term(out):
    speedup = run(out)["speedup"].set_index(["objective", "term"])
    for (_, name), row in speedup.iterrows():
        ordered = (row["low"], row["likely"], row["high"])
        is_gain = name in ("kernel_speedup", "total_speedup")
        assert ordered == tuple(sorted(ordered, reverse=not is_gain)), name


def test_resnet50_has_two_kernels_that_share_the_convolutions(resnet_out):
    tables = run(resnet_out)
    plan = tables["offload_plan"].set_index("kernel")
    assert plan["kernel_class"].tolist() == ["conv 1x1", "conv 3x3"]
    # per block two 1×1 and one 3×3; four projections; the 7×7 stem is below the threshold
    assert plan["group_count"].tolist() == [2 * 16 + 4, 16]
    candidates = tables["fpga_candidates"]
    assert candidates.loc[candidates["kernel_kind"] == "conv", "macs"].sum() + 2048 * 1000 == 4_089_184_256
    # no group alone reaches 10 %; the classes do
    assert candidates["host_latency_share"].max() < 0.1
    assert candidates["is_chosen"].sum() == 52
    # MaxPool's result (64×56×56 float32) goes out and the last block's (2048×7×7) comes back
    assert plan["transfer_bytes"].sum() == 4 * 64 * 56 * 56 + 4 * 2048 * 7 * 7
    assert term(tables, "latency", "total_speedup")["low"] < term(tables, "latency", "total_speedup")["high"]


def test_lower_precision_is_faster_and_its_accuracy_is_said_to_be_unknown(resnet_out, capsys):
    fp32 = term(run(resnet_out), "latency", "total_speedup")["likely"]
    int8 = term(run(resnet_out, "--precision", "int8"), "latency", "total_speedup")["likely"]
    assert int8 > fp32
    assert "int8: the accuracy at this precision is not evaluated" in capsys.readouterr().err


def test_vendor_speedup_in_the_briefs_words(resnet_out):
    tables = run(resnet_out, "--kernel-speedup", "K1=3.2", "--kernel-speedup", "K2=5")
    plan = tables["offload_plan"]
    assert (plan["host_latency_us"] / plan["kernel_latency_us"]).tolist() == pytest.approx([3.2, 5])
    assert plan["board_bound"].tolist() == ["", ""]


def test_a_plan_that_does_not_pay_says_so(out, capsys):
    tables = run(out, "--kernel-speedup", "K1=0.5")
    assert term(tables, "latency", "total_speedup")["high"] < 1
    text = capsys.readouterr().out
    assert "verdict   latency does not pay: 0.5" in text
    assert "breaks even at kernels 1.03x the host; 0.500x is likely" in text


def test_overheads_that_eat_the_gain_have_no_break_even(tmp_path, capsys):
    model, executed = small()
    faster = [(name, kind, sources, latency / 50, energy) for name, kind, sources, latency, energy in executed.nodes]
    tables = run(write_tables(tmp_path, model, Executed(faster)))
    assert pd.isna(term(tables, "latency", "break_even_kernel_speedup")["likely"])
    assert "transfer and launch alone cost what the kernels could save" in capsys.readouterr().out


def test_nothing_chosen_leaves_the_host_as_it_is_and_names_the_way_out(out, capsys):
    tables = run(out, "--min-share", "0.999")
    assert tables["offload_plan"].empty
    assert term(tables, "latency", "total_speedup")["likely"] == 1
    assert pd.isna(term(tables, "latency", "kernel_speedup")["likely"])
    shown = capsys.readouterr()
    assert "everything stays on the host: no kernel meets the thresholds" in shown.out
    assert "conv 3x3: 93.5 % of latency or energy, below 99.9 %; lower --min-share" in shown.err


def test_a_model_without_contractions_has_no_candidates_to_choose(tmp_path, capsys):
    model = Model(outputs=["y"])
    model.sizes |= {"x": 101, "y": 101}
    model.add("Softmax", "x", "y", flops=505)
    run(write_tables(tmp_path, model, Executed([("soft", "node", ["/y"], 53.0, 7.0)])))
    assert "no kernel chosen: the model has no convolution, GEMM or attention" in capsys.readouterr().err


@pytest.mark.parametrize("unknown", [{"static_power_w": None}, {"gap_energy_uj": None}])
def test_energy_without_its_sources_is_empty_and_not_zero(tmp_path, capsys, unknown):
    model, executed = small()
    for name, value in unknown.items():
        setattr(executed, name, value)
    tables = run(write_tables(tmp_path, model, executed))
    energy = tables["speedup"][tables["speedup"]["objective"] == "energy"]
    assert energy[["low", "likely", "high"]].isna().all(axis=None)
    assert term(tables, "latency", "total_speedup")["likely"] > 1
    shown = capsys.readouterr()
    assert "energy speedup unknown" in shown.err
    assert "verdict   energy unknown" in shown.out


def test_inserted_nodes_stay_on_the_host_and_are_named(out, capsys):
    run(out)
    assert "0.4 % of the latency are nodes that the runtime inserted; they stay on the host" in capsys.readouterr().err


def test_unknown_dimensions_leave_cells_empty_and_name_the_flag(tmp_path):
    model, executed = small()
    model.nodes[0] |= {"macs": None, "flops": None}
    model.sizes["a"] = None
    candidates = run(write_tables(tmp_path, model, executed))["fpga_candidates"]
    first = candidates.iloc[0]
    assert pd.isna(first["macs"])
    assert pd.isna(first["arithmetic_intensity_flop_per_byte"])
    assert "bind its dimensions with --dim" in first["reason"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--board", "u999"), "--board: 'u999' is no board and no YAML file"),
        (("--efficiency", "magic"), "has no efficiency 'magic'; it has overlay, hls, vitis_blas, systolic"),
        (("--precision", "fp64"), "invalid choice: 'fp64'"),
        (("--kernel-speedup", "K9=2"), r"--kernel-speedup: K9 is no kernel of this plan; it has K1 \(conv 3x3\)"),
        (("--kernel-speedup", "K1"), "'K1' is not NAME=VALUE"),
        (("--kernel-speedup", "K1=-2"), "'-2' is not a finite number above 0"),
        (("--min-share", "nan"), "'nan' is not a finite number above 0"),
        (("--fpga-config", "missing.yaml"), "missing.yaml: cannot be read"),
    ],
)
def test_unusable_flags_are_refused(out, flags, complaint):
    with pytest.raises(CommandLineError, match=complaint):
        stage.main(["--out", str(out), *flags])


def test_a_mapping_to_a_node_that_the_model_lacks_is_refused(tmp_path):
    model, executed = small()
    executed.nodes.append(("ghost", "node", ["/ghost"], 3.0, 5.0))
    with pytest.raises(PipelineError, match="executed node ghost: is mapped to /ghost, which is no node of the model"):
        run(write_tables(tmp_path, model, executed))


def test_tables_of_two_models_are_refused(out):
    store = Store(out, Provenance("04_critical_path.py", "04", model_id="ef" * 32))
    schedule = Store(out, Provenance("test", "test")).table("op_schedule")
    with store.writing():
        store.add_table("op_schedule", schedule)
    with pytest.raises(UpstreamError, match="of model efefefefefef"):
        run(out)


def test_settings_record_where_each_threshold_came_from(out, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("stages:\n  07_fpga_candidates:\n    kernel_speedup: K1=3.2\n    min_fused_share: 0.2\n")
    run(out, "--config", str(config), "--min-share", "0.2")
    settings = json.loads((out / "speedup.meta.json").read_text())["settings"]
    assert settings["min_share"] == {"value": 0.2, "from": "flag"}
    assert settings["min_fused_share"] == {"value": 0.2, "from": "settings.yaml"}
    assert settings["min_intensity_flop_per_byte"] == {"value": 8.0, "from": "fpga.yaml"}
    assert settings["launch_per"] == {"value": "group", "from": "fpga.yaml"}
    plan = pd.read_csv(out / "offload_plan.csv")
    assert plan["host_latency_us"][0] / plan["kernel_latency_us"][0] == pytest.approx(3.2)


def test_a_configured_precision_that_no_flag_would_take_is_refused(out, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("stages:\n  07_fpga_candidates:\n    precision: fp64\n")
    with pytest.raises(CommandLineError, match="fp64"):
        run(out, "--config", str(config))


def test_a_node_that_the_schedule_lacks_keeps_its_time(tmp_path):
    folder = write_tables(tmp_path, *small())
    schedule = Store(folder, Provenance("test", "test")).table("op_schedule")
    store = Store(folder, Provenance("04_critical_path.py", "04", model_id="cd" * 32))
    with store.writing():
        store.add_table("op_schedule", schedule[schedule["executed_node"] != "conv_b"])
    found = run(folder)["fpga_candidates"]
    assert found["host_latency_us"].sum() == pytest.approx(5_003 + 211 + 2_503 + 401)


def test_a_second_run_writes_the_same_bytes(out):
    run(out)
    first = {path.name: path.read_bytes() for path in out.glob("*.csv")}
    run(out)
    assert first == {path.name: path.read_bytes() for path in out.glob("*.csv")}


def test_process_shows_the_plan_within_80_columns_and_notes_on_stderr(resnet_out):
    done = shell(resnet_out)
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert done.stdout.startswith("Kernel  Ops")
    assert "K1      36 conv 1x1" in done.stdout
    assert "wrote " in done.stderr
    assert "offload_plan.csv (2 rows)" in done.stderr


def test_process_is_silent_when_asked(out):
    done = shell(out, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_process_names_the_missing_table_and_the_stage_that_writes_it(tmp_path):
    done = shell(tmp_path / "nothing")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("ops_profile.csv: not found; run 05_energy_estimate.py first\n")


def test_process_refuses_a_board_that_is_not_there_before_reading_tables(tmp_path):
    done = shell(tmp_path / "nothing", "--board", "u999")
    assert done.returncode == 2
    assert done.stderr.startswith("07_fpga_candidates.py: error: --board: 'u999' is no board")


def test_process_prints_its_example_as_help(tmp_path):
    done = shell(tmp_path, "--help")
    assert done.returncode == 0
    assert "EXAMPLE of what comes in" in done.stdout
