"""What profiling costs: classes, chains, and the correction. Times are compared with physical bounds only."""

import numpy as np
import onnx
import pytest

from common.profiling import measurement, overhead
from common.profiling.measurement import Measurement, _node_latency, correct
from common.profiling.overhead import Chain, Overhead, OverheadClass, build, chains, estimate
from common.profiling.trace import NodeTrace, Trace


@pytest.mark.parametrize(
    ("pool", "inputs", "op_type", "operands"),
    [
        (False, 0, "Relu", 1),
        (False, 1, "Relu", 1),
        (False, 2, "Sum", 2),
        (False, 5, "Sum", 5),
        (True, 1, "Relu", 1),
        (True, 2, "MatMul", 2),
        (True, 3, "Gemm", 3),
        (True, 7, "Gemm", 3),
    ],
)
def test_a_class_has_two_chains_of_its_operands(pool, inputs, op_type, operands):
    small, large = chains(OverheadClass(pool, inputs))
    assert {chain.op_type for chain in (small, large)} == {op_type}
    assert {len(chain.shapes) for chain in (small, large)} == {operands}
    assert np.prod(small.shapes[0]) < np.prod(large.shapes[0])


def test_a_chain_is_a_valid_model_of_so_many_nodes():
    content, feeds = build(Chain("Gemm", ((5, 5), (5, 5), (5,))), 7)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [list(node.input) for node in model.graph.node[:2]] == [["x0", "c0", "c1"], ["x1", "c0", "c1"]]
    assert (len(model.graph.node), model.ir_version, feeds["x0"].shape) == (7, 8, (5, 5))


def test_measured_costs_are_positive_and_small(tmp_path):
    kinds = [OverheadClass(False, 1), OverheadClass(False, 3)]
    found = estimate(kinds, 1, tmp_path)
    assert set(found) == set(kinds)
    for cost in found.values():
        assert 0 <= cost.low_us <= cost.median_us <= cost.high_us
        assert 0 < cost.median_us < 100
    assert not [*tmp_path.iterdir()]  # the calibration's traces are gone


def costs(monkeypatch, **by_class):
    """Replace the measurement by given costs: ``n3=[…]`` without the pool, ``p3=[…]`` with it."""
    asked = []

    def measured(kind, threads, folder):
        asked.append(kind)
        return np.array(by_class[f"{'p' if kind.uses_thread_pool else 'n'}{kind.input_count}"])

    monkeypatch.setattr(overhead, "measure", measured)
    return asked


def test_further_operands_of_the_pool_cost_what_they_cost_without_it(monkeypatch, tmp_path):
    asked = costs(monkeypatch, p3=[5.0, 7.0, 11.0], n3=[2.0], n5=[3.5])
    wide = OverheadClass(True, 5)
    assert estimate([wide], 2, tmp_path)[wide] == Overhead(8.5, 7.5, 10.5)  # 7 + 1.5; quartiles 6 and 9 alike
    assert set(asked) == {OverheadClass(True, 3), OverheadClass(False, 3), OverheadClass(False, 5)}


def test_fewer_costs_are_never_added_and_a_negative_cost_is_zero(monkeypatch, tmp_path):
    costs(monkeypatch, p3=[5.0], n3=[4.0], n5=[3.0], n1=[-2.0, -1.0, 3.0])
    wide, single = OverheadClass(True, 5), OverheadClass(False, 1)
    found = estimate([wide, single], 2, tmp_path)
    assert found[wide] == Overhead(5.0, 5.0, 5.0)
    assert found[single] == Overhead(0.0, 0.0, 1.0)


def traced(name, run_us, events=None, pool=False):
    count = len(run_us) if events is None else events
    return NodeTrace(name, "Relu", "CPUExecutionProvider", 0, [], [], [], list(map(float, run_us)), count, pool)


def test_the_correction_is_subtracted_floored_and_not_rescaled():
    found = _node_latency(traced("a", [99, 3, 5, 11, 17, 2]), 1, Overhead(5.0, 4.0, 7.0), warmup=1)
    assert found.sample_count == 5
    assert found.raw_total_us == 38  # 3 + 5 + 11 + 17 + 2, warm-up cut, nothing subtracted
    assert found.statistics["raw_median_us"] == 5
    assert found.statistics["corrected_mean_us"] == pytest.approx((0 + 0 + 6 + 12 + 0) / 5)
    assert found.statistics["corrected_min_us"] == 0
    assert found.is_correction_dominated  # 5 < 4 · 5


def test_a_node_of_four_times_its_correction_is_ranked():
    assert not _node_latency(traced("a", [20, 20]), 1, Overhead(5.0, 4.0, 7.0), warmup=0).is_correction_dominated


def test_a_node_with_several_events_a_run_is_corrected_for_each():
    found = _node_latency(traced("a", [31, 31], events=6), 1, Overhead(5.0, 4.0, 7.0), warmup=0)
    assert (found.events_per_run, found.overhead) == (3, Overhead(15.0, 12.0, 21.0))
    assert found.statistics["corrected_median_us"] == 16


def test_each_node_has_the_cost_of_its_own_class(monkeypatch, tmp_path):
    nodes = {"a": traced("a", [50, 50]), "b": traced("b", [50, 50], pool=True)}
    prices = {OverheadClass(False, 2): Overhead(3.0, 3.0, 3.0), OverheadClass(True, 1): Overhead(7.0, 7.0, 7.0)}
    monkeypatch.setattr(measurement, "estimate", lambda kinds, threads, folder: {kind: prices[kind] for kind in kinds})
    runs = Measurement((), Trace(nodes, 2, 4), tmp_path / "trace.json", 0.0, 0.0)
    found = correct(runs, {"a": 2, "b": 1}, 2, tmp_path)
    assert [latency.statistics["corrected_median_us"] for latency in found] == [47, 43]
