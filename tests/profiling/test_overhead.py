"""What profiling costs: classes, chains, and the correction. Times are compared with physical bounds only."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from common.profiling import correction, overhead
from common.profiling.correction import correct, node_latency, run_costs
from common.profiling.overhead import (
    BLOCK_ROUNDS,
    WARMUP_ROUNDS,
    Chain,
    Overhead,
    OverheadClass,
    OverheadCost,
    build,
    chains,
    estimate,
)
from common.profiling.trace.reader import NodeTrace, Trace, read_trace
from common.runtime.sessions.session import SessionSettings, create_session, run


@pytest.mark.parametrize(
    ("pool", "inputs", "op_type", "operands"),
    [
        (False, 0, "Relu", 1),
        (False, 1, "Relu", 1),
        (False, 2, "Sum", 2),
        (False, 5, "Sum", 5),
        (True, 1, "Softmax Erf", 1),
        (True, 2, "MatMul", 2),
        (True, 3, "Gemm LayerNormalization", 3),
        (True, 7, "Gemm LayerNormalization", 3),
    ],
)
def test_a_class_has_two_chains_of_its_operands(pool, inputs, op_type, operands):
    small, large = chains(OverheadClass(pool, inputs))
    assert [*dict.fromkeys(chain.op_type for chain in (small, large))] == op_type.split()
    assert {len(chain.shapes) for chain in (small, large)} == {operands}
    assert np.prod(small.shapes[0]) < np.prod(large.shapes[0])
    assert 4 * np.prod(large.shapes[0]) <= 2**19  # input and output stay in a core's own cache


def test_the_operands_of_a_node_of_thousands_of_inputs_hold_something():
    """Beyond 4,096 operands, each would have had no element at all."""
    small, large = chains(OverheadClass(False, 9000))
    assert {shape[-1] for chain in (small, large) for shape in chain.shapes} == {1, 4}


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_chains_of_the_thread_pool_use_it(tmp_path, inputs):
    for chain in chains(OverheadClass(True, inputs)):
        content, feeds = build(chain, 3)
        session = create_session(content, SessionSettings(2, optimization="disable"), trace_prefix=tmp_path / "t")
        run(session, feeds)
        nodes = read_trace(Path(session.end_profiling())).nodes.values()
        assert [node.uses_thread_pool for node in nodes] == [True] * 3


def test_a_chain_is_a_valid_model_of_so_many_nodes():
    content, feeds = build(Chain("Gemm", ((5, 5), (5, 5), (5,))), 7)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [list(node.input) for node in model.graph.node[:2]] == [["x0", "c0", "c1"], ["x1", "c0", "c1"]]
    assert (len(model.graph.node), model.ir_version, feeds["x0"].shape) == (7, 8, (5, 5))


@pytest.mark.slow
def test_measured_costs_have_an_interval_each(tmp_path):
    kinds = [OverheadClass(False, 1), OverheadClass(False, 3)]
    found = estimate(kinds, 1, tmp_path)
    assert set(found) == set(kinds)
    for overhead_of_class in found.values():
        for cost in (overhead_of_class.inside, overhead_of_class.around):
            assert 0 <= cost.low_us <= cost.median_us <= cost.high_us
        assert overhead_of_class.around.median_us > 0  # the runtime's own clock: writing an event down takes time
    assert not [*tmp_path.iterdir()]  # the calibration's traces are gone


def rounds(*blocks):
    """A series: each block's values, none of them disturbed, after a warm-up that must not count."""
    assert all(len(block) == BLOCK_ROUNDS for block in blocks)
    return np.array([0.001] * WARMUP_ROUNDS + [value for block in blocks for value in block], dtype=float)


def test_a_block_counts_with_its_fastest_round():
    series = rounds([9, 7, 11, 8, 4000], [13, 12, 13, 5000, 6000])
    assert overhead.fastest(series).tolist() == [7, 12]


