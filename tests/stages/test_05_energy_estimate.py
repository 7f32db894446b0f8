"""Stage 05 through its command line, on small tables as 01 and 03 would write them."""

import importlib
import json
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from common.artifacts.folder import Folder
from common.artifacts.transaction import Transaction
from common.messages.errors import CommandLineError, PipelineError, UnusableValueError, UpstreamError
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.energy import HOST, NODES, P50_US, host_ceilings, provenance, write_upstream

SCRIPT = "05_energy_estimate.py"
stage = importlib.import_module("05_energy_estimate")

PJ_FLOP, PJ_CACHE, PJ_DRAM = 36.4, 11.4, 173.9  # configs/energy.yaml, server-cpu
# Two packages of 125 W with 16 cores each, of which two work, and 96 GiB: configs/processors.yaml.
STATIC_W = 2 * 125 * 0.13 + 96 * 0.10
POWER_W = 2 * 125 * (0.13 + (0.93 - 0.13) * 0.222 * (2 / 32) / 0.1) + 96 * 0.10
TRAFFIC_W = (1_009 + 314_015) * 162.5e-6 / 1000.0  # bytes from DRAM, in a run of 1 ms
# The model's 365,056 bytes exceed the cache of 65,536; conv_a's and the reorder's fit, gemm_b's do not.
COMPUTE_UJ = {"conv_a": 7_000_003e-6 * PJ_FLOP, "reorder": 0.0, "gemm_b": 3_000_017e-6 * PJ_FLOP, "(gap)": 0.0}
MOVEMENT_UJ = {
    "conv_a": 1e-6 * (1_009 * PJ_DRAM + (20_011 + 10_007) * PJ_CACHE),
    "reorder": 1e-6 * (10_007 + 10_007) * PJ_CACHE,
    "gemm_b": 1e-6 * (300_007 + 10_007 + 4_001) * PJ_DRAM,
    "(gap)": 0.0,
}
LATENCY_US = {name: latency_us for name, _, _, latency_us, *_ in NODES}
DYNAMIC_UJ = sum(COMPUTE_UJ.values()) + sum(MOVEMENT_UJ.values())


pytestmark = pytest.mark.usefixtures("elsewhere")


def run(out, *flags):
    assert stage.main(["--out", str(out), *flags]) == 0
    profile = pd.read_csv(out / "ops_profile.csv").set_index("executed_node")
    summary, efficiency = (json.loads((out / f"{name}.json").read_text()) for name in ("energy_summary", "efficiency"))
    return profile, summary, efficiency


def columns(profile, cause):
    return profile[f"{cause}_energy_uj"].to_dict()


def assert_closes(profile, summary):
    """Causes add up to each row, rows to the total, shares to one."""
    causes = profile["compute_energy_uj"] + profile["movement_energy_uj"] + profile["static_energy_uj"]
    assert causes.tolist() == pytest.approx(profile["energy_uj"].tolist(), rel=1e-12)
    assert profile["energy_uj"].sum() == pytest.approx(summary["energy_uj"], rel=1e-12)
    assert profile["energy_share"].sum() == pytest.approx(1.0)
    assert (profile["energy_low_uj"] <= profile["energy_uj"]).all()
    assert (profile["energy_high_uj"] >= profile["energy_uj"]).all()


# --- where the power comes from -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_model_alone(out, capsys):
    write_upstream(out, ceilings={})
    profile, summary, _ = run(out)
    assert_closes(profile, summary)
    factor = (POWER_W + TRAFFIC_W - STATIC_W) * P50_US / DYNAMIC_UJ
    assert columns(profile, "compute") == pytest.approx({name: factor * uj for name, uj in COMPUTE_UJ.items()})
    assert columns(profile, "movement") == pytest.approx({name: factor * uj for name, uj in MOVEMENT_UJ.items()})
    assert columns(profile, "static") == pytest.approx({name: STATIC_W * us for name, us in LATENCY_US.items()})
    assert set(profile["energy_source"]) == {"modelled"}
    assert summary["energy_source"] == summary["static_power_source"] == "modelled"
    assert summary["average_power_w"] == pytest.approx(POWER_W + TRAFFIC_W)
    assert summary["closure_factor"] == pytest.approx(factor)
    assert summary["energy_low_uj"] < summary["energy_uj"] < summary["energy_high_uj"] < 3 * summary["energy_low_uj"]
    assert summary["energy_boundary"] == "all 2 packages and memory"
    assert "the processor's name predicts it (intel xeon gold 6130, TDP 125 W; all 2" in capsys.readouterr().err


