from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fpga_tables import Model

from common.errors import CommandLineError, PipelineError
from common.fpga.alternatives import Request, alternative_plans
from common.fpga.boards import Board, read_board
from common.fpga.candidates import Window, classify, make_candidates, shape_class
from common.fpga.figures import Outlook
from common.fpga.host_time import HostCost, SourceWork
from common.fpga.kernel_models import CeilingModel, board_bytes
from common.fpga.plan import Plan, Workload, make_plan
from common.fpga.rows import candidate_row, comment, fused_with, kernel_row
from common.fpga.selection import HostTotals, Thresholds, ThresholdSelection
from common.fusion.border import BorderTensor
from common.fusion.groups import Group, find_groups

U280 = Path(__file__).resolve().parent.parent / "configs/boards/u280.yaml"
LIMITS = Thresholds(min_share=0.1, min_intensity_flop_per_byte=8, min_fused_share=0.1)
EFFICIENCY = Outlook(0.25, 0.5, 1.0)
BANDS = {"half": EFFICIENCY, "full": Outlook.known(1.0)}


def small_board(**changes) -> Board:
    """Figures that make arithmetic easy: 1e9 FLOP/s at fp32, 1e9 byte/s of memory, 1 byte/ns over the link."""
    board = read_board("u280", U280, yaml.safe_load(U280.read_text(encoding="utf-8")))
    ends = Outlook(0.5, 1.0, 1.0)
    easy = replace(
        board,
        clock_mhz=100.0,
        dsp_after_shell_count=25,
        dsp_closure_fraction=1.0,
        channel_count=1,
        channel_bytes_per_s=1e9,
        memory_efficiency=ends,
        link_bytes_per_s=Outlook(0.5e9, 1e9, 2e9),
        launch_us=Outlook(20.0, 10.0, 5.0),
        static_w=Outlook(7.0, 5.0, 3.0),
        dynamic_w=Outlook(13.0, 11.0, 2.0),
    )
    return replace(easy, **changes)


def workload(
    *, energy: float | None = 100_000.0, idle_w: float | None = 17.0, macs: int | None = 1_000_000
) -> Workload:
    """MaxPool (host), Conv+Relu 3x3, Conv 3x3, Gemm: 100 + 4000 + 2000 + 500 µs, and 400 µs of gap."""
    model = Model(outputs=["y"])
    model.weights(w=4_000, v=8_000)
    model.sizes |= {"x": 20_000, "p": 10_000, "a": 30_000, "r": 30_000, "b": 6_000, "y": 4_000}
    model.add("MaxPool", "x", "p")
    model.add("Conv", "p w", "a")
    model.add("Relu", "a", "r")
    model.add("Conv", "r w", "b")
    model.add("Gemm", "b v", "y")
    graph = model.graph()
    groups = find_groups(graph)
    works = {name: SourceWork(0, 11) for name in graph.nodes}
    works |= {"/a": SourceWork(macs, None if macs is None else 2 * macs), "/b": SourceWork(500_000, 1_000_000)}
    works |= {"/y": SourceWork(2_000, 4_000)}
    windows = {name: Window((3, 3), 1) for name in ("/a", "/b")}
    latencies = (100.0, 4000.0, 2000.0, 500.0)
    costs = [HostCost(us, None if energy is None else 13 * us, us, ["e"]) for us in latencies]
    candidates = make_candidates(graph, groups, costs, works, windows)
    return Workload(graph, tuple(candidates), HostTotals(7000.0, energy, idle_w))


def plan(load: Workload | None = None, **changes) -> Plan:
    request = {
        "board": small_board(),
        "precision": "fp32",
        "efficiency": "half",
        "launch_per": "group",
        "thresholds": LIMITS,
        "given_speedups": {},
    }
    asked = Request(**{**request, **changes})
    return make_plan(load or workload(), asked.terms(BANDS))


def test_candidates_are_named_by_falling_latency():
    found = [(candidate.name, candidate.group.pattern) for candidate in workload().candidates]
    assert found == [("G1", "Conv+Relu"), ("G2", "Conv"), ("G3", "Gemm"), ("G4", "MaxPool")]