def test_the_cost_is_the_traced_less_the_slope_of_the_fastest_rounds():
    """16 and 32 nodes: slopes (272 - 112) / 16 = 10, 13 and 10, so 10 µs a node; rounds that last 4 ms do not count."""
    short = rounds([112, 113, 4112, 119, 117], [112] * 5, [112] * 5)
    long = rounds([4272, 272, 281, 4272, 4272], [320] * 5, [272] * 5)
    totals = rounds([4000, 416, 4000, 417, 418], [448, 8000, 8000, 8000, 8000], [416] * 5)
    spans = totals + rounds([62] * 5, [93] * 5, [62, 9000, 9000, 9000, 9000])
    inside, around = overhead.costs(np.stack([short, long], axis=1), np.tile(totals / 32, (32, 1)), spans)
    assert inside.tolist() == [416 / 32 - 10, 448 / 32 - 10, 416 / 32 - 10]
    assert around.tolist() == [2, 3, 2]  # 62 and 93 µs over the 31 gaps


def test_a_few_slow_nodes_of_a_round_do_not_raise_the_cost():
    """Of eight nodes the middle four count: 7, 7, 9 and 9 in the fastest of five rounds, whatever the slowest take."""
    nodes = [[23] * 5, [9] * 5, [7] * 5, [5] * 5, [9] * 5, [7] * 5, [400] * 5, [5] * 5]
    slower = [[one + 100 * (step != 2) for step, one in enumerate(node)] for node in nodes]
    traced = np.array([rounds(node) for node in slower])
    assert overhead.typical(traced).tolist() == [8]


def costs(monkeypatch, **by_class):
    """Replace the measurement by given costs inside: ``n3=[…]`` without the pool, ``p3=[…]`` with it."""
    asked = []

    def measured(kind, threads, folder):
        asked.append(kind)
        inside = np.array(by_class[f"{'p' if kind.uses_thread_pool else 'n'}{kind.input_count}"])
        return np.stack([inside, np.full(len(inside), 2.0 + kind.input_count / 8)])

    monkeypatch.setattr(overhead, "measure", measured)
    return asked


def test_further_operands_of_the_pool_cost_what_they_cost_without_it(monkeypatch, tmp_path):
    asked = costs(monkeypatch, p3=[5.0, 7.0, 11.0], n3=[2.0], n5=[3.5])
    wide = OverheadClass(True, 5)
    found = estimate([wide], 2, tmp_path)[wide]
    assert found.inside == OverheadCost(8.5, 7.5, 10.5)  # 7 + 1.5; quartiles 6 and 9 alike
    assert found.around == OverheadCost(2.625, 2.625, 2.625)  # 2 + 3/8, and 5/8 less 3/8
    assert set(asked) == {OverheadClass(True, 3), OverheadClass(False, 3), OverheadClass(False, 5)}


def test_beyond_some_operands_the_cost_grows_as_it_does_up_to_there(monkeypatch, tmp_path):
    """A node of 9,000 inputs: its own chains would record a hundred million shapes."""
    operands = []

    def measured(chain, threads, folder):
        operands.append(len(chain.shapes))
        return np.array([[3.0 + 0.25 * operands[-1]], [2.0], [0.0]])

    monkeypatch.setattr(overhead, "measure_chain", measured)
    inside, around, _ = overhead.measure(OverheadClass(False, 9000), 1, tmp_path)
    assert (inside, around) == (pytest.approx(3.0 + 0.25 * 9000), pytest.approx(2.0))
    assert max(operands) <= 256


def test_fewer_costs_are_never_added_and_a_negative_cost_is_zero(monkeypatch, tmp_path):
    costs(monkeypatch, p3=[5.0], n3=[4.0], n5=[3.0], n1=[-2.0, -1.0, 3.0])
    wide, single = OverheadClass(True, 5), OverheadClass(False, 1)
    found = estimate([wide, single], 2, tmp_path)
    assert found[wide].inside == OverheadCost(5.0, 5.0, 5.0)
    assert found[single].inside == OverheadCost(0.0, 0.0, 1.0)


