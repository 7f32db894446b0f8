"""The front: batches and streams of a plan, by arithmetic of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.offload.baselines import Thresholds
from common.fpga.offload.effort import Effort
from common.fpga.offload.schedule import Assignment
from common.fpga.offload.search.pipelined import Stream, best_stream
from common.fpga.plan_results import workload_from_rows
from common.fpga.planning.front import batch_sizes, front_rows
from common.fpga.planning.plan import make_plan, plan_speedup
from common.fpga.planning.request import Request
from tests.support.paths import ROOT
from tests.support.tables.fpga import Executed, Model, upstream_rows

CONFIGS = ROOT / "configs"
CASES = ("pessimistic", "likely", "optimistic")


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


def workload_of(executed):
    """Conv, MaxPool, Gemm: a pool between two products that a card computes."""
    model = Model(outputs=["y"])
    model.floats(x=(1, 16, 61, 67), a=(1, 32, 61, 67), p=(1, 32, 30, 33), f=(1, 31_680), y=(1, 509))
    model.floats(are_weights=True, w=(32, 16, 3, 3), u=(31_680, 509))
    macs = 61 * 67 * 32 * 16 * 9
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "groups": 1, "batch_count": 1}
    model.add("Conv", "x w", "a", macs=macs, flops=2 * macs, **window, m_count=61 * 67, k_count=144, n_count=32)
    model.add("MaxPool", "a", "p", flops=4 * 30 * 33 * 32, kernel_shape=[2, 2], strides=[2, 2])
    model.add("Flatten", "p", "f")
    macs = 31_680 * 509
    model.add("Gemm", "f u", "y", macs=macs, flops=2 * macs, batch_count=1, m_count=1, k_count=31_680, n_count=509)
    mapped = [("conv", "/a"), ("pool", "/p"), ("gemm", "/f"), ("gemm", "/y")]
    return workload_from_rows(*upstream_rows(model, executed, mapped))


EXECUTED = Executed(
    [
        ("conv", "node", ["/a"], 7_001.0, 300_007.0),
        ("pool", "node", ["/p"], 601.0, 31_013.0),
        ("gemm", "node", ["/f", "/y"], 3_001.0, 150_001.0),
    ],
    gap_us=19.0,
    gap_energy_uj=1_009.0,
)


@pytest.fixture(scope="module")
def workload():
    return workload_of(EXECUTED)


def request_for(**options):
    board = load_board("u280", CONFIGS / "boards")
    values = {"precision": "int8", "launch_per": "group", "given_speedups": {}, **options}
    return Request(board=board, thresholds=Thresholds(0.1, 8.0, 0.1), effort=Effort(0.5), **values)


@pytest.fixture(scope="module")
def plan(workload, models):
    return make_plan(workload, request_for(), models)


@pytest.fixture(scope="module")
def front(models, plan):
    rows = front_rows(plan, models, 6)
    return {(row["objective"], row["operation"], row["inference_count"]): row for row in rows}


def test_batches_are_doubled_up_to_the_largest():
    assert [batch_sizes(most) for most in (1, 2, 3, 6, 8)] == [[], [2], [2, 3], [2, 4, 6], [2, 4, 8]]


@pytest.mark.slow
def test_a_front_has_a_row_for_each_objective_way_and_batch(front):
    ways = [("latency", "one by one"), ("latency", "streaming"), ("throughput", "streaming"), ("energy", "streaming")]
    assert list(front) == [(*way, count) for count in (1, 2, 4, 6) for way in ways]
    declared = {column.name for column in ARTIFACTS["offload_front"].columns}
    assert all(set(row) == declared for row in front.values())


@pytest.mark.slow
def test_the_row_of_one_inference_is_the_plan_and_its_pipeline(front, plan, models):
    terms = {(row["objective"], row["term"]): row for row in plan_speedup(plan, models.energy)}
    alone, stream = (front["latency", way, 1] for way in ("one by one", "streaming"))
    for case in CASES:
        assert alone[f"batch_latency_{case}_us"] == pytest.approx(terms["latency", "new_total"][case])
        assert alone[f"inference_energy_{case}_uj"] == pytest.approx(terms["energy", "new_total"][case])
        assert alone[f"{case}_inferences_per_s"] * alone[f"batch_latency_{case}_us"] == pytest.approx(1e6)
        assert stream[f"{case}_inferences_per_s"] == pytest.approx(terms["throughput", "new_rate"][case])
        assert stream["batch_latency_likely_us"] == alone["batch_latency_likely_us"]
    in_flight = stream["batch_latency_likely_us"] * stream["likely_inferences_per_s"] / 1e6
    assert stream["in_flight_count"] - 1 < in_flight <= stream["in_flight_count"]


def test_each_plan_is_the_best_of_its_batch_for_its_objective(front):
    for count in (1, 2, 4, 6):
        rows = {key[0]: row for key, row in front.items() if key[1:] == ("streaming", count)}
        rate, energy = ("likely_inferences_per_s", max), ("inference_energy_likely_uj", min)
        for objective, (name, best) in {"throughput": rate, "energy": energy}.items():
            assert rows[objective][name] == pytest.approx(best(row[name] for row in rows.values()), rel=1e-6)
        least_us = min(row["batch_latency_likely_us"] for row in rows.values())
        assert rows["latency"]["batch_latency_likely_us"] == least_us


def test_a_search_that_ends_early_takes_what_the_other_one_found(workload, models, plan, monkeypatch):
    """The search for throughput finds nothing here, that for energy a plan of a higher rate."""

    def idle(problem, known, effort, energy=None, watch=None):
        if energy is None:
            return Stream(Assignment((), ()), is_proved=False)
        return best_stream(problem, known, effort, energy, watch)

    monkeypatch.setattr("common.fpga.planning.front.best_stream", idle)
    rows = front_rows(plan, models, 1)
    streams = {row["objective"]: row for row in rows if row["operation"] == "streaming"}
    assert streams["throughput"]["likely_inferences_per_s"] == streams["energy"]["likely_inferences_per_s"]
    assert streams["throughput"]["batch_call_count"] > 0
    assert streams["throughput"]["plan_status"] == "feasible"


def test_a_batch_shares_launches_and_weights_and_nothing_else(front):
    """One call for two inferences is quicker than two calls, and no quicker than two times its own work."""
    for objective in ("latency", "throughput"):
        one, two = (front[objective, "streaming", count] for count in (1, 2))
        assert one["batch_latency_likely_us"] < two["batch_latency_likely_us"] < 2 * one["batch_latency_likely_us"]
        assert two["likely_inferences_per_s"] >= one["likely_inferences_per_s"] * (1 - 1e-9)


def test_the_front_is_what_no_row_beats(front):
    def merits(row):
        return row["batch_latency_likely_us"], -row["likely_inferences_per_s"], row["inference_energy_likely_uj"]

    for row in front.values():
        others = [merits(other) for other in front.values()]
        mine = merits(row)
        beaten = any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in others)
        assert row["is_on_front"] == (not beaten)
    assert any(row["is_on_front"] for row in front.values())


@pytest.mark.slow
def test_without_the_hosts_energy_no_plan_is_the_best_for_it(models):
    unknown = replace(EXECUTED, nodes=[(*node[:4], None) for node in EXECUTED.nodes])
    work = workload_of(unknown)
    rows = front_rows(make_plan(work, request_for(), models), models, 1)
    assert [row["objective"] for row in rows] == ["latency", "latency", "throughput"]
    assert all(row["inference_energy_likely_uj"] is None for row in rows)