def test_shape_classes():
    windows = {"c": Window((3, 5), 1), "d": Window((3, 3), 7), "e": Window((), None)}
    groups = [Group("conv", (head,), (head,), ("Conv",)) for head in "cde"]
    assert [shape_class(group, windows) for group in groups] == ["conv 3x5", "grouped conv 3x3", "conv"]
    assert shape_class(Group("gemm", ("g",), ("g",), ("MatMul",)), {}) == "gemm"
    assert shape_class(Group("none", ("s",), (), ("Softmax",)), {}) == "Softmax"


def test_groups_of_one_window_share_a_class():
    labels = [(found.label, len(found.candidates)) for found in classify(workload().candidates)]
    assert labels == [("conv 3x3", 2), ("gemm", 1), ("MaxPool", 1)]


def test_a_kernel_takes_what_the_slower_of_array_and_memory_takes():
    model = CeilingModel(small_board(), "fp32", EFFICIENCY)
    conv, gemm = workload().candidates[0], workload().candidates[2]
    # array: 25 DSPs × 0.2 × 2 × 100 MHz = 1e9 FLOP/s; 2e6 FLOPs at 25, 50 and 100 %
    found = model.estimate(conv)
    assert found is not None
    assert found.time_us.cases == pytest.approx((8000, 4000, 2000))
    assert found.cycles.cases == pytest.approx((800_000, 400_000, 200_000))
    assert found.bound == "compute"
    # memory: 6000 + 8000 + 4000 bytes at 1e9 byte/s; its 4000 FLOPs take 8 µs
    found = model.estimate(gemm)
    assert found is not None
    assert found.time_us.cases == pytest.approx((36, 18, 18))
    assert found.bound == "memory"


def test_a_kernel_of_unknown_work_or_traffic_has_no_estimate():
    model = CeilingModel(small_board(), "fp32", EFFICIENCY)
    candidate = workload(macs=None).candidates[0]
    assert model.estimate(candidate) is None
    unsized = replace(workload().candidates[0], border=(BorderTensor("x", "read", "float32", None),))
    assert model.estimate(unsized) is None


@pytest.mark.parametrize(
    ("dtype", "precision", "expected"),
    [("float32", "fp32", 52), ("float32", "int8", 13), ("float32", "int4", 7), ("float16", "fp32", 104),
     ("float64", "bf16", 13), ("int64", "int8", 52), ("uint8", "fp32", 52)],
)  # fmt: skip
def test_floating_point_tensors_take_the_kernels_format_and_integers_keep_theirs(dtype, precision, expected):
    assert board_bytes([BorderTensor("x", "read", dtype, 52)], precision) == expected


def test_section_8_rules_and_their_reasons():
    verdicts = plan().verdicts
    conv, gemm, pool = (verdicts[label] for label in ("conv 3x3", "gemm", "MaxPool"))
    # (4000 + 2000) of 7000 µs, 78,000 of 100,000 µJ
    assert conv.is_chosen
    assert conv.reason == "conv 3x3: 85.7 % of latency or energy, regular, intense and fusable"
    assert (gemm.is_large, gemm.is_regular, gemm.is_intense, gemm.is_fusable) == (False, True, False, False)
    assert gemm.reason == "gemm: 7.1 % of latency or energy, below 10 %"
    assert pool.reason == "MaxPool: not a dense contraction"


def test_a_large_share_of_energy_alone_is_enough():
    load = workload()
    costs = {candidate.name: candidate for candidate in load.candidates}
    gemm = replace(costs["G3"], cost=HostCost(500.0, 30_000.0, 500.0, ["e"]))
    load = replace(load, candidates=(costs["G1"], costs["G2"], gemm, costs["G4"]))
    verdict = plan(load).verdicts["gemm"]
    assert verdict.is_large
    assert verdict.reason == "gemm: neither intense nor fusable"
    assert plan(load, thresholds=replace(LIMITS, min_intensity_flop_per_byte=0.2)).verdicts["gemm"].is_chosen


def test_unknown_work_is_no_ground_for_a_kernel():
    verdict = plan(workload(macs=None)).verdicts["conv 3x3"]
    assert not verdict.is_chosen
    assert "work or traffic unknown; bind its dimensions" in verdict.reason