GUEST = {**HOST, "cpu_model": "Intel(R) Xeon(R) Processor", "cpu_count": 4, "core_count": 2, "package_count": 1}


@pytest.mark.slow
def test_a_virtual_machine_says_what_it_does_not_see(out, capsys):
    write_upstream(out, ceilings={}, host={**GUEST, "is_virtual": True})
    _, summary, _ = run(out, "--all-notes")
    assert summary["energy_boundary"].startswith("4 hardware threads of a package of unknown size, and the memory")
    assert "a virtual machine does not see the name of its processor (Skylake-SP or" in capsys.readouterr().err
    _, named, _ = run(out, "--cpu", "Intel Xeon Platinum 8259CL")
    assert named["energy_boundary"].startswith("4 of the 48 hardware threads of a package")
    assert named["average_power_w"] == pytest.approx(210 * 4 / 48 * 0.93 + 96 * 0.10 + TRAFFIC_W)


def test_an_unknown_processor_has_no_energy_until_the_user_names_it(out, capsys):
    write_upstream(out, ceilings={}, host={})
    _, summary, _ = run(out)
    assert (summary["energy_source"], summary["energy_uj"]) == ("unavailable", None)
    assert "the energy is unknown; rerun 01_profile_onnx.py where RAPL" in capsys.readouterr().err
    assert run(out, "--cpu", "Intel Xeon Gold 6130")[1]["average_power_w"] == pytest.approx(125 * 0.93 + TRAFFIC_W)


def test_a_processor_that_no_table_has_is_an_error(out):
    write_upstream(out)
    with pytest.raises(UnusableValueError, match="--cpu: no processor is called 'Xeon Gold 6310'; did you mean"):
        stage.main(["--out", str(out), "--cpu", "Xeon Gold 6310"])


def test_the_processor_says_nothing_of_another_device(out):
    write_upstream(out, latency={"provider": "CUDAExecutionProvider"}, ceilings={})
    assert run(out)[1]["energy_source"] == "unavailable"


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--avg-power-w", "--avg_power_w"])
def test_a_given_power_is_divided_by_the_model(out, flag):
    write_upstream(out, ceilings={})
    profile, summary, _ = run(out, flag, "5.0", "--static-power-w", "3.0")
    assert_closes(profile, summary)
    factor = (5.0 - 3.0) * P50_US / DYNAMIC_UJ
    assert summary["closure_factor"] == pytest.approx(factor)
    assert (summary["energy_uj"], summary["energy_low_uj"], summary["energy_high_uj"]) == (5000.0, 5000.0, 5000.0)
    assert columns(profile, "static")["conv_a"] == pytest.approx(3.0 * 503)
    assert columns(profile, "compute")["gemm_b"] == pytest.approx(factor * COMPUTE_UJ["gemm_b"])
    assert set(profile["energy_source"]) == {"given"}
    assert (summary["average_power_w"], summary["static_power_w"]) == pytest.approx((5.0, 3.0))
    assert summary["static_power_source"] == "given"


POWER = [
    ("pyRAPL", "package-0", 0.9e6, 1000.0),  # of the warm-up run, which ends at 1.0 s
    ("pyRAPL", "package-0", 1.0e6, 1000.0),
    ("pyRAPL", "package-0", 2.0e6, 5.0),
    ("pyRAPL", "package-0", 4.0e6, 11.0),
    *[("pyRAPL", "package-0/dram", time_us, 2.0) for time_us in (2.0e6, 4.0e6)],
    ("powercap", "psys", 4.0e6, 300.0),
    *[("nvml_energy", "gpu-0", time_us, 70.0) for time_us in (2.0e6, 4.0e6)],
]
MEASURED_W = (1 * 5.0 + 2 * 11.0) / 3 + 2.0


@pytest.mark.slow
def test_sensors_come_before_the_model(out):
    write_upstream(out, power=POWER, ceilings={})
    profile, summary, _ = run(out)
    assert_closes(profile, summary)
    assert set(profile["energy_source"]) == {"measured"}
    assert summary["average_power_w"] == pytest.approx(MEASURED_W)
    assert summary["energy_uj"] == pytest.approx(MEASURED_W * P50_US)
    assert summary["energy_low_uj"] < summary["energy_uj"] < summary["energy_high_uj"]
    assert summary["static_power_source"] == "modelled"


