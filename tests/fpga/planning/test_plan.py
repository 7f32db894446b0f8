"""A plan of two convolutions as plain objects: its problem, its rows, its baselines and its notes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.kernels.overlay.engine_files import load_engine
from common.fpga.offload.baselines import Thresholds
from common.fpga.offload.effort import Effort
from common.fpga.offload.problem import CASES, misfit
from common.fpga.offload.schedule import Assignment, evaluate
from common.fpga.plan_odds import plan_odds
from common.fpga.plan_results import alternative, baselines, plan_results, workload_from_rows
from common.fpga.planning.board_rows import timeline
from common.fpga.planning.plan import card_work, in_case, make_plan, plan_speedup
from common.fpga.planning.plan_notes import plan_notes
from common.fpga.planning.plan_rows import candidate_rows, kernel_rows
from common.fpga.planning.request import Request, Requests
from common.fpga.speedup import draws
from common.graphs.sums import ratio
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError
from common.workload.formats import WiderLayers
from tests.support.paths import ROOT
from tests.support.tables.fpga import Executed, Model, upstream_rows

CONFIGS = ROOT / "configs"
HOST_US = 13.0 + 7_001.0 + 3_001.0 + 19.0


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


@pytest.fixture(scope="module")
def upstream():
    """Conv, Relu, Conv on 61 × 67 pixels; the runtime inserts a reorder before them."""
    model = Model(outputs=["b"])
    model.floats(x=(1, 16, 61, 67), a=(1, 32, 61, 67), r=(1, 32, 61, 67), b=(1, 64, 61, 67))
    model.floats(are_weights=True, w=(32, 16, 3, 3), v=(64, 32, 3, 3))
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "groups": 1, "batch_count": 1, "m_count": 61 * 67}
    macs = 61 * 67 * 32 * 16 * 9
    model.add("Conv", "x w", "a", macs=macs, flops=2 * macs, **window, k_count=144, n_count=32)
    model.add("Relu", "a", "r", flops=61 * 67 * 32)
    macs = 61 * 67 * 64 * 32 * 9
    model.add("Conv", "r v", "b", macs=macs, flops=2 * macs, **window, k_count=288, n_count=64)
    executed = Executed(
        [
            ("reorder", "inserted", [], 13.0, 1_009.0),
            ("conv_a", "node", ["/a", "/r"], 7_001.0, 300_007.0),
            ("conv_b", "node", ["/b"], 3_001.0, 150_001.0),
        ],
        gap_us=19.0,
        gap_energy_uj=101.0,
    )
    mapped = [("conv_a", "/a"), ("conv_a", "/r"), ("conv_b", "/b")]
    return upstream_rows(model, executed, mapped)


@pytest.fixture(scope="module")
def workload(upstream):
    return workload_from_rows(*upstream)


def test_nodes_without_a_place_in_the_order_come_last(upstream):
    rows, documents = upstream
    places = [
        place | ({"execution_index": None} if index < 2 else {}) for index, place in enumerate(rows["op_schedule"])
    ]
    executed = workload_from_rows(rows | {"op_schedule": places}, documents).executed
    assert [node.name for node in executed] == ["conv_b", "reorder", "conv_a"]


def requested(**options):
    board = load_board("u280", CONFIGS / "boards")
    values = {"precision": "int8", "launch_per": "group", "given_speedups": {}, **options}
    return Request(board=board, thresholds=Thresholds(0.1, 8.0, 0.1), effort=Effort(0.5), **values)


@pytest.fixture(scope="module")
def plan(workload, models):
    return make_plan(workload, requested(), models)


@pytest.fixture(scope="module")
def mixed(workload, models):
    """The plan whose second convolution is in bf16 and whose first one is in int8."""
    return make_plan(workload, requested(wider=WiderLayers("bf16", frozenset({"/b"}))), models)


def test_every_layer_of_a_mixed_plan_is_computed_in_its_own_format(mixed):
    formulation = mixed.formulation
    assert [candidate.covers for candidate in formulation.candidates] == [(0,), (1,)]  # no chain has two formats
    for offer in formulation.offers:
        wanted = ("int8", "bf16")[offer.candidate]
        assert formulation.candidates[offer.candidate].task.precision == wanted
        assert formulation.engines[offer.engine].precision == wanted
    assert {engine.precision for engine in formulation.engines} == {"int8", "bf16"}
    work = card_work(mixed)
    assert work.flops == {kernel.engine.precision: kernel.flops for kernel in mixed.kernels}
    assert {row["kernel"]: row["precision"] for row in kernel_rows(mixed)} == {
        kernel.name: kernel.engine.precision for kernel in mixed.kernels
    }


def test_a_tensor_between_two_formats_is_converted(mixed, plan):
    """The second convolution reads 32 × 61 × 67 values; four ports read them as int8 and write them as bf16."""
    memory, board = mixed.request.board.memory, mixed.request.board
    rate = memory.bandwidth_bytes_per_s(4, memory.port_bits, board.clock_mhz) * memory.efficiency.likely
    extra = [
        option.time_us.likely - offer.estimate.time_us.likely
        for option, offer in zip(mixed.problem.options, mixed.formulation.offers, strict=True)
    ]
    for offer, added_us in zip(mixed.formulation.offers, extra, strict=True):
        assert added_us == pytest.approx((0, 1e6 * 32 * 61 * 67 * 3 / rate)[offer.candidate])
    assert all(
        option.time_us == offer.estimate.time_us
        for option, offer in zip(plan.problem.options, plan.formulation.offers, strict=True)
    )


def test_a_mixed_plan_of_one_format_is_the_plan(workload, models, plan):
    """Layers in a wider format that the model does not have change nothing."""
    same = make_plan(workload, requested(wider=WiderLayers("bf16", frozenset({"/none"}))), models)
    assert (same.problem, same.solution.finish_us) == (plan.problem, plan.solution.finish_us)


@pytest.mark.slow
def test_the_host_alone_takes_the_sum_of_all_steps(plan):
    assert plan.problem.host_only_us == pytest.approx(HOST_US)
    assert [step.name for step in plan.workload.steps] == ["G1", "G2", "reorder", "(gap)"]


def test_every_option_covers_the_items_of_its_candidate(plan):
    formulation = plan.formulation
    for option, offer in zip(formulation.problem.options, formulation.offers, strict=True):
        candidate = formulation.candidates[offer.candidate]
        assert option.covers == tuple(sorted(formulation.item_of[group] for group in candidate.covers))
        assert option.name == formulation.names[offer.candidate]


@pytest.mark.parametrize(("name", "board"), [("dpu-cahx8h", "u280"), ("dpu-cadf8h", "u250")])
def test_an_overlay_fits_the_board_that_its_vendor_builds_it_for(workload, models, name, board):
    """Both take more than the budget of designs in general, and both were shipped."""
    request = replace(requested(), board=load_board(board, CONFIGS / "boards"), effort=Effort(0.01))
    overlay = load_engine(name, CONFIGS / "engines", request.board)
    assert not overlay.resources.fits(request.board.total_budget if overlay.spans_regions else request.board.budgets[0])
    found = make_plan(workload, replace(request, overlay=overlay), models)
    assert misfit(found.problem, found.formulation.engines.index(overlay)) == ""


def test_what_the_runtime_adds_waits_for_the_last_group(plan):
    ends = [flow for flow in plan.problem.flows if flow.tensor == "(end)"]
    assert [(flow.producer, flow.consumers) for flow in ends] == [(1, (2,))]
    assert all(flow.h2d_us.likely == flow.d2h_us.likely == 0 for flow in ends)


def test_a_view_that_the_model_returns_waits_for_the_bytes(models):
    model = Model(outputs=["r"])
    model.floats(x=(1, 512, 61, 67), a=(1, 512, 61, 67), r=(1, 512 * 61 * 67))
    model.floats(are_weights=True, w=(512, 512, 3, 3))
    macs, window = 61 * 67 * 512 * 512 * 9, {"kernel_shape": [3, 3], "strides": [1, 1], "groups": 1, "batch_count": 1}
    layer = {"macs": macs, "flops": 2 * macs, "m_count": 61 * 67, "k_count": 512 * 9, "n_count": 512, **window}
    model.add("Conv", "x w", "a", **layer)
    model.add("Flatten", "a", "r")
    executed = Executed([("conv", "node", ["/a"], 90_001.0, 1.0), ("flatten", "node", ["/r"], 11.0, 1.0)])
    rows = upstream_rows(model, executed, [("conv", "/a"), ("flatten", "/r")])
    bars = {(bar.kind, bar.label): bar for bar in make_plan(workload_from_rows(*rows), requested(), models).likely.bars}
    assert bars["host", "G2"].start_us >= bars["d2h", "a"].finish_us > 0


def test_baselines_are_no_better_than_the_plan_and_the_bound_no_worse(plan):
    rows = {row["alternative"]: row["plan_latency_likely_us"] for row in baselines(plan)}
    assert list(rows) == ["host alone", "greedy", "rule of thumb", "proven bound"]
    assert rows["host alone"] == pytest.approx(HOST_US)
    finish_us = plan.likely.finish_us
    assert rows["proven bound"] <= finish_us * (1 + 1e-6)
    assert all(rows[name] >= finish_us * (1 - 1e-9) for name in ("host alone", "greedy", "rule of thumb"))


def test_the_cases_of_an_alternative_are_those_of_its_schedules(plan, models):
    speedup = plan_speedup(plan, models.energy)
    odds = plan_odds(plan, models.energy)
    row = alternative("plan", plan, speedup, odds)
    assert row["plan_latency_pessimistic_us"] > row["plan_latency_likely_us"] > row["plan_latency_optimistic_us"]
    assert row["latency_speedup_factor"] == pytest.approx(HOST_US / row["plan_latency_likely_us"])
    assert row["latency_pays_probability"] == odds["latency"].pays_probability


def likely_gains(plan, models):
    return {row["objective"]: row for row in plan_speedup(plan, models.energy) if row["term"] == "total_speedup"}


def test_the_distribution_of_the_gain_is_within_the_extreme_cases_and_around_the_likely_one(plan, models):
    """Bad luck in everything at once is rarer than one draw in twenty."""
    gains = likely_gains(plan, models)
    for objective, odds in plan_odds(plan, models.energy).items():
        gain, (low, _, middle, _, high) = gains[objective], odds.quantiles
        assert gain["pessimistic"] < low < middle < high <= gain["optimistic"] * (1 + 1e-9), objective
        assert middle == pytest.approx(gain["likely"], rel=0.25), objective
        assert sum(term.variance_share for term in odds.terms) == pytest.approx(1.0, abs=0.15), objective


def test_at_the_likely_value_of_every_term_the_gain_is_the_likely_one(plan, models, monkeypatch):
    """The sums over arrays are those of the rows of the speedup."""
    monkeypatch.setattr(draws, "quantiles", lambda: np.zeros(draws.DRAWS))
    gains = likely_gains(plan, models)
    for objective, odds in plan_odds(plan, models.energy).items():
        assert odds.quantiles == pytest.approx([gains[objective]["likely"]] * 5, rel=1e-9), objective


def test_a_plan_that_moves_nothing_gains_nothing_in_any_draw(plan, models):
    alone = replace(plan, solution=replace(plan.solution, assignment=Assignment()), kernels=())
    schedules = tuple(evaluate(in_case(plan.problem, plan.workload, case), Assignment(), case) for case in CASES)
    for odds in plan_odds(replace(alone, schedules=schedules), models.energy).values():
        assert odds.quantiles == pytest.approx([1.0] * 5)


def test_the_rows_of_a_plan_have_the_declared_columns(plan):
    for name, rows in (("fpga_candidates", candidate_rows(plan)), ("offload_plan", kernel_rows(plan))):
        assert all(set(row) == {column.name for column in ARTIFACTS[name].columns} for row in rows)


def test_the_pattern_of_a_chain_joins_those_of_its_groups(plan):
    patterns = {row["candidate"]: row["pattern"] for row in candidate_rows(plan)}
    assert patterns == {"G1": "Conv+Relu", "G2": "Conv", "C1": "Conv+Relu+Conv"}


def test_a_schedule_starts_with_the_host_alone(plan):
    before = [row for row in timeline(plan.problem.items, plan.likely) if row["scenario"] == "before"]
    assert [row["item"] for row in before] == ["G1", "G2", "reorder", "(gap)"]
    assert before[-1]["interval_finish_us"] == pytest.approx(HOST_US)


@pytest.mark.slow
def test_notes_name_settings_in_brackets_and_no_flag(plan, workload, models):
    notes = plan_notes(plan, plan_speedup(plan, models.energy))
    assert notes[0].startswith("all figures are estimates")
    assert any("model's accuracy in this number format is not judged" in note for note in notes)
    assert not [note for note in notes if "--" in note or ".py" in note]
    given = make_plan(workload, requested(given_speedups={"K1": 3.0}), models)
    told = plan_notes(given, plan_speedup(given, models.energy))
    assert any("the given kernel speedups were applied to it afterwards" in note for note in told)


@pytest.mark.slow
def test_a_given_speedup_sets_the_time_of_its_kernel_and_leaves_no_proof(workload, models):
    plan = make_plan(workload, requested(given_speedups={"K1": 4.0}), models)
    (first, *_) = plan.kernels
    host_us = workload.host_us(plan.groups_of(first))
    assert first.time_us.cases == pytest.approx((host_us / 4,) * 3)
    assert (first.cycles, first.bound, plan.status) == (None, None, None)
    assert [row["alternative"] for row in baselines(plan)] == ["host alone"]


@pytest.mark.slow
def test_a_speedup_for_a_kernel_that_the_plan_lacks_is_refused(workload, models):
    with pytest.raises(UnusableValueError, match="<kernel_speedup>: K9 is no kernel of this plan; its kernels: K1"):
        make_plan(workload, requested(given_speedups={"K9": 2.0}), models)


@pytest.mark.slow
def test_results_hold_the_what_if_plans_behind_the_baselines(workload, models):
    u50 = replace(requested(), board=load_board("u50", CONFIGS / "boards"))
    results = plan_results(workload, Requests(requested(), {"board=u50": u50}), models)
    names = [row["alternative"] for row in results.rows["offload_comparison"]]
    assert names == ["plan", "host alone", "greedy", "rule of thumb", "proven bound", "launch-per=phase", "board=u50"]


@pytest.mark.slow
def test_a_long_plan_keeps_its_calls_for_the_other_way_to_launch(workload, models, monkeypatch):
    """Each call pays 81 us; with phases, only the one that reads the input does."""
    monkeypatch.setattr("common.fpga.plan_results.MOST_STEPS", 0)
    rows = plan_results(workload, Requests(requested()), models).rows
    found = {row["alternative"]: row for row in rows["offload_comparison"]}
    other = found["launch-per=phase, same calls"]
    assert (other["launch_per"], other["plan_status"]) == ("phase", "")
    calls = sum(row["call_count"] for row in rows["offload_plan"])
    least_us = found["plan"]["plan_latency_likely_us"] - 81 * (calls - 1)
    assert other["plan_latency_likely_us"] >= least_us - 1e-6
    assert other["plan_latency_likely_us"] <= found["plan"]["plan_latency_likely_us"]
    back = plan_results(workload, Requests(requested(launch_per="phase")), models).rows["offload_comparison"]
    assert back[5]["alternative"] == "launch-per=group, same calls"
    assert back[5]["plan_latency_likely_us"] >= back[0]["plan_latency_likely_us"]


@pytest.mark.parametrize(("part", "whole", "expected"), [(3, 4, 0.75), (None, 4, None), (3, None, None), (3, 0, None)])
def test_a_share_of_nothing_is_unknown(part, whole, expected):
    assert ratio(part, whole) == expected


def test_an_array_over_regions_says_how_far_published_clocks_reach(plan, models):
    """A given clock and a single region need no word."""

    def said(slowest, *, spans_regions):
        engine = plan.kernels[0].engine
        ports = replace(engine.ports, clock_factors=ThreePoint(slowest, 1.0, 1.0))
        closed = replace(engine, spans_regions=spans_regions, ports=ports)
        kernels = (replace(plan.kernels[0], engine=closed),)
        notes = plan_notes(replace(plan, kernels=kernels), plan_speedup(plan, models.energy))
        return [note for note in notes if "floorplan" in note]

    (note,) = said(0.45, spans_regions=True)
    likely_mhz = 300 * models.systolic.clock.crossing_share**2
    assert f"{likely_mhz:.0f} MHz over 3 regions" in note and f"closed at {0.45 * likely_mhz:.0f} to" in note
    assert said(1.0, spans_regions=True) == []
    assert said(0.45, spans_regions=False) == []


def test_an_array_has_clock_and_resources_in_three_cases(plan):
    (row,) = kernel_rows(plan)
    engine = plan.kernels[0].engine
    for name in ("lut", "ff", "bram36", "dsp"):
        assert row[f"{name}_optimistic_count"] <= row[f"{name}_count"] <= row[f"{name}_pessimistic_count"]
        assert row[f"{name}_likely_count"] == pytest.approx(row[f"{name}_count"], abs=1)  # the budget counts the design
    assert row["lut_pessimistic_count"] == pytest.approx(2.189 * engine.bare.lut, abs=1)
    assert row["clock_pessimistic_mhz"] <= row["clock_mhz"] <= row["clock_optimistic_mhz"]


def test_what_rounds_to_nothing_is_no_note(plan, models):
    """Inserted nodes below a thousandth of the latency, and a load of weights below a tenth of a millisecond."""

    def said(inserted_share, weight_bytes):
        workload = plan.workload
        us = inserted_share * workload.host.latency_us
        nodes = [replace(node, latency_us=us) if node.name == "reorder" else node for node in workload.executed]
        options = [replace(option, weight_bytes=weight_bytes) for option in plan.problem.options]
        changed = replace(
            plan,
            workload=replace(workload, executed=tuple(nodes)),
            problem=replace(plan.problem, options=tuple(options)),
        )
        notes = plan_notes(changed, plan_speedup(plan, models.energy))
        return [any(words in note for note in notes) for words in ("inserted", "weights stay")]

    assert said(0.0009, 2 * 10**5) == [False, False]
    assert said(0.0011, 2 * 10**6) == [True, True]