def traced(name, run_us, events=None, pool=False, owner="", inputs=()):
    counts = [1] * len(run_us) if events is None else events
    shapes = [list(shape) for shape in inputs]
    times = {"run_us": [*map(float, run_us)], "run_events": counts, "uses_thread_pool": pool}
    return NodeTrace(name, "X", "CPUExecutionProvider", 0, shapes, [], [], owner, **times)


def latency(node, inside, warmup=0):
    """A node's statistics, where one event costs so much."""
    flat = run_costs([node], {node.name: Overhead(OverheadCost(*inside), OverheadCost(2, 1, 3))})[node.name]
    return node_latency(node, 1, warmup, flat)


def test_the_correction_is_subtracted_floored_and_not_rescaled():
    found = latency(traced("a", [99, 3, 5, 11, 17, 2]), (5.0, 4.0, 7.0), warmup=1)
    assert found.sample_count == 5
    assert found.raw_total_us == 38  # 3 + 5 + 11 + 17 + 2, warm-up cut, nothing subtracted
    assert found.statistics["raw_median_us"] == 5
    assert found.statistics["corrected_mean_us"] == pytest.approx((0 + 0 + 6 + 12 + 0) / 5)
    assert found.statistics["corrected_min_us"] == 0
    assert found.is_correction_dominated  # 5 < 4 · 5


def test_a_node_of_four_times_its_correction_is_ranked():
    assert not latency(traced("a", [20, 20]), (5.0, 4.0, 7.0)).is_correction_dominated


def test_a_node_with_several_events_a_run_is_corrected_for_each():
    found = latency(traced("a", [31, 31], events=[3, 3]), (5.0, 4.0, 7.0))
    assert (found.events_per_run, found.correction) == (3, OverheadCost(15.0, 12.0, 21.0))
    assert found.statistics["corrected_median_us"] == 16


def test_a_loop_of_varying_length_is_corrected_run_by_run():
    found = latency(traced("a", [99, 11, 0, 53], events=[13, 2, 0, 7]), (5.0, 4.0, 7.0), warmup=1)
    assert found.statistics["corrected_mean_us"] == (11 - 2 * 5 + 0 + 53 - 7 * 5) / 3
    assert (found.events_per_run, found.correction) == (
        3,
        OverheadCost(10.0, 8.0, 14.0),
    )  # (2 + 0 + 7) / 3; the median run


def test_a_node_that_ran_in_the_warm_up_only():
    found = latency(traced("a", [7, 0, 0], events=[1, 0, 0]), (5.0, 4.0, 7.0), warmup=1)
    assert (found.raw_total_us, found.correction, found.events_per_run) == (0, OverheadCost(0, 0, 0), 1)
    assert not found.is_correction_dominated


def test_an_owner_carries_the_cost_around_the_events_directly_inside_it():
    nodes = [
        traced("loop", [999, 999]),
        traced("small", [70, 110], events=[7, 11], owner="loop"),
        traced("if", [50, 50], events=[5, 5], owner="loop"),
        traced("branch", [30, 30], events=[3, 3], owner="if"),
    ]
    prices = {
        "loop": Overhead(
            OverheadCost(4.0, 3.0, 6.0), OverheadCost(100.0, 100.0, 100.0)
        ),  # around the top level is the gap's
        "small": Overhead(OverheadCost(2.0, 1.0, 3.0), OverheadCost(2.5, 2.0, 3.0)),
        "if": Overhead(OverheadCost(3.0, 3.0, 3.0), OverheadCost(1.0, 1.0, 1.0)),
        "branch": Overhead(OverheadCost(1.0, 1.0, 1.0), OverheadCost(0.5, 0.25, 0.75)),
    }
    found = run_costs(nodes, prices)
    assert found["loop"][0].tolist() == [4 + 7 * 2.5 + 5 * 1, 4 + 11 * 2.5 + 5 * 1]
    assert found["loop"][1].tolist() == [3 + 7 * 2 + 5 * 1, 3 + 11 * 2 + 5 * 1]
    assert found["small"][0].tolist() == [14, 22]
    assert found["if"][2].tolist() == [5 * 3 + 3 * 0.75] * 2
    assert found["branch"][0].tolist() == [3, 3]