IDLE = [
    ("pyRAPL", "package-0", -2.5e6, 2.0),
    ("pyRAPL", "package-0", -1.0e6, 3.0),
    *[("pyRAPL", "package-0/dram", time_us, 0.5) for time_us in (-2.5e6, -1.0e6)],
    ("powercap", "psys", -1.0e6, 300.0),
]


@pytest.mark.slow
def test_what_the_idle_host_took_is_static(out):
    write_upstream(out, power=[*IDLE, *POWER])
    profile, summary, _ = run(out)
    assert_closes(profile, summary)
    assert summary["average_power_w"] == pytest.approx(MEASURED_W)
    assert summary["static_power_w"] == pytest.approx((1.5 * 2.0 + 1.5 * 3.0) / 3.0 + 0.5)
    assert summary["static_power_source"] == "measured"


def test_a_host_that_did_not_idle_is_noted(out):
    busy = [(*row[:3], 10 * row[3]) for row in IDLE]
    write_upstream(out, power=[*busy, *POWER])
    assert run(out)[1]["static_power_source"] == "modelled"
    notes = json.loads((out / "energy_summary.meta.json").read_text())["notes"]
    assert any(note.startswith("energy: the host drew 30 W before the runs and 11 W during them") for note in notes)


def test_idle_power_of_a_sensor_is_not_taken_beside_a_meters_reading(out):
    write_upstream(out, power=[*IDLE, *POWER])
    assert run(out, "--avg-power-w", "700")[1]["static_power_source"] == "modelled"


def test_the_users_figure_comes_before_sensors(out):
    write_upstream(out, power=POWER)
    assert run(out, "--avg-power-w", "7")[1]["energy_source"] == "given"


def test_a_gpu_counts_where_it_runs_the_model(out):
    write_upstream(out, power=POWER, latency={"provider": "CUDAExecutionProvider"})
    assert run(out)[1]["average_power_w"] == pytest.approx(MEASURED_W + 70.0)


# --- edges of the data ----------------------------------------------------------------------------------------------


def test_a_negative_gap_closes_all_the_same(out):
    nodes = (*NODES[:3], ("(gap)", "gap", "", -23.0, None, None, None, None))
    write_upstream(out, nodes=nodes, latency={"p50_us": 503.0 + 31.0 + 401.0 - 23.0})
    profile, summary, _ = run(out, "--avg-power-w", "5")
    assert_closes(profile, summary)
    assert profile.loc["(gap)", "energy_uj"] == 0.0
    assert profile.loc["(gap)", "node_latency_us"] == -23.0
    assert summary["static_energy_uj"] == pytest.approx(5.0 * STATIC_W / POWER_W * 912.0)


def test_without_a_median_the_rows_say_how_long_a_run_is(out):
    """Five runs have no confidence limit, so 01 leaves p50 empty; the rows of 03 close on the same median."""
    write_upstream(out, latency={"p50_us": None, "p50_low_us": None, "p50_high_us": None})
    _, summary, efficiency = run(out, "--avg-power-w", "5")
    assert summary["energy_uj"] == pytest.approx(5.0 * P50_US)
    assert efficiency["p50_us"] is None
    assert efficiency["whole_model_flop_per_s"] == pytest.approx(10_000_020 / 1e-3)


def test_unknown_work_is_noted_and_its_totals_stay_empty(out, capsys):
    write_upstream(out, rows={"gemm_b": {"flops": None, "macs": None}}, ceilings={})
    profile, summary, efficiency = run(out)
    assert_closes(profile, summary)
    watts = COMPUTE_UJ["conv_a"] / (503.0 + 31.0)  # the mean of the nodes that are counted
    assert profile.loc["gemm_b", "compute_energy_uj"] == pytest.approx(summary["closure_factor"] * watts * 401.0)
    assert pd.isna(profile.loc["gemm_b", "flops"])
    assert efficiency["model_flops"] is None
    assert efficiency["peak_share"] is None
    said = capsys.readouterr().err
    assert "unknown for gemm_b; the mean power of the other nodes is assumed; 02_shapes_flops_bytes.py says" in said
    assert "register" not in said  # what a developer would do


