"""FA-DOSA's own algorithm as an engine: what it fuses, what its kernels cost, and its row of the comparison."""

from __future__ import annotations

import csv
import json
from functools import cache
from itertools import combinations

import pytest
from onnx import helper
from pytest import approx

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import single_buffer
from common.design_space.evaluation import DesignResults, evaluate, searched
from common.design_space.fa_dosa.accounting import ACTIVATED, fa_dosa_cost, fa_dosa_kernels
from common.design_space.fa_dosa.algorithm import FaDosaModel, kernels_of, learnt_groups
from common.design_space.results.design_result import DesignTask
from common.design_space.search.engines.registry import is_installed
from common.design_space.search.fronts import best
from common.design_space.search.settings import Search
from common.design_space.single_buffer.fusion import fused_front
from common.design_space.single_buffer.workload import FusedWorkload
from common.messages.errors import UnusableValueError
from models.__main__ import BUILDERS
from tests.support.paths import CONFIGS
from tests.support.processes.command_lines import run_stage
from tests.support.tables.source import source_rows

FA_DOSA, GEMMINI = (load_hardware(name, CONFIGS / "hardware") for name in ("fa-dosa", "gemmini"))
ROOMY = FA_DOSA.resized(capacity_kib={"buffer": 65536})
needs_torch = pytest.mark.skipif(not is_installed("fa-dosa"), reason="torch comes with requirements-search.txt")


class Interrupted:
    is_interrupted = True

    def begin(self, bound):
        """Take no note."""

    def hear(self, evaluation_count, most, edp):
        """Take no note."""


