"""Stage 08 through its command line, on tables that 02 has written of tiny models."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from functools import partial
from math import prod

import pandas as pd
import pytest

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import single_buffer
from common.design_space.evaluation import evaluate, results_of
from common.design_space.hierarchy import schedule_edges
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.search.engines.registry import ENGINES, is_installed
from common.design_space.search.fronts import best
from common.design_space.search.settings import Search
from common.design_space.single_buffer.bound import lower_bound
from common.design_space.single_buffer.fusion import fused_front
from common.view.design.design_text import design_report, verdict_lines
from common.workers import Workers
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import layer_graph
from common.workload.nest_rows import nests_by_node
from models.__main__ import BUILDERS
from tests.support.paths import CONFIGS, ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.source import source_rows

SCRIPT = "08_design_space.py"
MODELS = {"tiny-resnet8": ("--dim", "batch=1"), "tiny-transformer": ("--dim", "batch=2", "--dim", "seq=5")}
MODELS |= {"tiny-loop": ("--dim", "batch=3")}
DECODE = [f"--dim={size}" for size in ("batch=1", "sequence_length=1", "past_sequence_length=50")]
DECODE += ["--dim=total_sequence_length=51"]
TABLES = (
    "design_points",
    "design_comparison",
    "design_convergence",
    "design_budgets",
    "design_mappings",
    "design_groups",
)

stage = importlib.import_module("08_design_space")


def counted(folder, name, *flags):
    """Write the tables of 02 of a tiny model."""
    model = folder / f"{name}.onnx"
    model.write_bytes(BUILDERS[name]().SerializeToString())
    written = run_stage("02_shapes_flops_bytes.py", "--model", model, *flags, "--out", folder / name)
    assert written.returncode == 0, written.stderr
    return folder / name


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {name: counted(folder, name, *flags) for name, flags in MODELS.items()}


@pytest.fixture(scope="module")
def tables(folders):
    return folders["tiny-resnet8"]


def run(out, *flags):
    """Run the stage, and return what it printed, its tables and its summary."""
    done = run_stage(SCRIPT, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    found = {name: pd.read_csv(out / f"{name}.csv") for name in TABLES}
    return done, found, json.loads((out / "design_summary.json").read_text())


def factors(mapping):
    """The product of all factors of each loop of a mapping, and of those in space, read from its text alone."""
    words = [word for word in mapping.split() if not word.startswith(("L", "-"))]
    every, spatial = dict.fromkeys("NGKCPQRS", 1), 1
    for word in words:
        size = int(word[1:].rstrip("X"))
        every[word[0]] *= size
        spatial *= size if word.endswith("X") else 1
    return every, spatial


# --- mapped layers --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_contraction_is_mapped_whole(folders, name):
    _, found, summary = run(folders[name], "--hardware", "gemmini")
    mappings, metrics = found["design_mappings"], pd.read_csv(folders[name] / "op_metrics.csv")
    assert len(mappings)
    for row in mappings.itertuples():
        every, spatial = factors(row.mapping)
        assert row.macs <= prod(every.values()) < 4 * row.macs  # what factors cover beyond a loop is empty steps
        assert row.array_use_share <= spatial / 256 + 1e-12  # the array holds 16 × 16 copies
        assert sum(json.loads(row.energy_parts_pj).values()) == pytest.approx(row.modelled_energy_pj)
        words = json.loads(row.moved_words)
        at_dram = {name: getattr(row, f"dram_{name}_bytes") for name in ("weight", "input", "output")}
        at_memory = {name: words.get(f"dram {name}", 0.0) for name in at_dram}  # nothing of what is resident
        assert at_memory == pytest.approx(at_dram)  # words of one byte
        # Each multiplication reads a weight; what the scratchpad did not get from DRAM, it gave to the registers.
        assert words["registers weight"] == row.macs + words["scratchpad weight"] - at_memory["weight"]
    macs = (mappings["macs"] * mappings["execution_count"]).groupby(mappings["source_node"]).sum()
    counted = metrics.set_index("source_node")["macs"]
    assert macs.to_dict() == counted[macs.index].to_dict()
    groups = found["design_groups"]
    for column in ("modelled_cycles", "modelled_energy_pj"):
        assert (mappings["execution_count"] * mappings[column]).sum() <= groups[column].sum() * (1 + 1e-9)
        assert summary[column] == pytest.approx(groups[column].sum())
    parts = [sum(json.loads(parts).values()) for parts in groups["energy_parts_pj"]]
    assert parts == pytest.approx(list(groups["modelled_energy_pj"]))
    assert summary["edp_pj_cycles"] == pytest.approx(
        groups["modelled_cycles"].sum() * groups["modelled_energy_pj"].sum()
    )
    moved = [column for column in mappings if column.startswith("dram_")]
    assert (mappings["execution_count"] * mappings[moved].sum(axis=1)).sum() <= groups["dram_bytes"].sum() * (1 + 1e-9)
    assert groups["buffer_peak_bytes"].between(0, 128 * 1024).all()


@pytest.mark.slow
def test_a_search_with_the_cycles_of_the_rtl_takes_fewer_of_them(tables):
    (analytic, found, of_analytic), (searched, rtl, of_rtl) = (
        run(tables, "--hardware", "gemmini", "--cycle-model", model) for model in ("analytic", "rtl")
    )
    assert (of_analytic["cycle_model"], of_rtl["cycle_model"]) == ("analytic", "rtl")
    for summary, own in ((of_analytic, found), (of_rtl, rtl)):
        mappings = own["design_mappings"]
        low, likely, high = (mappings[f"rtl_{end}cycles"] for end in ("low_", "", "high_"))
        assert (low < likely).all()
        assert (likely < high).all()
        streams = (
            own["design_groups"]["modelled_cycles"].sum()
            - (mappings["execution_count"] * mappings["modelled_cycles"]).sum()
        )
        assert (mappings["execution_count"] * likely).sum() + streams == pytest.approx(summary["rtl_cycles"])
        assert summary["rtl_low_cycles"] < summary["rtl_cycles"] < summary["rtl_high_cycles"]
    assert (rtl["design_mappings"]["rtl_cycles"] <= rtl["design_mappings"]["modelled_cycles"] + 1).all()
    product = of_analytic["modelled_energy_pj"] * max(of_analytic["rtl_cycles"], of_analytic["modelled_cycles"])
    assert of_rtl["edp_pj_cycles"] < product
    assert "the cycle model rtl searches with these" in analytic.stdout
    assert "on the RTL " in searched.stdout
    assert "--cycle-model" not in searched.stdout


def test_cycles_of_the_rtl_need_a_file_with_its_costs(tables):
    done = run_stage(SCRIPT, "--out", tables, "--hardware", "u280", "--cycle-model", "rtl")
    assert done.returncode == 2
    assert "u280 has no costs of its RTL" in done.stderr


@pytest.mark.slow
def test_every_layer_is_in_a_group_and_the_contractions_alone_stay_visible(folders):
    metrics, graph = source_rows(BUILDERS["tiny-resnet8"](), batch=1)
    done, found, summary = run(folders["tiny-resnet8"], "--hardware", "gemmini")
    assert found["design_groups"]["layer_count"].sum() == len(layer_graph(metrics, graph).layers)
    nests = {f"{node}.{at}": nest for node, own in nests_by_node(metrics, graph).items() for at, nest in enumerate(own)}
    alone = exact(nests, load_hardware("gemmini", CONFIGS / "hardware"))
    assert summary["contraction_edp_pj_cycles"] == pytest.approx(alone.edp)
    assert f"contractions alone, layer by layer: {alone.edp:.4e}" in done.stdout
    assert summary["edp_pj_cycles"] <= summary["unfused_edp_pj_cycles"]


@pytest.mark.slow
def test_resident_tensors_spare_memory_and_a_limit_of_one_layer_allows_none(tables):
    sweep = ("--sweep", "scratchpad_kib=8,64")
    done, found, _ = run(tables, *sweep)
    small, large = (rows for _, rows in found["design_groups"].groupby("design", sort=False))
    assert large["dram_bytes"].sum() < small["dram_bytes"].sum()
    assert large["resident_tensor_count"].sum() > small["resident_tensor_count"].sum()
    is_resident = found["design_mappings"]["resident_operands"].dropna()
    assert {"input", "output", "weight"} >= {operand for cell in is_resident for operand in cell.split()} > {"weight"}
    assert "resident" in done.stdout
    _, single, _ = run(tables, *sweep, "--most-layers", 1)
    assert (single["design_groups"]["layer_count"] == 1).all()
    assert (single["design_groups"]["resident_tensor_count"] == 0).all()
    points = single["design_points"]
    assert points["edp_pj_cycles"].tolist() == pytest.approx(points["unfused_edp_pj_cycles"].tolist())


@pytest.mark.slow
def test_the_weights_of_a_decoder_stay_between_its_calls(tmp_path):
    """Every product of the tiny decoder has one row; all of its weights fit the scratchpad of Gemmini, or a part."""
    out = counted(tmp_path, "tiny-grouped-decoder", *DECODE)
    _, alone, _ = run(out)
    done, staying, summary = run(out, "--weights-stay")
    products = 2 * (64 * (2 * 64 + 2 * 32) + 3 * 64 * 40) + 64 * 97  # weights of all products
    before, after = (found["design_mappings"] for found in (alone, staying))
    assert before["dram_weight_bytes"].sum() - after["dram_weight_bytes"].sum() == products
    assert summary["staying_weight_bytes"] == products
    assert "46.1 kB of weights stay on the chip from one inference to the next" in done.stdout
    assert "fusion and weights that stay save" in done.stdout
    assert (before["bound_by"] == "dram").all()
    assert {*before["nest_row_count"]} == {1, 2}  # two heads of queries share the keys
    assert (before["array_use_share"] <= before["nest_row_count"] * 8 / 256).all()  # DRAM gives 8 words per cycle
    stays = after[after["resident_operands"].fillna("").str.contains("weight")]
    assert {*stays["resident_level"]} == {"scratchpad"}
    assert (stays["dram_weight_bytes"] == 0).all()
    assert staying["design_points"]["edp_pj_cycles"][0] < alone["design_points"]["edp_pj_cycles"][0]
    done, part, _ = run(out, "--weights-stay", "--sweep", "scratchpad_kib=16")
    bytes_staying = part["design_points"]["staying_weight_bytes"][0]
    assert 8 * 1024 < bytes_staying <= 15 * 1024
    read = part["design_mappings"]["dram_weight_bytes"].sum()
    assert read >= before["dram_weight_bytes"].sum() - bytes_staying


@pytest.mark.slow
def test_the_optimum_is_the_best_of_its_space_and_no_random_mapping_is_below(tables):
    done, _, best_of_all = run(tables, "--engine", "exact")
    assert best_of_all["space_gap_share"] is None
    assert best_of_all["space_best_edp_pj_cycles"] == best_of_all["edp_pj_cycles"]
    assert 0 < best_of_all["bound_edp_pj_cycles"] < best_of_all["edp_pj_cycles"]
    assert "best of this space: no schedule of it has a lower product\nphysical floor" in done.stdout
    products = []
    for seed, evaluations in itertools.product((1, 2), (20, 401)):
        _, _, summary = run(tables, "--engine", "random", "--evaluations", evaluations, "--seed", seed)
        assert (summary["evaluation_count"], summary["seed"]) == (evaluations, seed)
        assert summary["space_best_edp_pj_cycles"] == pytest.approx(best_of_all["edp_pj_cycles"])
        assert summary["space_gap_share"] == pytest.approx(summary["edp_pj_cycles"] / best_of_all["edp_pj_cycles"] - 1)
        assert summary["bound_edp_pj_cycles"] == pytest.approx(best_of_all["bound_edp_pj_cycles"])
        products.append(summary["edp_pj_cycles"])
    assert min(products) > best_of_all["unfused_edp_pj_cycles"]
    assert len(set(products)) == 4
    assert products[1] < products[0]


def test_a_layer_that_runs_often_weighs_as_often():
    hardware = load_hardware("gemmini", CONFIGS / "hardware")
    nests = {"a": LoopNest(k=7, c=11, p=13), "b": LoopNest(k=5, c=3, p=2, r=3)}
    often = exact(nests, hardware, runs={"a": 3})
    written_out = exact({"a": nests["a"], "a2": nests["a"], "a3": nests["a"], "b": nests["b"]}, hardware)
    assert often.edp == pytest.approx(written_out.edp)
    assert often.cycles == pytest.approx(3 * often.choice["a"].cycles + often.choice["b"].cycles)


@pytest.mark.slow
def test_a_loop_counts_with_its_passes(folders):
    _, found, _ = run(folders["tiny-loop"])
    assert found["design_mappings"]["execution_count"].max() > 1


@pytest.mark.slow
def test_what_is_no_loop_nest_is_named(tables):
    done, _, _ = run(tables)
    (line,) = [line for line in done.stderr.splitlines() if "no loop nests, so they count as traffic" in line]
    assert "DequantizeLinear+GlobalAveragePool+QuantizeLinear" in line
    assert "Conv" not in line
    assert "in 8 bits, where the model has 32" in done.stderr


@pytest.mark.slow
def test_what_a_model_of_too_many_states_leaves_out_is_said(tables, monkeypatch):
    monkeypatch.setattr(schedule_edges, "MOST_STATES", 0)
    done, found, _ = run(tables)
    assert (
        "too many states: layers run in the order of the model, and at most 0 tensors are resident at once"
        in done.stderr
    )
    assert found["design_points"]["is_complete"].all()


@pytest.mark.slow
def test_sizes_are_combined_and_the_best_comes_first(folders):
    done, found, summary = run(folders["tiny-loop"], "--sweep", "array=4x4,8x8 scratchpad_kib=16,32")
    points = found["design_points"].set_index("design")
    assert list(points.index) == [
        f"gemmini array={side}x{side} scratchpad_kib={kib}" for side in (4, 8) for kib in (16, 32)
    ]
    assert points["array_row_count"].tolist() == [4, 4, 8, 8]
    assert [json.loads(cell)["scratchpad"] for cell in points["memory_sizes_kib"]] == [16, 32, 16, 32]
    assert summary["design"] == points["edp_pj_cycles"].idxmin()
    assert summary["design_count"] == 4
    assert done.stdout.startswith(f"{summary['design']}, exact: EDP {summary['edp_pj_cycles']:.4e}")
    # The last row tile may have fewer rows, and then a mapping of its own.
    assert found["design_mappings"].groupby("design")["source_node"].nunique().nunique() == 1
    assert max(map(len, done.stdout.splitlines()[3:8])) <= 80


# --- engines --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["exact", "two-step", "random"])
def test_the_seed_decides_what_an_engine_finds(tables, engine):
    def found():
        run(tables, "--engine", engine, "--evaluations", 101, "--seed", 7, "--most-layers", 1)
        kept = set(TABLES) - {"design_comparison"}  # it has the seconds
        return {name: (tables / f"{name}.csv").read_bytes() for name in kept}

    assert found() == found()


@pytest.mark.slow
def test_the_curve_of_a_search_ends_at_its_result(tables):
    _, found, summary = run(tables, "--engine", "two-step", "--evaluations", 301)
    curve = found["design_convergence"]
    assert set(curve["search_engine"]) == {"two-step"}
    assert curve["evaluation_count"].is_monotonic_increasing
    assert curve["best_edp_pj_cycles"].is_monotonic_decreasing
    assert curve["best_edp_pj_cycles"].iloc[-1] == pytest.approx(summary["edp_pj_cycles"])
    assert curve["evaluation_count"].iloc[-1] <= summary["evaluation_count"] == 301


@pytest.mark.slow
def test_experiments_compare_every_engine_that_is_installed_and_none_beats_the_exact_one(tables):
    done, found, summary = run(tables, "--experiments", "--evaluations", 90, "--seed", 5)
    compared = found["design_comparison"].set_index("algorithm")
    engines = [name for name in ENGINES if name != "fa-dosa"]
    installed = [name for name in engines if is_installed(name)]
    assert list(compared.index) == installed
    assert (compared["edp_pj_cycles"] >= compared.loc["exact", "edp_pj_cycles"] * (1 - 1e-12)).all()
    assert compared["edp_pj_cycles"].tolist() == pytest.approx(
        (compared["modelled_cycles"] * compared["modelled_energy_pj"]).tolist()
    )
    assert compared["evaluation_count"].drop("exact").between(10, 90).all()
    assert compared.loc["random", "evaluation_count"] == 90
    assert compared["gap_share"].tolist() == pytest.approx(
        (compared["edp_pj_cycles"] / summary["bound_edp_pj_cycles"] - 1).tolist(), abs=1e-9
    )
    assert summary["search_engine"] == "exact"
    assert summary["design_count"] == 1
    assert found["design_points"]["search_engine"].tolist() == installed
    assert not found["design_mappings"].duplicated(["design", "source_node", "nest_index"]).any()
    lines = done.stdout.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("algorithm"))
    assert [line.split()[0] for line in lines[start + 1 : start + 1 + len(installed)]] == installed
    assert max(map(len, lines[start:])) <= 80
    missing = [name for name in engines if name not in installed]
    notes = [line for line in done.stderr.splitlines() if "not compared" in line]
    absent = f"; because not installed: {', '.join(missing)} (pip install -r requirements-search.txt)" * bool(missing)
    assert notes == [f"note: not compared, because it fuses in one buffer: fa-dosa{absent}"]


@pytest.mark.slow
def test_ctrl_c_in_an_exact_search_leaves_the_schedule_without_fusion():
    class Interrupted:
        is_interrupted = True

        def begin(self, bound):
            assert bound > 0

        def hear(self, *_):
            pass

    rows = source_rows(BUILDERS["tiny-resnet8"](), batch=1)
    for name in ("gemmini", "fa-dosa"):
        designs = {size: load_hardware(name, CONFIGS / "hardware") for size in ("one", "other")}
        run = partial(results_of, cache=None, workers=Workers(), observer=Interrupted(), progress=lambda *_: None)
        found = evaluate(designs, *rows, [Search()], run)
        (point,) = (design.point for design in found.designs)
        assert not point["is_complete"]
        assert point["edp_pj_cycles"] == point["unfused_edp_pj_cycles"] > point["bound_edp_pj_cycles"] > 0


def test_an_engine_whose_package_is_missing_says_how_to_install_it(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    done = run_stage(SCRIPT, "--out", tables, "--engine", "cma")
    assert done.returncode == 1
    assert done.stderr == (
        "08_design_space.py: error: cma: is not installed; run: pip install -r requirements-search.txt\n"
    )


def interrupted(folder, presses, *flags):
    """Run the stage; while a mapping is evaluated for the 200th time, Ctrl-C is pressed so many times."""
    code = (
        "import importlib, os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from common.design_space.mapping.space.mapping_problem import MappingProblem\n"
        "evaluate, presses, calls = MappingProblem.evaluate, int(sys.argv.pop(1)), []\n"
        "def evaluate_and_interrupt(self, choices):\n"
        "    calls.append(choices)\n"
        "    for _ in range(presses if len(calls) == 200 else 0):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.1)\n"
        "    return evaluate(self, choices)\n"
        "MappingProblem.evaluate = evaluate_and_interrupt\n"
        "from common import cli\n"
        "sys.argv = sys.argv[1:]\n"
        "cli.run(importlib.import_module('08_design_space').main)\n"
    )
    command = [sys.executable, "-c", code, str(presses), SCRIPT, "--out", str(folder), *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_ctrl_c_ends_a_search_with_the_best_so_far_and_marks_it(tables):
    done = interrupted(tables, 1, "--engine", "two-step", "--evaluations", "1000000", "--sweep", "array=8x8,16x16")
    assert done.returncode == 0, done.stderr
    assert "note: Ctrl-C ended the search: the tables hold the best that it had found" in done.stderr
    assert done.stdout.startswith("gemmini array=8x8, two-step (interrupted: the best so far): EDP ")
    summary, points = (
        json.loads((tables / "design_summary.json").read_text()),
        pd.read_csv(tables / "design_points.csv"),
    )
    assert points["design"].tolist() == ["gemmini array=8x8"]  # the other was not begun
    assert not points["is_complete"].any()
    assert not summary["is_complete"]
    assert 200 < summary["evaluation_count"] < 1_000_000
    mappings = pd.read_csv(tables / "design_mappings.csv")
    assert mappings["macs"].sum() == pd.read_csv(tables / "op_metrics.csv")["macs"].sum()
    curve = pd.read_csv(tables / "design_convergence.csv")
    assert curve["best_edp_pj_cycles"].iloc[-1] == pytest.approx(summary["edp_pj_cycles"])


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_program_and_replaces_nothing(tables):
    run(tables)
    before = {name: (tables / f"{name}.csv").read_bytes() for name in TABLES}
    done = interrupted(tables, 2, "--engine", "two-step", "--evaluations", "1000000", "--most-layers", "1")
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert {name: (tables / f"{name}.csv").read_bytes() for name in TABLES} == before


# --- fused groups ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_accounting_once_is_named_and_tiles_nothing(tables):
    done, found, summary = run(tables, "--hardware", "fa-dosa", "--accounting", "once")
    assert done.stdout.startswith("fa-dosa, exact, accounting once: EDP")
    assert "accounting once: each kernel moves each of its tensors once" in done.stderr
    groups = found["design_groups"]
    assert groups["buffer_peak_bytes"].isna().all()
    assert groups["modelled_cycles"].sum() == pytest.approx(summary["modelled_cycles"])
    assert summary["edp_pj_cycles"] <= summary["unfused_edp_pj_cycles"]
    assert set(found["design_points"]["accounting"]) == {"once"}
    _, found, tiled = run(tables, "--hardware", "fa-dosa")
    assert set(found["design_points"]["accounting"]) == {"tiled"}
    assert tiled["edp_pj_cycles"] != summary["edp_pj_cycles"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["random", "two-step", "gradient"])
def test_engines_choose_groups_of_one_buffer_and_none_is_below_the_optimum(folders, engine):
    if engine == "gradient":
        pytest.importorskip("torch", reason="comes with requirements-torch.txt")
    hardware = ("--hardware", "fa-dosa", "--sweep", "buffer_kib=8", "--seed", 3)
    _, _, optimum = run(folders["tiny-resnet8"], *hardware)
    _, found, summary = run(folders["tiny-resnet8"], *hardware, "--engine", engine, "--evaluations", 83)
    groups = found["design_groups"]
    assert summary["evaluation_count"] == 83
    assert optimum["edp_pj_cycles"] <= summary["edp_pj_cycles"] <= 1.01 * summary["unfused_edp_pj_cycles"]
    assert groups["modelled_cycles"].sum() * groups["modelled_energy_pj"].sum() == pytest.approx(
        summary["edp_pj_cycles"]
    )
    assert (groups["buffer_peak_bytes"] <= 8 * 1024).all()
    assert summary["gap_share"] == pytest.approx(summary["edp_pj_cycles"] / optimum["bound_edp_pj_cycles"] - 1)


@pytest.mark.slow
def test_groups_follow_from_the_search_and_add_up(tables):
    done, found, summary = run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=8")
    layers = layer_graph(*source_rows(BUILDERS["tiny-resnet8"](), batch=1))
    buffer = single_buffer(load_hardware("fa-dosa", CONFIGS / "hardware").resized(capacity_kib={"buffer": 8}))
    fused, bound = best(fused_front(layers, buffer)), lower_bound(layers, buffer).edp
    groups = found["design_groups"]
    assert found["design_mappings"].empty
    assert groups["layer_count"].sum() == len(layers.layers)
    assert groups["modelled_cycles"].sum() == pytest.approx(fused.cycles)
    assert groups["modelled_energy_pj"].sum() == pytest.approx(fused.energy_pj)
    parts = pd.DataFrame(list(groups["energy_parts_pj"].map(json.loads)))
    assert parts.sum(axis=1).to_list() == pytest.approx(groups["modelled_energy_pj"].to_list())
    assert parts["dram"].to_list() == pytest.approx((2.5 * groups["dram_bytes"]).to_list())
    assert groups["buffer_peak_bytes"].between(0, 8 * 1024).all()
    assert groups["group_index"].tolist() == list(range(len(groups)))
    assert summary["edp_pj_cycles"] == pytest.approx(fused.edp)
    assert summary["bound_edp_pj_cycles"] == pytest.approx(bound)
    assert summary["gap_share"] == pytest.approx(fused.edp / bound - 1)
    assert summary["chip_mm2"] == pytest.approx(8 * 0.0001)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fa-dosa buffer_kib=8, exact: EDP")
    assert lines[1] == "best of this space: no schedule of it has a lower product"
    assert lines[2] == f"physical floor {bound:.4e}: the product is {100 * (fused.edp / bound - 1):.1f} % above it"
    counts = [re.search(r" (\d+) +(?:\d+x\d+|–) ", line)[1] for line in lines[6:]]
    assert [*map(int, counts)] == groups["layer_count"].tolist()
    assert max(map(len, lines[5:])) <= 80


@pytest.mark.slow
def test_a_larger_buffer_is_never_further_from_its_bound_here_and_single_layers_save_nothing(tables):
    _, found, _ = run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=4,16,64", "--most-layers", 1)
    points = found["design_points"]
    assert points["edp_pj_cycles"].tolist() == pytest.approx(points["unfused_edp_pj_cycles"].tolist())
    assert points["gap_share"].is_monotonic_decreasing
    assert (found["design_groups"]["layer_count"] == 1).all()


@pytest.mark.slow
def test_what_counts_as_traffic_alone_is_named_once(folders):
    done, _, _ = run(folders["tiny-transformer"], "--hardware", "fa-dosa", "--sweep", "buffer_kib=29")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert line.startswith("note: beside contractions and pools: ")
    assert line.count("LayerNormalization counts as traffic") == 1


def test_a_product_is_above_the_best_of_its_space_and_above_the_floor():
    point = {
        "design": "d",
        "search_engine": "exact",
        "is_complete": True,
        "modelled_cycles": 2.0,
        "modelled_energy_pj": 2.5,
        "staying_weight_bytes": None,
    }
    point["contraction_edp_pj_cycles"] = None
    point |= dict.fromkeys(("rtl_low_cycles", "rtl_cycles", "rtl_high_cycles")) | {"cycle_model": "analytic"}
    at_bound = point | {
        "edp_pj_cycles": 5.0,
        "bound_edp_pj_cycles": 5.0,
        "gap_share": 0.0,
        "space_best_edp_pj_cycles": 5.0,
        "space_gap_share": None,
        "accounting": "tiled",
        "unfused_edp_pj_cycles": 8.0,
    }
    assert "best of this space: no schedule" in verdict_lines(at_bound)
    assert "physical floor 5.0000e+00: the product is 0.0 % above it" in verdict_lines(at_bound)
    assert "fusion saves 37.5 %" in verdict_lines(at_bound)
    above = at_bound | {"bound_edp_pj_cycles": 4.0, "gap_share": 0.25}
    assert "physical floor 4.0000e+00: the product is 25.0 % above it" in verdict_lines(above)
    proposed = above | {"search_engine": "cma", "space_best_edp_pj_cycles": 4.5, "space_gap_share": 0.111}
    assert "best of this space 4.5000e+00, gap 11.1 %" in verdict_lines(proposed)
    early = proposed | {"search_engine": "exact"}
    at_limit = "no schedule of this space is below 4.5000e+00;\nthe one found is at most 11.1 % above that"
    assert at_limit in verdict_lines(early)
    unknown = above | {"space_best_edp_pj_cycles": None, "bound_edp_pj_cycles": None, "gap_share": None}
    assert not {"space", "floor"} & set(verdict_lines(unknown).split())
    assert design_report(above, [above | {"problem": None}], [], [], [], []) == verdict_lines(above)


# --- sweeps ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_goes_on_past_sizes_in_which_nothing_fits(tables):
    done, found, summary = run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=0.001,0.0625,8,16")
    points = found["design_points"]
    assert points["problem"].notna().tolist() == [True, True, False, False]
    assert "below one tile" in points["problem"][0]
    assert "64 bytes do not hold the smallest tile of" in points["problem"][1]
    costs = ["modelled_cycles", "modelled_energy_pj", "edp_pj_cycles", "bound_edp_pj_cycles", "gap_share"]
    assert points.loc[:1, costs].isna().all(axis=None)
    assert points.loc[2:, costs].notna().all(axis=None)
    assert points["chip_mm2"].tolist() == pytest.approx([1e-7, 6.25e-6, 8e-4, 1.6e-3])
    assert points["is_pareto"].tolist() == [False, False, True, True]
    assert (summary["design"], summary["design_count"]) == ("fa-dosa buffer_kib=16", 4)
    assert set(found["design_groups"]["design"]) == {"fa-dosa buffer_kib=8", "fa-dosa buffer_kib=16"}
    lines = done.stdout.splitlines()
    at = lines.index("nothing fits in 2 of 4 designs:")
    assert lines[at + 1].startswith("buffer_kib=0.001: holds 0.256 words")
    _, only, _ = run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=8,16")
    kept = points.loc[2:].reset_index(drop=True)
    pd.testing.assert_frame_equal(only["design_points"], kept, check_dtype=False)


def test_where_nothing_fits_at_all_there_is_one_line(tables):
    done = run_stage(SCRIPT, "--out", tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=0.001,0.0625")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "below one tile" in line


@pytest.mark.slow
def test_the_best_design_within_each_area_is_that_of_a_search_through_all(folders):
    tables = folders["tiny-loop"]
    sweep = ("--sweep", "array=4x4,8x8,16x16,8x32 scratchpad_kib=16,128")
    done, found, _ = run(tables, *sweep)
    points, steps = found["design_points"], found["design_budgets"]
    within = [points[points["chip_mm2"] <= area]["edp_pj_cycles"].min() for area in points["chip_mm2"]]
    is_step = [
        edp == least and not ((points["chip_mm2"] < area) & (points["edp_pj_cycles"] <= edp)).any()
        for area, edp, least in zip(points["chip_mm2"], points["edp_pj_cycles"], within, strict=True)
    ]
    expected = points[is_step].sort_values("chip_mm2")
    assert steps["design"].tolist() == expected["design"].tolist()
    assert 1 < len(steps) < len(points)
    assert (steps["area_budget_mm2"] == steps["chip_mm2"]).all()
    assert "best within" in done.stdout
    areas = sorted(points["chip_mm2"])
    budget = (areas[3] + areas[4]) / 2
    _, found, _ = run(tables, *sweep, "--area-budget-mm2", 99, "--area-budget-mm2", budget)
    best = [points[points["chip_mm2"] <= area]["edp_pj_cycles"].min() for area in (budget, 99)]
    assert found["design_budgets"]["area_budget_mm2"].tolist() == [budget, 99]
    assert found["design_budgets"]["edp_pj_cycles"].tolist() == best


@pytest.mark.slow
def test_the_log_sum_chooses_a_smaller_design_and_is_called_degenerate(tables):
    sweep = ("--hardware", "fa-dosa", "--sweep", "buffer_kib=1,2,…,64")
    _, found, by_edp = run(tables, *sweep)
    done, again, by_log_sum = run(tables, *sweep, "--objective", "log-sum")
    points = found["design_points"]
    assert by_edp["design"] == points.loc[points["edp_pj_cycles"].idxmin(), "design"]
    product = points["modelled_cycles"] * points["modelled_energy_pj"] * points["chip_mm2"]
    assert by_log_sum["design"] == points.loc[product.idxmin(), "design"]
    assert by_log_sum["chip_mm2"] < by_edp["chip_mm2"]
    assert (by_edp["design_objective"], by_log_sum["design_objective"]) == ("edp", "log-sum")
    assert "the log sum of latency, energy and area is degenerate" in done.stderr
    pd.testing.assert_frame_equal(found["design_points"], again["design_points"])


@pytest.mark.slow
def test_of_a_large_sweep_the_front_is_shown(tables):
    sizes = "buffer_kib=64,65,66,67,68,69,70,71,72,73 array=1000x1,500x1,250x1,125x1"
    done, found, _ = run(tables, "--hardware", "fa-dosa", "--sweep", sizes)
    points = found["design_points"]
    assert len(points) == 40
    assert "the front of 40 designs" in done.stdout
    assert done.stdout.count(" yes\n") == points["is_pareto"].sum() < 40


# --- bad days -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tables, tmp_path_factory):
    """A folder of its own with the tables of one search, which no test may change."""
    folder = shutil.copytree(tables, tmp_path_factory.mktemp("written") / "out")
    run(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        (("--hardware", "gemmini", "--accounting", "once"), 2, "--hardware: gemmini has the memories"),
        (("--hardware", "fa-dosa", "--accounting", "once", "--engine", "random"), 2, "random has nothing to search"),
        (("--hardware", "fa-dosa", "--accounting", "once", "--experiments"), 2, "leave out --accounting"),
        (("--hardware", "nowhere"), 2, "known: dpu-b4096, eyeriss, fa-dosa, gemmini, nvdla, simba, tpu-v1, u280"),
        (
            ("--hardware", "fa-dosa", "--weights-stay"),
            2,
            "--weights-stay: weights stay in exact searches on an accelerator with several memories, and this one",
        ),
        (("--engine", "random", "--weights-stay"), 2, "and --engine random is another search; leave it out"),
        (("--experiments", "--weights-stay"), 2, "and --experiments runs other searches; leave it out"),
        (("--most-layers", "1", "--weights-stay"), 2, "and --most-layers 1 keeps nothing on the chip; leave it out"),
        (("--evaluations", "0"), 2, "--evaluations"),
        (("--most-layers", "0"), 2, "--most-layers"),
        (("--engine", "nothing"), 2, "--engine"),
        (("--engine", "random", "--evaluations", "8"), 2, "--evaluations: 8 is fewer than one for each of 10 distinct"),
        (("--engine", "random", "--experiments"), 2, "--experiments: runs every engine; leave out --engine"),
        (("--hardware", "fa-dosa", "--sweep", "buffer_kib=0.0625"), 2, "64 bytes do not hold the smallest tile"),
        (("--hardware", "fa-dosa", "--sweep", "buffer_kib=0.001"), 2, "below one tile"),
        (("--sweep", "cache_kib=8"), 2, "of array, scratchpad_kib, accumulator_kib, registers_kib"),
        (("--sweep", "scratchpad_kib=8,16,…,100"), 2, "the range from 8, 16 does not meet 100"),
        (("--objective", "latency"), 2, "--objective"),
        (("--board", "u280", "--precision", "int8"), 2, "; 29_board_arrays.py --board searches the arrays of"),
        (("--hardware", "u280", "--objective", "log-sum"), 2, "--objective: the log sum needs areas"),
        (("--hardware", "u280", "--area-budget-mm2", "1"), 2, "gives no areas"),
        (("--area-budget-mm2", "0.1"), 2, "no design is as small as 0.1 mm²; the smallest has 0.6559 mm²"),
        (("--area-budget-mm2", "-1"), 2, "--area-budget-mm2"),
        (("--sweep", "array=4x4 array=8x8"), 2, "is there twice"),
        (("--sweep", "array"), 2, "--sweep: 'array' is no size"),
        (("--sweep", "array=16"), 2, "ROWSxCOLUMNS"),
        (("--sweep", "scratchpad_kib=8,,16"), 2, "'' is no number of KiB"),
        (("--sweep", "scratchpad_kib=1e308"), 2, "'1e308' is no number of KiB"),
        (("--sweep", "scratchpad_kib=nan"), 2, "'nan' is no number of KiB"),
    ],
)
def test_bad_input_gives_one_line_and_keeps_the_tables(written, flags, code, problem):
    before = {name: (written / f"{name}.csv").read_bytes() for name in TABLES}
    done = run_stage(SCRIPT, "--out", written, *flags)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith("08_design_space.py: error: ")
    assert problem in line
    assert {name: (written / f"{name}.csv").read_bytes() for name in TABLES} == before


@pytest.mark.slow
@pytest.mark.parametrize("hardware", ["gemmini", "fa-dosa"])
def test_dimensions_without_a_size_are_asked_for(tmp_path, hardware):
    out = counted(tmp_path, "tiny-resnet8")
    done = run_stage(SCRIPT, "--out", out, "--hardware", hardware)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "unbound; rerun 02_shapes_flops_bytes.py with a size for each of them" in line


def test_a_model_without_a_known_contraction_is_no_nest(tmp_path):
    out = counted(tmp_path, "tiny-if-loop", "--dim", "batch=3")  # data decide how often its products run
    done = run_stage(SCRIPT, "--out", out)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "op_metrics.csv: no operator is a loop nest" in line


def test_tables_that_are_not_there_name_the_stage_to_run(tmp_path):
    done = run_stage(SCRIPT, "--out", tmp_path)
    assert done.returncode == 3
    assert "run 02_shapes_flops_bytes.py first" in done.stderr


def test_ctrl_c_in_a_search_writes_nothing(folders, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    out = counted(tmp_path, "tiny-resnet8", "--dim", "batch=1")
    before = sorted(out.iterdir())
    monkeypatch.setattr(stage, "evaluate", interrupted)
    done = run_stage(SCRIPT, "--out", out)
    assert done.returncode == 130
    assert "interrupted" in done.stderr
    assert sorted(out.iterdir()) == before