@pytest.mark.slow
def test_where_no_work_is_known_nodes_have_no_energy(out, capsys):
    nothing = {
        "flops": None,
        "macs": None,
        "weight_bytes": None,
        "input_bytes": None,
        "output_bytes": None,
        "bytes": None,
    }
    write_upstream(out, rows=dict.fromkeys(("conv_a", "reorder", "gemm_b"), nothing))
    profile, summary, efficiency = run(out)
    assert profile["energy_uj"].isna().all()
    assert set(profile["energy_source"]) == {"unavailable"}
    assert summary["energy_source"] == efficiency["energy_source"] == "modelled"
    assert summary["average_power_w"] == pytest.approx(POWER_W)  # what crosses the memory is unknown, too
    assert "the energy cannot be divided" in capsys.readouterr().err
    profile, summary, _ = run(out, "--avg-power-w", "5")
    assert (summary["energy_source"], summary["energy_uj"]) == ("given", 5000.0)
    assert set(profile["energy_source"]) == {"unavailable"}


@pytest.mark.slow
def test_a_cache_resident_node_moves_its_bytes_from_the_cache(out):
    write_upstream(out, rows={"gemm_b": {"is_above_roof": True, "bound": "memory"}}, ceilings={})
    profile, summary, _ = run(out)
    in_cache_uj = summary["closure_factor"] * 1e-6 * 314_015 * PJ_CACHE
    assert profile.loc["gemm_b", "movement_energy_uj"] == pytest.approx(in_cache_uj)
    write_upstream(out, rows={"gemm_b": {"is_above_roof": True, "bound": "compute"}}, ceilings={})
    profile, summary, _ = run(out)
    from_dram_uj = summary["closure_factor"] * MOVEMENT_UJ["gemm_b"]
    assert profile.loc["gemm_b", "movement_energy_uj"] == pytest.approx(from_dram_uj)


# --- ceilings -------------------------------------------------------------------------------------------------------


def test_shares_of_the_measured_ceilings(out):
    write_upstream(out, ceilings={})
    _, _, efficiency = run(out)
    assert efficiency["peak_share"] == pytest.approx(10_000_020 / 1e-3 / 5e10)
    assert efficiency["bandwidth_share"] == pytest.approx(365_056 / 1e-3 / 2e9)
    assert efficiency["model_flops"] == 10_000_020
    assert efficiency["inferences_per_joule"] == pytest.approx(1 / efficiency["joules_per_inference_j"])


def test_ceilings_that_03_was_given_come_first(out):
    write_upstream(out, ceilings={}, roofline_settings={"peak_flops": 2e10, "mem_bw": None})
    _, _, efficiency = run(out)
    assert efficiency["peak_share"] == pytest.approx(10_000_020 / 1e-3 / 2e10)
    assert efficiency["bandwidth_share"] == pytest.approx(365_056 / 1e-3 / 2e9)


def test_ceilings_of_another_thread_count_are_no_ceilings(out, capsys):
    write_upstream(out, ceilings={"threads": 7})
    profile, summary, efficiency = run(out)
    assert efficiency["peak_share"] is None
    assert "not measured with 2 threads; rerun 00_host_ceilings.py with" in capsys.readouterr().err
    same_cache_uj = summary["closure_factor"] * MOVEMENT_UJ["conv_a"]
    assert profile.loc["conv_a", "movement_energy_uj"] == pytest.approx(same_cache_uj)


def test_unstable_ceilings_judge_no_run(out, capsys):
    """They may be lower than what the model reaches, and a share of 18.8 % would pass for a finding."""
    write_upstream(out, ceilings={"stable": False})
    _, _, efficiency = run(out)
    assert efficiency["peak_share"] is efficiency["bandwidth_share"] is None
    printed, error = capsys.readouterr()
    assert "of peak" not in printed
    assert "unstable ceilings, so shares of them are empty; rerun 00_host_ceilings.py" in error
    assert "on an idle host, or give 03_merge_profile_metrics.py --peak-flops" in error


@pytest.mark.parametrize("judged", [{"stable": False}, {"threads": 7}])
def test_ceilings_that_no_share_is_of_are_not_complained_of(out, capsys, judged):
    write_upstream(out, ceilings=judged, roofline_settings={"peak_flops": 2e10, "mem_bw": 4e9})
    _, _, efficiency = run(out)
    assert efficiency["peak_share"] == pytest.approx(10_000_020 / 1e-3 / 2e10)
    assert efficiency["bandwidth_share"] == pytest.approx(365_056 / 1e-3 / 4e9)
    error, printed = capsys.readouterr()[::-1]
    assert "host_ceilings" not in error
    assert "% of peak)" in printed


