"""Thread-pool balance and memory: hand-written events, and real runs against sums done by hand."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from common.profiling.trace.reader import collect, keep_runs, read_trace
from common.profiling.trace.utilization import node_utilization, peak_resident_bytes, run_utilization
from tests.support.paths import ROOT

RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 1}
NOTHING = {
    "pool_thread_count": None,
    "pool_balance_share": None,
    "pool_wait_us": None,
    "peak_memory_bytes": None,
    "live_memory_bytes": None,
    "allocated_bytes": None,
}


def node(name, ts=0, dur=100, **args):
    args = {"op_name": "Relu", "provider": "CPUExecutionProvider", **args}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": 1, "args": args}


def pool(finished, *, run=0, wait=0, revoke=0, distribution=0, enqueue=0, blocks=(1,)):
    """``finished``: the tasks that each of the other threads has finished so far."""
    main = {"thread_pool_name": "p", "thread_id": "1", "block_size": list(blocks), "core": 0}
    main |= {"Distribution": distribution, "DistributionEnqueue": enqueue, "Run": run}
    main |= {"Wait": wait, "WaitRevoke": revoke}
    others = {str(index + 2): {"num_run": count, "core": 1} for index, count in enumerate(finished)}
    return {"thread_scheduling_stats": {"main_thread": main, "sub_threads": others}}


def memory(in_use, peak, delta=0, requested=0, requested_delta=0, held=4096):
    return {
        "mem_bytes_in_use": str(in_use),
        "mem_in_use_peak": str(peak),
        "mem_in_use_delta": str(delta),
        "mem_bytes_requested_in_use": str(requested),
        "mem_requested_in_use_delta": str(requested_delta),
        "mem_arena_held": str(held),
    }


def figures(trace, name, warmup=0):
    return node_utilization(trace.nodes[name], warmup)


# --- the pool -------------------------------------------------------------------------------------------------------


def test_balance_of_three_threads_by_hand():
    """4 + 2 + 60 + 30 + 4 = 100 µs of loops; the session's thread worked 66 of them, one of two others took part."""
    events = pool([1, 0], distribution=4, enqueue=2, run=60, wait=30, revoke=4)
    found = figures(collect([node("a", **events), RUN]), "a")
    assert found["pool_thread_count"] == 2
    assert found["pool_wait_us"] == 34
    assert found["pool_balance_share"] == pytest.approx((66 + 100) / (3 * 100))


def test_balance_is_one_where_all_took_part_and_none_waited_and_one_over_threads_where_one_worked():
    trace = collect([node("all", **pool([1, 1], run=50)), node("one", 200, **pool([1, 1], run=50)), RUN])
    assert figures(trace, "all")["pool_balance_share"] == 1
    assert figures(trace, "one")["pool_balance_share"] == pytest.approx(1 / 3)  # no task finished since "all"
    assert (figures(trace, "one")["pool_thread_count"], figures(trace, "one")["pool_wait_us"]) == (1, 0)
    assert run_utilization(trace, 0)["pool_balance_share"] == pytest.approx((3 * 50 + 50) / (3 * 100))


def test_tasks_are_counted_from_event_to_event_also_through_a_body():
    """The body's event comes first; what its own loop finished is not its owner's."""
    body = node("body", 10, 20, **pool([3], run=10))
    loop = node("loop", 0, 50, **pool([3], run=20))
    found = collect([body, loop, RUN])
    assert figures(found, "body")["pool_thread_count"] == 2
    assert figures(found, "loop")["pool_thread_count"] == 1


def test_who_took_part_in_the_warm_up_does_not_count():
    events = [node("a", **pool([1], run=9)), RUN, node("a", 200, **pool([1], run=9)), RUN]
    assert figures(collect(events), "a", warmup=1)["pool_thread_count"] == 1