@cache
def residual():
    """Convolutions with 7 channels of 13 × 11: one with a ReLU, then one that is added to it, and a ReLU."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"], "relu2"),
        helper.make_node("Add", ["d", "b"], ["e"], "add"),
        helper.make_node("Relu", ["e"], ["y"], "relu3"),
    ]
    weights = [helper.make_tensor(name, 1, [7, 7, 3, 3], [0.0] * 441) for name in ("w1", "w2")]
    given, returned = (helper.make_tensor_value_info(name, 1, [1, 7, 13, 11]) for name in "xy")
    graph = helper.make_graph(nodes, "residual", [given], [returned], weights)
    return source_rows(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@cache
def rows_of(name):
    return source_rows(
        BUILDERS[name](has_weights=False) if name == "resnet18" else BUILDERS[name](), N=1, batch=2, seq=5
    )


def computed(workload, designs):
    """Search designs one after the other, with nothing kept."""
    return DesignResults([searched(workload, design) for design in designs], 0)


def moved(layers, hardware):
    return sum(plan.moved_bytes for plan in best(fused_front(layers, single_buffer(hardware), most_layers=1)).choice)


def test_a_fused_group_saves_the_write_and_the_read_of_what_lies_between_and_nothing_else():
    model, (metrics, source) = FaDosaModel.of(*residual()), residual()
    groups = model.graph.fusion_groups
    assert groups == [("conv1", "relu1"), ("conv2", "relu2")]
    apart = sum(row["bytes"] for row in metrics)
    for count in range(3):
        for fused in combinations(groups, count):
            layers = kernels_of(model, fused)
            assert [layer.nodes for layer in layers.layers if len(layer.nodes) > 1] == [*fused]
            assert [name for layer in layers.layers for name in layer.nodes] == [*source.nodes]
            assert moved(layers, ROOMY) == apart - count * 2 * 4 * 7 * 13 * 11


@needs_torch
def test_in_a_roomy_buffer_its_kernels_cost_what_they_do_in_its_own_accounting():
    found = evaluate({"one": ROOMY}, *residual(), [Search("fa-dosa", evaluations=7)], computed).designs[0]
    own = fa_dosa_cost(fa_dosa_kernels(*residual(), ACTIVATED), single_buffer(ROOMY))
    assert found.point["edp_pj_cycles"] == approx(own.edp, rel=1e-12)
    assert found.point["evaluation_count"] == 7
    assert [row["last_layer"] for row in found.groups] == ["relu1", "relu2", "add", "relu3"]


@needs_torch
@pytest.mark.parametrize("kib", [4, 28, 512])
@pytest.mark.parametrize("name", ["tiny-resnet8", "tiny-transformer", "tiny-densenet", "tiny-lstm", "resnet18"])
def test_it_is_above_the_optimum_without_fusion_and_so_above_the_exact_one(name, kib):
    hardware = FA_DOSA.resized(capacity_kib={"buffer": kib})
    searches = [Search("exact", most_layers=2), Search("fa-dosa", evaluations=3)]
    exact, ours = (design.point for design in evaluate({"one": hardware}, *rows_of(name), searches, computed).designs)
    assert ours["edp_pj_cycles"] >= exact["unfused_edp_pj_cycles"] * (1 - 1e-12) >= exact["edp_pj_cycles"] * (1 - 1e-9)
    assert ours["bound_edp_pj_cycles"] == exact["bound_edp_pj_cycles"]


@needs_torch
def test_one_epoch_fuses_all_groups_and_no_epoch_none():
    graph = FaDosaModel.of(*rows_of("resnet18")).graph
    found = {count: learnt_groups(graph, FA_DOSA, count) for count in (0, 1, 40)}
    assert found[0].fused == frozenset()
    assert found[1].fused == found[40].fused == frozenset(graph.fusion_groups)
    assert [one.epoch_count for one in found.values()] == [0, 1, 40]


@needs_torch
def test_nothing_is_drawn_so_every_seed_gives_one_result():
    searches = [Search("fa-dosa", evaluations=9, seed=seed) for seed in (0, 0, 5)]
    points = [one.point for one in evaluate({"one": FA_DOSA}, *residual(), searches, computed).designs]
    assert [point | {"seed": 0} for point in points[1:]] == [points[0]] * 2


@needs_torch
def test_who_interrupts_it_gets_the_fusions_so_far_as_incomplete():
    found = FusedWorkload.of(*residual()).searched(DesignTask("one", ROOMY, Search("fa-dosa")), Interrupted())
    assert not found.point["is_complete"]
    assert found.point["evaluation_count"] == 1
    assert {row["layer_count"] for row in found.groups} == {1}


def test_several_memories_are_refused():
    with pytest.raises(UnusableValueError, match="gemmini has the memories"):
        evaluate({"one": GEMMINI}, *residual(), [Search("exact"), Search("fa-dosa")], computed)


def test_a_size_that_depends_on_data_leaves_it_without_a_result_and_says_so():
    metrics, source = residual()
    assert FaDosaModel.of([metrics[0] | {"macs": None}, *metrics[1:]], source) is None
    task = DesignTask("one", FA_DOSA, Search("fa-dosa"))
    found = FusedWorkload(FusedWorkload.of(metrics, source).layers).searched(task)
    assert "some depend on data" in found.point["problem"]


@pytest.mark.slow
def test_experiments_on_one_buffer_have_its_row_or_name_it_as_missing(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    counted = run_stage("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=1", "--out", tmp_path)
    assert counted.returncode == 0, counted.stderr
    flags = ("--hardware", "fa-dosa", "--experiments", "--evaluations", 40, "--cache-mb", 0)
    done = run_stage("08_design_space.py", "--out", tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "design_comparison.csv").open() as file:
        edp = {row["algorithm"]: float(row["edp_pj_cycles"]) for row in csv.DictReader(file)}
    assert ("fa-dosa" in edp) == is_installed("fa-dosa")
    assert min(edp.values()) == approx(edp["exact"], rel=1e-12)
    assert json.loads((tmp_path / "design_summary.json").read_text())["search_engine"] == "exact"
    named = [line for line in done.stdout.splitlines() if line.startswith("fa-dosa ")]
    assert len(named) == ("fa-dosa" in edp)
    assert ("not compared, because not installed: fa-dosa" in done.stderr) == ("fa-dosa" not in edp)