def test_without_ceilings_all_bytes_are_taken_from_dram(out, capsys):
    write_upstream(out)
    profile, summary, efficiency = run(out)
    from_dram_uj = summary["closure_factor"] * 1e-6 * 20_014 * PJ_DRAM
    assert profile.loc["reorder", "movement_energy_uj"] == pytest.approx(from_dram_uj)
    assert efficiency["bandwidth_share"] is None
    assert "last-level cache is unknown" in capsys.readouterr().err


@pytest.mark.slow
def test_ceilings_of_the_shared_folder_and_of_a_path(out, tmp_path):
    write_upstream(out, ceilings={"peak_flop_per_s": 1e12})
    for folder, peak in ((tmp_path / "out", 4e10), (tmp_path / "other", 8e10)):
        with Transaction(folder, provenance("00_host_ceilings.py", model_id="")) as transaction:
            transaction.add_document("host_ceilings", host_ceilings(peak_flop_per_s=peak))
    assert run(out)[2]["peak_share"] == pytest.approx(10_000_020 / 1e-3 / 4e10)
    flags = ("--ceilings", str(tmp_path / "other" / "host_ceilings.json"))
    assert run(out, *flags)[2]["peak_share"] == pytest.approx(10_000_020 / 1e-3 / 8e10)


# --- what is printed ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_table_fits_80_columns_and_ends_in_the_total(out, capsys):
    long = tuple((f"/model/stage{k}/block/convolution_with_a_long_name/Conv_{k}", *NODES[0][1:]) for k in range(13))
    write_upstream(out, nodes=(*long, NODES[3]), ceilings={}, latency={"p50_us": 13 * 503.0 + 65.0})
    profile, summary, _ = run(out, "--avg-power-w", "65")
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("(4 more)") for line in lines)  # ten of the fourteen rows are shown
    total = next(line for line in lines if line.startswith("(one inference)"))
    assert "100.0 %" in total
    assert lines[0] == "energy of one inference   429 mJ (given), 429 mJ to 429 mJ"
    assert_closes(profile, summary)


@pytest.mark.slow
def test_a_closure_factor_outside_the_models_bounds_is_a_warning(out, capsys):
    write_upstream(out, ceilings={})
    run(out, "--avg-power-w", "1.9", "--static-power-w", "1.48")
    assert "closure factor" not in capsys.readouterr().err  # the coefficients themselves give 0.419 W of dynamic power
    run(out, "--avg-power-w", "65")
    error = capsys.readouterr().err
    assert "closure factor 61.6 is outside 0.16 to 2, the range" in error
    assert "static power is modelled, 39.2 W" in error  # the idle share of the model, of 65 W
    assert "measure the idle host and give --static-power-w" in error


@pytest.mark.slow
def test_quiet_says_nothing(out, capsys):
    write_upstream(out)
    run(out, "--quiet")
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_sidecars_keep_the_notes_the_lineage_and_the_settings(out):
    write_upstream(out, ceilings={})
    run(out, "--avg-power-w", "65")
    sidecar = json.loads((out / "ops_profile.meta.json").read_text())
    assert any("closure factor" in note for note in sidecar["notes"])
    assert set(sidecar["reads"]) == {
        "op_roofline.csv",
        "latency_summary.json",
        "power_samples.csv",
        "run_latency.csv",
        "host_ceilings.json",
    }
    assert sidecar["settings"]["avg_power_w"] == {"value": 65.0, "from": "flag"}
    assert sidecar["settings"]["static_power_w"] == {"value": None, "from": "default"}
    assert sidecar["model_path"] == "synthetic.onnx"


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(out):
    write_upstream(out, ceilings={})
    run(out)
    before = (out / "ops_profile.csv").read_bytes()
    run(out)
    assert (out / "ops_profile.csv").read_bytes() == before


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["op_roofline.csv", "latency_summary.json", "power_samples.csv", "run_latency.csv"])
def test_a_missing_table_names_the_stage_to_run(out, name):
    write_upstream(out)
    (out / name).unlink()
    with pytest.raises(UpstreamError, match=rf"{name}: not found; run 0[13]_\w+\.py first"):
        stage.main(["--out", str(out)])
    assert not (out / "ops_profile.csv").exists()