def test_weights_must_fit_the_boards_memory_and_a_shared_weight_is_kept_once():
    # both convolutions read w, of 4000 bytes
    assert plan(board=small_board(memory_capacity_bytes=4_000)).kernels[0].onboard_weight_bytes == 4_000
    small = plan(board=small_board(memory_capacity_bytes=3_999))
    assert small.kernels == ()
    assert small.verdicts["conv 3x3"].reason.endswith("weights of 4000 bytes do not fit 3999 bytes left on the board")
    assert plan(board=small_board(memory_capacity_bytes=1_000), precision="int8").kernels


def test_the_slower_class_takes_the_memory_first():
    easy = replace(LIMITS, min_share=0.05, min_intensity_flop_per_byte=0.2)
    # convolutions keep 4000 bytes and the Gemm 8000
    both = plan(thresholds=easy, board=small_board(memory_capacity_bytes=12_000))
    assert [kernel.onboard_weight_bytes for kernel in both.kernels] == [4_000, 8_000]
    one = plan(thresholds=easy, board=small_board(memory_capacity_bytes=11_999))
    assert [kernel.kernel_class.label for kernel in one.kernels] == ["conv 3x3"]
    assert "weights of 8000 bytes do not fit 7999 bytes left" in one.verdicts["gemm"].reason


def test_the_latency_terms_add_up():
    found = plan()
    (kernel,) = found.kernels
    # 3e6 FLOPs at 1e9 FLOP/s × 25, 50, 100 %
    assert kernel.time_us.cases == pytest.approx((12_000, 6_000, 3_000))
    # p goes out (10,000 bytes) and b comes back (6,000); r stays on the card
    assert kernel.transfer_bytes == 16_000
    assert kernel.transfer_us.cases == pytest.approx((32, 16, 8))
    assert kernel.launch_count == 2
    assert kernel.launch_us.cases == (40, 20, 10)
    total = found.term("latency", "total_speedup")
    assert total.low == pytest.approx(7000 / (1000 + 12_000 + 32 + 40))
    assert total.likely == pytest.approx(7000 / (1000 + 6_000 + 16 + 20))
    assert total.high == pytest.approx(7000 / (1000 + 3_000 + 8 + 10))
    assert found.term("latency", "new_total").likely == pytest.approx(7036)
    assert found.term("latency", "accelerated_fraction").likely == pytest.approx(6 / 7)
    # f / (f - o) with f = 6000/7000 and o = 36/7000
    assert found.term("latency", "break_even_kernel_speedup").likely == pytest.approx(6000 / (6000 - 36))


def test_the_energy_terms_add_up_and_energy_may_get_worse_while_latency_improves():
    found = plan(efficiency="full")
    rows = {term: found.term("energy", term) for term in ("transfer", "launch", "idle_card", "new_total")}
    # card 5 W static and 11 W dynamic, host 17 W idle
    kernel_uj = 3000 * (5 + 11 + 17)
    assert rows["transfer"].likely == pytest.approx(16 * (5 + 17))
    assert rows["launch"].likely == pytest.approx(20 * (5 + 17))
    assert rows["idle_card"].likely == pytest.approx(1000 * 5)
    rest_uj = 100_000 - 13 * 6000
    assert rows["new_total"].likely == pytest.approx(rest_uj + kernel_uj + 352 + 440 + 5000)
    assert found.term("latency", "total_speedup").likely > 1
    assert found.term("energy", "total_speedup").likely < 1


@pytest.mark.parametrize("unknown", [{"energy": None}, {"idle_w": None}])
def test_without_the_hosts_energy_or_idle_power_the_energy_terms_are_empty(unknown):
    found = plan(workload(**unknown))
    energy = [row for row in found.speedup if row.objective == "energy"]
    known = [row for row in plan().speedup if row.objective == "energy"]
    assert [row.term for row in energy] == [row.term for row in known]
    assert {(row.low, row.likely, row.high) for row in energy} == {(None, None, None)}
    assert found.term("latency", "total_speedup").likely is not None


def test_a_given_kernel_speedup_replaces_the_estimate():
    (kernel,) = plan(given_speedups={"K1": 3.0}).kernels
    assert kernel.time_us == Outlook.known(2000.0)
    assert (kernel.is_given, kernel.bound) == (True, None)
    assert comment(kernel).startswith("fuse Relu; kernel 3x (given)")