def test_medians_over_the_runs_after_the_warm_up():
    waits = [90, 0, 10, 60]  # shares of the session's thread: 0.1 | 1, 0.9, 0.4
    events = []
    for step, wait in enumerate(waits):
        events += [node("a", 200 * step, **pool([step + 1], run=100 - wait, wait=wait)), RUN]
    trace = collect(events)
    assert figures(trace, "a", warmup=1)["pool_wait_us"] == 10
    assert figures(trace, "a", warmup=1)["pool_balance_share"] == pytest.approx((0.9 + 1) / 2)
    assert run_utilization(trace, 3)["pool_balance_share"] == pytest.approx((0.4 + 1) / 2)
    assert figures(trace, "a", warmup=1)["pool_thread_count"] == 2
    kept = keep_runs(trace, [True, False, False, True])
    assert figures(kept, "a", warmup=1)["pool_wait_us"] == 60


@pytest.mark.parametrize(
    "args",
    [
        {},  # another provider's
        {"thread_scheduling_stats": ""},  # one thread: there is no pool
        pool([0], blocks=()),  # a node without a parallel loop
    ],
)
def test_no_parallel_loop_is_none_and_not_zero(args):
    trace = collect([node("a", **args), RUN])
    assert figures(trace, "a") == NOTHING
    assert run_utilization(trace, 0)["pool_balance_share"] is None
    assert not trace.nodes["a"].uses_thread_pool


def test_a_loop_in_the_warm_up_only_and_one_too_short_for_the_clock():
    trace = collect([node("a", **pool([1], run=5)), RUN, node("a", 200), node("b", 400, **pool([2])), RUN])
    assert figures(trace, "a", warmup=1) == NOTHING
    assert figures(trace, "b", warmup=1)["pool_balance_share"] is None
    assert figures(trace, "b", warmup=1)["pool_thread_count"] == 2


# --- memory ---------------------------------------------------------------------------------------------------------


def test_memory_by_node_is_that_of_its_first_run():
    trace = collect(
        [
            node("a", 0, **memory(512, 2048, 512, 500, 500)),  # the peak may be of the session's creation
            node("b", 200, **memory(768, 2304, 256, 700, 200)),  # it took 1536 and more meanwhile
            node("c", 400, **memory(256, 2304, -512, 200, -500)),
            RUN,
            node("a", 600, **memory(9000, 9000, 0, 8999, 0, held=16384)),
            RUN,
        ]
    )
    wanted = {"a": (512, 500, 500), "b": (2304, 700, 200), "c": (768, 700, 0)}
    names = ("peak_memory_bytes", "live_memory_bytes", "allocated_bytes")
    assert {name: tuple(figures(trace, name)[key] for key in names) for name in wanted} == wanted
    assert (run_utilization(trace, 0)["peak_memory_bytes"], run_utilization(trace, 0)["arena_bytes"]) == (9000, 16384)


def test_a_node_of_a_body_has_the_most_of_its_events():
    steps = [node("a", 200 * step, **memory(used, 900, 100, used, 100)) for step, used in enumerate((300, 500, 400))]
    assert figures(collect([*steps, RUN]), "a")["peak_memory_bytes"] == 500


def test_a_fused_node_of_another_provider_does_not_tell_of_memory():
    found = collect([node("a", provider="OpenVINOExecutionProvider", **memory(512, 2048)), RUN])
    assert figures(found, "a") == NOTHING
    assert run_utilization(found, 0)["peak_memory_bytes"] is None


# --- real runs ------------------------------------------------------------------------------------------------------


def model(nodes, shape, output, weights=()):
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", onnx.TensorProto.FLOAT, shape)], [value(output, onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return made.SerializeToString()