def test_ceilings_that_were_named_must_be_there(out, tmp_path):
    write_upstream(out)
    with pytest.raises(UpstreamError, match=r"gone\.json: not found; run 00_host_ceilings\.py first"):
        stage.main(["--out", str(out), "--ceilings", str(tmp_path / "gone.json")])


@pytest.mark.slow
def test_a_table_of_another_model_is_refused(out):
    write_upstream(out)
    with Transaction(out, provenance("03_merge_profile_metrics.py", model_id="cd" * 32)) as other:
        other.add_table("op_roofline", Folder(out, provenance("03")).table("op_roofline"))
    with pytest.raises(UpstreamError, match=r"of model"):
        stage.main(["--out", str(out)])


def test_static_power_above_the_average_is_an_error_and_writes_nothing(out):
    write_upstream(out)
    with pytest.raises(
        PipelineError, match=r"--static-power-w: static power of 7 W .* above the average power of a run, 5 W"
    ):
        stage.main(["--out", str(out), "--avg-power-w", "5", "--static-power-w", "7"])
    assert not (out / "energy_summary.json").exists()


@pytest.mark.parametrize("value", ["nan", "-1", "0", "inf", "much"])
def test_a_power_that_is_none(out, value):
    with pytest.raises(CommandLineError, match="finite number above 0"):
        stage.main(["--out", str(out), "--avg-power-w", value])


@pytest.mark.slow
def test_a_configuration_of_ones_own(out, tmp_path):
    write_upstream(out)
    content = yaml.safe_load((ROOT / "configs" / "energy.yaml").read_text(encoding="utf-8"))
    content["models"]["mine"] = content["models"].pop("server-cpu")
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(content), encoding="utf-8")
    run(out, "--energy-config", str(own), "--energy-model", "mine")
    with pytest.raises(UnusableValueError, match="no energy model is called 'server-cpu'; known: mine"):
        stage.main(["--out", str(out), "--energy-config", str(own)])


# --- as a process ---------------------------------------------------------------------------------------------------


def process(*arguments, cwd):
    command = [sys.executable, str(ROOT / SCRIPT), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_process_keeps_its_streams_apart(out, tmp_path):
    write_upstream(out)
    ran = process("--out", str(out), "--avg_power_w", "65.0", cwd=tmp_path)
    assert ran.returncode == 0
    assert ran.stdout.startswith("energy of one inference   65.0 mJ (given)")
    rows = len(pd.read_csv(out / "ops_profile.csv"))
    assert f"wrote {out / 'ops_profile.csv'} ({rows} rows) and 2 more files" in ran.stderr.splitlines()
    assert "note:" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ["--out", "nowhere"],
            3,
            f"{SCRIPT}: error: nowhere/op_roofline.csv: not found; run 03_merge_profile_metrics.py",
        ),
        (["--watts", "3"], 2, f"{SCRIPT}: error: command line: unrecognized arguments: --watts 3"),
        (
            ["--out", "tables", "--avg-power-w", "1", "--static-power-w", "2"],
            2,
            f"{SCRIPT}: error: --static-power-w: static power of 2 W (given) is above",
        ),
    ],
)
def test_exit_codes_with_one_line(out, tmp_path, arguments, code, line):
    write_upstream(out)
    ran = run_stage(SCRIPT, *arguments, cwd=tmp_path)
    assert ran.returncode == code
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(line)


def test_help_shows_an_example_that_is_true(out, tmp_path):
    """The row of conv1 in the docstring, computed."""
    text = run_stage(SCRIPT, "--help-all", cwd=tmp_path).stdout
    given = next(line for line in text.splitlines() if line.strip().startswith("conv1,float32")).strip().split(",")
    wanted = next(line for line in text.splitlines() if line.strip().endswith(",modelled")).strip().split(",")
    flops, weight, inputs, outputs = (int(cell) for cell in given[2:6])
    nodes = (
        ("conv1", "node", "Conv", float(given[6]), flops, weight, inputs, outputs),
        ("gemm", "node", "Gemm", 100.0, 1000, 64_000_000, 1000, 1000),
    )
    latency = {"p50_us": float(given[6]) + 100.0}
    write_upstream(out, nodes=nodes, latency=latency, ceilings={"last_level_cache_bytes": 33_554_432})
    profile, _, _ = run(out)
    causes = ["compute_energy_uj", "movement_energy_uj", "static_energy_uj", "energy_uj"]
    assert profile.loc["conv1", causes].tolist() == pytest.approx([float(cell) for cell in wanted[1:5]])
