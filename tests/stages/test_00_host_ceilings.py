"""The ceilings: arithmetic with a clock of its own, the operators' results by numpy, the real command line briefly."""

import importlib
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from common.messages.errors import CommandLineError, PipelineError
from common.profiling.ceilings import operators, sessions
from common.profiling.ceilings import slices as ceilings
from common.profiling.ceilings.slices import (
    Slices,
    Subject,
    TimedOperator,
    best,
    halves_difference_share,
    measure_slices,
    rate,
)
from common.view.roofline.ceilings_text import ceiling_notes, ceilings_report

stage = importlib.import_module("00_host_ceilings")
MIB = 2**20


class Clock:
    """Stands still but for what a run takes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def takes(clock, name, amount, seconds, log):
    def run():
        log.append(name)
        clock.now += seconds

    return TimedOperator(Subject(name, 1, name, name, 0), amount, run)


# --- slices ---------------------------------------------------------------------------------------------------------


def test_slices_take_turns_and_give_work_over_time():
    clock, log = Clock(), []
    works = [takes(clock, "a", 100.0, 0.015, log), takes(clock, "b", 30.0, 0.2, log)]
    found = measure_slices(lambda: works, 0.01, clock)
    assert best(found[:1]).first == pytest.approx([100 / 0.015] * 2)
    assert found[1].best == pytest.approx(30 / 0.2)
    epoch = ["a"] * 3 + ["b"] * 3 + ["a", "a", "b"]  # warm-up; 0.03 s of a are two runs; b is longer than a slice
    assert log == epoch * 4  # warm-up takes all of an epoch's time: each works once


def test_the_time_bounds_the_slices():
    clock = Clock()
    (found,) = measure_slices(lambda: [takes(clock, "a", 1.0, 0.03, [])], 4.0, clock)
    # an epoch of 1.0 less 0.09 of warm-up, in slices of 0.03: 31 begin
    assert (len(found.first), len(found.second)) == (62, 62)


def test_each_epoch_has_sessions_of_its_own_and_two_make_a_half():
    clock, built = Clock(), []

    def build():
        built.append(1.0 + len(built))  # the n-th sessions are n times as fast
        return [takes(clock, "a", built[-1] * 0.03, 0.03, [])]

    (found,) = measure_slices(build, 0.001, clock)
    assert (found.first, found.second) == (pytest.approx((1, 2)), pytest.approx((3, 4)))


def test_sessions_are_let_go_before_the_next_are_built():
    clock, alive = Clock(), []

    class Arrays:
        def __init__(self):
            alive.append(1)

        def __del__(self):
            alive.pop()

    def build():
        assert not alive
        work = takes(clock, "a", 1.0, 0.1, [])
        return [TimedOperator(work.subject, work.amount, work.run, (Arrays(),))]

    measure_slices(build, 0.001, clock)


def slices(roof, threads, op_type, first, second, size=0):
    return Slices(Subject(roof, threads, op_type, f"{op_type} {size}", size), first, second)


def test_halves():
    late = [
        slices("fp32", 2, "MatMul", (5.0, 8.0), (7.0, 10.0)),
        slices("fp32", 2, "Conv", (3.0, 9.0), (2.0, 1.0)),
    ]
    assert halves_difference_share(late) == pytest.approx((10 - 9) / 10)
    assert halves_difference_share(late[1:]) == pytest.approx((9 - 2) / 9)
    assert halves_difference_share([]) is None
    assert (rate(late), rate(late, "Conv"), rate(late, "Gemm")) == (10.0, 9.0, None)


# --- the figures ----------------------------------------------------------------------------------------------------

SLICES = [
    slices("fp32", 3, "MatMul", (97.0, 100.0), (99.0, 101.0)),
    slices("fp32", 3, "Gemm", (80.0, 83.0), (79.0, 81.0)),
    slices("fp32", 3, "Conv", (103.0, 100.0), (99.0, 107.0), 7),
    slices("fp32", 3, "Conv", (71.0, 73.0), (70.0, 67.0), 11),
    slices("int8", 3, "MatMulInteger", (397.0, 409.0), (401.0, 389.0)),
    slices("int8", 3, "QLinearConv", (383.0, 379.0), (373.0, 367.0)),
    slices("memory", 3, "Add", (11.0, 13.0), (12.0, 13.0)),
    slices("cache", 3, "Add", (31.0, 29.0), (37.0, 23.0), 512),
    slices("cache", 3, "Add", (41.0, 19.0), (17.0, 5.0), 1024),
    slices("fp32", 1, "MatMul", (43.0, 47.0), (47.0, 47.0)),
    slices("int8", 1, "MatMulInteger", (191.0, 193.0), (179.0, 181.0)),
    slices("memory", 1, "Add", (7.0, 7.0), (7.0, 7.0)),
    slices("cache", 1, "Add", (17.0, 13.0), (11.0, 5.0), 256),
]


def test_the_figures():
    found = stage.host_ceilings(SLICES, 3)
    assert (found["peak_flop_per_s"], found["peak_operator"]) == (107.0, "Conv 7")
    assert [found[f"{name}_flop_per_s"] for name in ("matmul", "gemm", "conv")] == [101.0, 83.0, 107.0]
    assert (found["int8_op_per_s"], found["int8_operator"]) == (409.0, "MatMulInteger 0")
    assert (found["fp16_flop_per_s"], found["one_thread_bf16_flop_per_s"]) == (None, None)
    assert (found["memory_bytes_per_s"], found["memory_halves_difference_share"]) == (13.0, 0.0)
    assert (found["cache_bytes_per_s"], found["cache_array_bytes"]) == (41.0, 1024)
    single = ["peak_flop_per_s", "int8_op_per_s", "memory_bytes_per_s", "cache_bytes_per_s"]
    assert [found[f"one_thread_{name}"] for name in single] == [47.0, 193.0, 7.0, 17.0]
    assert found["one_thread_cache_array_bytes"] == 256
    assert found["peak_halves_difference_share"] == pytest.approx((107 - 103) / 107)
    assert found["int8_halves_difference_share"] == pytest.approx((409 - 401) / 409)
    assert (found["stable"], found["slice_count"], found["lost_to_threads_share"]) == (True, 4, 0.0)


def test_at_one_thread_the_figures_stand_in_both_places():
    found = stage.host_ceilings([one for one in SLICES if one.subject.threads == 1], 1)
    assert found["peak_flop_per_s"] == found["one_thread_peak_flop_per_s"] == 47.0
    assert found["cache_array_bytes"] == found["one_thread_cache_array_bytes"] == 256


HOST = {
    "threads": 3,
    "cpu_model": "synthetic",
    "last_level_cache_bytes": MIB,
    "stream_array_bytes": 4 * MIB,
    "busy_processor_count": 0.1,
    "duration_s": 1.0,
}


def document(changed=(), **host):
    return {**HOST, **stage.host_ceilings([*SLICES, *changed], 3), "fp16_flop_per_s": 1, "bf16_flop_per_s": 1, **host}


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (slices("memory", 3, "Add", (12.0, 12.0), (14.0, 14.0)), "7.1 % (memory)"),
        (slices("int8", 3, "QLinearConv", (401.0, 1.0), (499.0, 1.0)), "18.0 % (int8)"),
        (slices("fp32", 3, "Gemm", (1.0, 1.0), (113.0, 1.0)), "8.8 % (compute)"),
        (
            slices("memory", 1, "Add", (17.0, 17.0), (17.0, 17.0)),
            "all threads together reach 23.5 % less than one thread",
        ),  # 1 - 13 / 17
    ],
)
def test_halves_that_differ_and_threads_that_lose_are_unstable(slower, said):
    found = document([slower])
    assert not found["stable"]
    (note,) = ceiling_notes(found, 5)
    assert note.startswith("unstable") and said in note and "rerun <host_ceilings>" in note


def test_a_quiet_host_needs_no_note():
    assert ceiling_notes(document(), 4) == []


@pytest.mark.parametrize(("busy", "processors", "is_noted"), [(0.5, 3, False), (0.6, 3, True), (1.4, 4, False)])
def test_work_that_leaves_fewer_idle_processors_than_threads_is_noted(busy, processors, is_noted):
    notes = ceiling_notes(document(busy_processor_count=busy), processors)
    assert [note.startswith("other work is running") for note in notes] == [True] * is_noted


def test_formats_that_were_not_measured_are_noted():
    found = document(int8_op_per_s=None, fp16_flop_per_s=None, bf16_flop_per_s=None)
    int8, half = ceiling_notes(found, 4)
    assert "no int8 product" in int8
    assert "no MatMul in fp16 or bf16" in half


def test_the_printed_table():
    rows = [(one.subject.label, one.subject.roof, one.subject.threads, one.best) for one in SLICES]
    lines = ceilings_report(document(int8_halves_difference_share=None), rows).splitlines()
    assert lines[2].split() == ["operator", "3", "threads", "1", "thread"]
    assert lines[3].split() == ["MatMul", "0", "101", "FLOP/s", "47.0", "FLOP/s"]
    assert [line.split()[2:] for line in lines if line.startswith("Add 256")] == [["17.0", "B/s"]]
    assert lines[-2] == "ridge points fp32 8.23 OP/byte, int8 31.5 OP/byte"  # 107 / 13, 409 / 13
    assert lines[-1] == "stable: two halves differ by 3.7 % (compute), 0.0 % (memory)"


# --- operators ------------------------------------------------------------------------------------------------------


def test_the_work_of_each_operator():
    products = [operators.matmul(13), operators.gemm(13), operators.matmul_integer(13), operators.qlinear_matmul(13)]
    assert {one.amount for one in products} == {2 * 13 * 13 * 13}
    assert operators.conv(7, 3).amount == operators.qlinear_conv(7, 3).amount == 2 * 4 * 9 * 7 * 7 * 28 * 28
    assert operators.add(44).amount == 3 * 44
    assert operators.add(44, "cache", 5).amount == 5 * 3 * 44


def output_of(operator):
    session = ort.InferenceSession(operator.model, providers=["CPUExecutionProvider"])
    feeds = {f"x{index}": operator.operand() for index in range(operator.input_count)}
    (found,) = session.run(None, feeds)
    weights = {
        one.name: onnx.numpy_helper.to_array(one) for one in onnx.load_from_string(operator.model).graph.initializer
    }
    return found, feeds["x0"], weights


def test_products_are_what_numpy_says():
    found, x, weights = output_of(operators.matmul(13))
    np.testing.assert_allclose(found, x @ weights["w"], rtol=1e-5)
    found, x, weights = output_of(operators.gemm(13))
    np.testing.assert_allclose(found, x @ weights["w"].T + weights["b"], rtol=1e-5, atol=1e-6)
    found, x, weights = output_of(operators.matmul_integer(13))
    np.testing.assert_array_equal(found, x.astype(int) @ weights["w"].astype(int))


def test_a_quantized_product_is_scaled_and_saturates():
    found, x, weights = output_of(operators.qlinear_matmul(13))
    wide = (x.astype(int) - 3) @ weights["w"].astype(int)  # inputs are 3, as is the zero point
    assert not wide.any() and (found == 3).all()


def test_additions_in_a_chain_add_so_often():
    found, *_ = output_of(operators.add(44, "cache", 5))
    assert found.tolist() == [0.5 + 5 * 0.5] * 11


def test_int8_runs_in_int8_and_a_cast_product_is_none():
    assert sessions.is_computed(operators.matmul_integer(13))
    assert sessions.is_computed(operators.qlinear_conv(7, 3))
    dequantized = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float16[13, 13] x0) => (float16[13, 13] y)'
        "{ a = Cast<to = 1>(x0)  b = MatMul(a, a)  y = Cast<to = 10>(b) }"
    )
    cast = operators.Operator("fp16", "MatMul", "", 1.0, dequantized.SerializeToString(), (13, 13))
    assert not sessions.is_computed(cast)
    unknown = operators.Operator("fp16", "MatMul", "", 1.0, b"no model", (13, 13))
    assert not sessions.is_computed(unknown)


@pytest.mark.parametrize(("machine", "kind"), [("x86_64", np.uint8), ("AMD64", np.uint8), ("aarch64", np.int8)])
def test_activations_are_what_the_runtime_makes_of_them(monkeypatch, machine, kind):
    monkeypatch.setattr(operators.platform, "machine", lambda: machine)
    assert operators.quantized_activation() == kind


def test_what_the_runtime_does_not_compute_is_not_measured(monkeypatch):
    monkeypatch.setattr(sessions, "is_computed", lambda operator: operator.roof == "fp16")
    found = sessions.operators_by_threads(64, {3: [128, 256], 1: [128]})
    assert [one.roof for one in found[3]] == [*["fp32"] * 4, "fp16", "memory", "cache", "cache"]
    assert [one.operand_bytes for one in found[3][-3:]] == [64, 128, 256]
    assert [one.roof for one in found[1]] == [*["fp32"] * 4, "fp16", "memory", "cache"]


def test_sessions_share_their_arrays_and_run():
    chosen = [operators.add(44), operators.qlinear_matmul(13)]
    works = sessions.timed_operators({2: chosen, 1: chosen})
    assert [(one.subject.threads, one.subject.roof) for one in works] == [
        (2, "memory"),
        (2, "int8"),
        (1, "memory"),
        (1, "int8"),
    ]
    assert works[0].operands is works[2].operands
    for work in works:
        work.run()
    assert works[0].operands[-1].numpy().tolist() == [1.0] * 11


def test_too_little_memory(monkeypatch):
    def no_room(self):
        raise MemoryError

    monkeypatch.setattr(operators.Operator, "operand", no_room)
    with pytest.raises(PipelineError, match=r"memory: too little for 3 arrays of 48 bytes; .*(<mem_bw>|03 --mem-bw)"):
        sessions.timed_operators({1: [operators.add(48)]})


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_through_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stage, "last_level_cache_bytes", lambda processors, threads: MIB)
    monkeypatch.setattr(ceilings, "SLICE_S", 0.001)
    monkeypatch.setattr(ceilings, "WARMUP_RUNS", 1)
    assert stage.main(["--out", str(tmp_path), "--seconds", "0.01", "--threads", "1"]) == 0
    found = json.loads((tmp_path / "host_ceilings.json").read_text())
    assert (found["threads"], found["last_level_cache_bytes"], found["stream_array_bytes"]) == (1, MIB, 4 * MIB)
    assert found["slice_count"] == 4
    fastest = [found[f"{name}_flop_per_s"] for name in ("matmul", "gemm", "conv")]
    assert found["peak_flop_per_s"] == max(fastest) == found["one_thread_peak_flop_per_s"] > 1e8  # any processor
    assert found["int8_op_per_s"] > 1e8
    assert found["cache_bytes_per_s"] > 1e8
    assert json.loads((tmp_path / "host_ceilings.meta.json").read_text())["model_id"] == ""
    printed = capsys.readouterr()
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "ridge points" in printed.out
    assert printed.err.endswith(f"wrote {tmp_path}/host_ceilings.json\n")


def test_an_unknown_cache_is_null_and_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "last_level_cache_bytes", lambda processors, threads: None)
    monkeypatch.setattr(stage, "operators_by_threads", lambda size, resident: {})
    monkeypatch.setattr(stage, "measure_slices", lambda build, seconds: SLICES)
    stage.main(["--out", str(tmp_path), "--threads", "3"])
    found = json.loads((tmp_path / "host_ceilings.json").read_text())
    assert found["last_level_cache_bytes"] is None
    assert "note: the last-level cache is unknown, so arrays of 128 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--seconds", "21"], ["--seconds", "nan"], ["--seconds", "0"], ["--threads", "0"]])
def test_bad_flags(flags, tmp_path):
    with pytest.raises(CommandLineError):
        stage.main([*flags, "--out", str(tmp_path)])