def traced(path, model, shape, *, threads=1, arena=True, runs=3):
    """The trace of a model as it stands."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.enable_cpu_mem_arena = threads, arena
    options.enable_profiling, options.profile_file_prefix = True, str(path / "trace")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for _ in range(runs):
        session.run(None, {"x": np.ones(shape, np.float32)})
    return read_trace(Path(session.end_profiling()))


ERF = [helper.make_node("Erf", ["x"], ["y"], name="erf")]


def test_live_memory_of_a_chain_is_the_sum_of_what_lives_at_each_node(tmp_path):
    """Operands that are the caller's do not count; the list of axes, 8 bytes, does."""
    nodes = [
        helper.make_node("Erf", ["x"], ["a"], name="erf"),  # [101, 103]
        helper.make_node("Concat", ["a", "x"], ["b"], axis=0, name="concat"),  # [202, 103]
        helper.make_node("ReduceSum", ["b", "axes"], ["c"], keepdims=0, name="sum"),  # [202]
        helper.make_node("Erf", ["c"], ["d"], name="last"),  # [202]
    ]
    axes = numpy_helper.from_array(np.array([1]), "axes")
    trace = traced(tmp_path, model(nodes, [101, 103], "d", [axes]), [101, 103])
    a, b, c, d = 4 * 101 * 103, 4 * 202 * 103, 4 * 202, 4 * 202
    live = {name: figures(trace, name)["live_memory_bytes"] for name in trace.nodes}
    assert live == {"erf": 8 + a, "concat": 8 + a + b, "sum": 8 + b + c, "last": 8 + c + d}
    taken = {name: figures(trace, name)["allocated_bytes"] for name in trace.nodes}
    assert taken == {"erf": a, "concat": b, "sum": c, "last": d}
    for name in trace.nodes:  # padded to 256 bytes, or more where a chunk was not worth splitting
        assert figures(trace, name)["peak_memory_bytes"] >= live[name]
    overall = run_utilization(trace, 0)
    assert overall["arena_bytes"] >= overall["peak_memory_bytes"] >= max(live.values())


def test_another_session_has_another_arena(tmp_path):
    erf = model(ERF, [101, 103], "y")
    alone = run_utilization(traced(tmp_path, erf, [101, 103]), 0)
    weights = numpy_helper.from_array(np.ones((1009, 997), np.float32), "w")
    heavy = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, 1009], "y", [weights])
    session = ort.InferenceSession(heavy, providers=["CPUExecutionProvider"])
    beside = run_utilization(traced(tmp_path, erf, [101, 103]), 0)
    assert alone == beside
    assert session.get_inputs()  # alive until here


def test_without_an_arena_memory_is_unknown(tmp_path):
    found = traced(tmp_path, model(ERF, [7, 11], "y"), [7, 11], arena=False)
    assert figures(found, "erf") == NOTHING


def test_a_real_pool(tmp_path):
    nodes = [helper.make_node("Erf", ["x"], ["a"], name="big"), helper.make_node("Size", ["a"], ["b"], name="size")]
    nodes.append(helper.make_node("Cast", ["b"], ["y"], to=onnx.TensorProto.FLOAT, name="cast"))
    trace = traced(tmp_path, model(nodes, [503, 509], "y"), [503, 509], threads=2, runs=5)
    big = figures(trace, "big")
    assert 1 <= big["pool_thread_count"] <= 2
    assert 0 < big["pool_balance_share"] <= 1
    assert big["pool_wait_us"] >= 0
    assert figures(trace, "size")["pool_balance_share"] is None
    assert run_utilization(trace, 0)["pool_balance_share"] == big["pool_balance_share"]


def test_one_thread_has_no_pool(tmp_path):
    found = traced(tmp_path, model(ERF, [503, 509], "y"), [503, 509])
    assert figures(found, "erf")["pool_thread_count"] is None


@pytest.mark.skipif(peak_resident_bytes() is None, reason="the system does not say how much memory was resident")
def test_peak_resident_memory_grows_by_what_is_touched_and_stays():
    program = (
        "from common.profiling.trace.utilization import peak_resident_bytes as peak;"
        "before = peak(); block = bytearray(b'x') * (67 << 20); del block; print(before, peak())"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 66 << 20 <= after - before <= 70 << 20


def test_peak_resident_memory_of_a_known_status(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  7 kB\nVmHWM:\t    1013 kB\n")
    assert peak_resident_bytes(status) == 1013 * 1024
    status.write_text("Name:\tpython\n")
    assert peak_resident_bytes(status) is None
    assert peak_resident_bytes(tmp_path / "none") is None