def test_a_speedup_for_a_kernel_that_is_not_there_is_refused():
    with pytest.raises(CommandLineError, match=r"K2 is no kernel of this plan; it has K1 \(conv 3x3\)"):
        plan(given_speedups={"K2": 3.0})
    with pytest.raises(CommandLineError, match="it has none"):
        plan(given_speedups={"K1": 3.0}, thresholds=replace(LIMITS, min_share=0.99))


def test_calls_per_phase_are_fewer_than_per_group():
    (kernel,) = plan(launch_per="phase").kernels
    assert kernel.launch_count == 1


def test_nothing_chosen_means_nothing_changes():
    found = plan(thresholds=replace(LIMITS, min_share=0.99))
    assert found.kernels == ()
    for objective in ("latency", "energy"):
        row = found.term(objective, "total_speedup")
        assert (row.low, row.likely, row.high) == (1.0, 1.0, 1.0)
        assert found.term(objective, "kernel_speedup").likely is None


def test_transfer_of_unknown_size_is_an_error_and_not_zero():
    load = workload()
    load.graph.sizes["p"] = None
    with pytest.raises(PipelineError, match="tensor p: unknown size; bind its dimensions"):
        plan(load)


def test_a_model_without_an_estimate_leaves_the_class_on_the_host():
    class Speechless:
        def estimate(self, candidate):
            return None

    asked = Request(small_board(), "fp32", "half", "group", LIMITS, {})
    found = make_plan(workload(), replace(asked.terms(BANDS), model=Speechless()))
    assert found.kernels == ()
    assert found.verdicts["conv 3x3"].reason == "conv 3x3: the kernel model has no estimate for it"


def test_another_selection_fits_behind_the_seam():
    class OnlyGemm(ThresholdSelection):
        def judge(self, classes, host):
            found = super().judge(classes, host)
            return [replace(verdict, is_chosen=c.kind == "gemm") for c, verdict in zip(classes, found, strict=True)]

    asked = Request(small_board(), "fp32", "half", "group", LIMITS, {})
    terms = replace(asked.terms(BANDS), selection=OnlyGemm(LIMITS, "fp32", 10**9))
    (kernel,) = make_plan(workload(), terms).kernels
    assert (kernel.name, kernel.kernel_class.label, kernel.bound) == ("K1", "gemm", "memory")


def test_alternatives_differ_in_one_point_and_drop_what_was_given_for_other_kernels():
    asked = Request(small_board(), "fp32", "half", "group", LIMITS, {"K1": 100.0})
    others = alternative_plans(workload(), asked, BANDS)
    assert list(others) == [
        "precision bf16",
        "precision int16",
        "precision int8",
        "precision int4",
        "efficiency full",
        "one launch per phase",
        "launch shared by a batch",
    ]
    assert not others["precision int8"].kernels[0].is_given
    assert others["one launch per phase"].kernels[0].is_given
    assert others["launch shared by a batch"].term("latency", "launch").likely == 0


def test_a_host_that_took_no_time_is_refused():
    with pytest.raises(PipelineError, match="no node has a latency"):
        HostTotals(0.0, None, None)


def test_rows_say_what_was_fused_and_share_out_the_host():
    load = workload()
    found = plan(load)
    rows = [candidate_row(load, found, candidate) for candidate in load.candidates]
    assert [row["kernel"] for row in rows] == ["K1", "K1", "", ""]
    assert sum(row["host_latency_us"] for row in rows) == 6600.0
    assert rows[0]["host_latency_share"] == pytest.approx(4 / 7)
    # 2,000,011 FLOPs over 10,000 + 4,000 + 30,000 bytes
    assert rows[0]["arithmetic_intensity_flop_per_byte"] == pytest.approx(2_000_011 / 44_000)
    row = kernel_row(load, small_board(), "fp32", found.kernels[0])
    assert row["pattern"] == "1 Conv+Relu, 1 Conv"
    assert (row["kernel_latency_low_us"], row["kernel_latency_high_us"]) == pytest.approx((3000, 12_000))
    assert row["kernel_energy_uj"] == pytest.approx(6000 * (5 + 11))
    assert row["comment"] == "fuse Relu; kernel 1x (likely); 100 % of its host time is on the critical path"
    assert fused_with(classify(load.candidates)[1]) == "nothing to fuse"