def test_each_node_has_the_cost_of_its_own_class(monkeypatch, tmp_path):
    nodes = {"a": traced("a", [50, 50]), "b": traced("b", [50, 50], pool=True)}
    around = OverheadCost(0.0, 0.0, 0.0)
    prices = {
        OverheadClass(False, 2): Overhead(OverheadCost(3.0, 3.0, 3.0), around),
        OverheadClass(True, 1): Overhead(OverheadCost(7.0, 7.0, 7.0), around),
    }
    monkeypatch.setattr(correction, "estimate", lambda kinds, threads, folder: {kind: prices[kind] for kind in kinds})
    runs = SimpleNamespace(trace=Trace(nodes, 2, 4), profiled_warmup=0, settings=SessionSettings(2))
    found = correct(runs, {"a": 2, "b": 1}, tmp_path)
    assert [latency.statistics["corrected_median_us"] for latency in found] == [47, 43]


def test_an_owner_has_the_operands_that_the_profiler_saw(monkeypatch, tmp_path):
    """The executed graph has a Loop read the results of its body as well."""
    nodes = {"loop": traced("loop", [99], inputs=[(), (), (5,)]), "body": traced("body", [7], owner="loop")}
    free = Overhead(OverheadCost(0.0, 0.0, 0.0), OverheadCost(0.0, 0.0, 0.0))
    monkeypatch.setattr(correction, "estimate", lambda kinds, threads, folder: dict.fromkeys(kinds, free))
    runs = SimpleNamespace(trace=Trace(nodes, 1, 2), profiled_warmup=0, settings=SessionSettings(2))
    found = correct(runs, {"loop": 5, "body": 2}, tmp_path)
    assert [latency.input_count for latency in found] == [3, 2]


def test_the_wake_up_is_what_the_first_of_equal_nodes_takes_beyond_the_others():
    others = [rounds([7] * 5, [9, 9, 9, 800, 9])] * 7
    first = rounds([30, 31, 33, 34, 5000], [40] * 5)
    assert overhead.wake_ups(np.array([first, *others])).tolist() == [30 - 7, 40 - 9]


def test_what_cold_data_cost_the_first_node_is_no_wake_up(monkeypatch, tmp_path):
    first_us = {2: [40.0, 50.0], 1: [6.0, 8.0]}
    monkeypatch.setattr(
        overhead, "measure_chain", lambda chain, threads, folder: np.array([[3.0] * 2, [1.0] * 2, first_us[threads]])
    )
    assert estimate([kind := OverheadClass(True, 2)], 2, tmp_path)[kind].wake_up.median_us == 45 - 7


def test_only_the_first_node_that_uses_the_pool_pays_for_waking_it_and_once_in_a_run():
    nodes = [
        traced("alone", [50.0, 50.0]),
        traced("first", [90.0, 80.0], events=[2, 0], pool=True),
        traced("second", [60.0, 60.0], pool=True),
    ]
    price = Overhead(OverheadCost(3.0, 3.0, 3.0), OverheadCost(0.0, 0.0, 0.0), OverheadCost(40.0, 30.0, 60.0))
    paid = run_costs(nodes, dict.fromkeys(("alone", "first", "second"), price))
    assert paid["alone"].tolist() == [[3, 3]] * 3
    assert paid["first"].tolist() == [[46, 0], [36, 0], [66, 0]]  # two events in the first run, none in the second
    assert paid["second"].tolist() == [[3, 3]] * 3


def test_without_a_pool_nobody_wakes_it():
    assert correction.waking_node([traced("a", [1.0]), traced("b", [1.0])]) is None
