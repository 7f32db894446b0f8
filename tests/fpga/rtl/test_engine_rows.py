"""Rows on the whole engine: products of two tensors, heads, functions, Softmax and LayerNormalization."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.plans import engine_networks
from benchmarks.plans.integer_reference import Number, Rows, outputs
from common.fpga.rtl import programs
from common.fpga.rtl.engine.cycles import best_tilings, planned_cycles, row_cycles
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.program import program_of
from common.fpga.rtl.engine.reading.layers import layers_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.rows import normalization_work, softmax_work
from common.fpga.rtl.engine.simulate import EngineSimulator
from common.fpga.rtl.engine.tiling import tilings
from common.messages.errors import PipelineError
from tests.support.engine.rows import CASES, attention, network, numbers

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")

# A fold is two words; rows are odd; buffers are so small that layers have several tiles, and sums several parts.
SMALL = EngineDesign(3, 8, 1, 4, 256, 4, 256, 8, 64, 128, 8)
QUIET = MemoryTiming(0, 1, 0, 0, 0, 4, 1024)
STALLS = MemoryTiming(17, 1.5, 6, 200, 23, 4, 128)


@pytest.fixture(scope="module")
def simulator():
    with EngineSimulator(SMALL) as built:
        yield built


def most_tiles(network, design, timing):
    return [max(tilings(layer, design), key=lambda tiling: len(tiling.tiles)) for layer in network.layers]


def run(simulator, model, timing, choose=best_tilings):
    net = layers_of(model)
    net = on_whole_folds(net, simulator.design.cols)
    divided = choose(net, simulator.design, timing)
    expected = outputs(model, {"input": engine_networks.sample_of(net, 5)})
    inputs = {each.name: engine_networks._signed(each, expected[each.name]).astype(np.int8) for each in net.inputs}
    program = program_of(net, divided, simulator.design)
    return net, divided, expected, simulator.run(program, inputs, timing, 5_000_000)


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize(("timing", "choose"), [(QUIET, best_tilings), (STALLS, most_tiles)])
@pytest.mark.parametrize("case", CASES)
def test_rows_have_the_integers_of_numpy(simulator, case, timing, choose):
    net, _, expected, done = run(simulator, CASES[case](), timing, choose)
    assert net.layers
    for layer in net.layers:
        y = layer.y.whole
        np.testing.assert_array_equal(done.tensors[y.name], engine_networks._signed(y, expected[y.name]), layer.node)
        assert len(np.unique(done.tensors[y.name])) > 3, "the result says little"


@pytest.mark.parametrize("case", CASES)
def test_rows_are_onnx_runtime_s_on_the_same_integers(case):
    model = CASES[case]()
    net = layers_of(model)
    feeds = {"input": engine_networks.sample_of(net, 5)}
    assert engine_networks._units_from_runtime(model, net, feeds, outputs(model, feeds)) <= 1


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("case", ["softmax", "normalization", "a function"])
def test_the_cycles_of_row_wise_work_are_those_of_the_verilog(simulator, case):
    _, divided, _, done = run(simulator, CASES[case](), QUIET)
    ((tiling, spent),) = (pair for pair in zip(divided, done.calls, strict=True) if pair[0].layer.rows)
    assert spent.by_cause["rows"] == sum(row_cycles(tiling, tile) for tile in tiling.tiles)
    assert planned_cycles(tiling, QUIET).total == pytest.approx(spent.cycles, rel=0.1)


@needs_verilator
@pytest.mark.slow
def test_planned_cycles_of_products_of_two_tensors(simulator):
    net, divided, _, done = run(simulator, attention(48, 32), STALLS)
    for layer, tiling, spent in zip(net.layers, divided, done.calls, strict=True):
        assert planned_cycles(tiling, STALLS).total == pytest.approx(spent.cycles, rel=0.1), layer.node
        assert sum(spent.by_cause.values()) == spent.cycles


def test_products_of_two_tensors_have_zero_points():
    """What ONNX Runtime quantizes has them where a tensor is not symmetric, such as the result of Softmax."""
    zeros = [(layer.x.zero, layer.second.tensor.zero) for layer in layers_of(attention()).layers if layer.second]
    assert all(any(pair) for pair in zeros)
    assert any(all(pair) for pair in zeros)


def test_all_functions_of_one_tensor_are_one_table():
    (layer,) = layers_of(CASES["a chain of functions"]()).layers
    assert layer.rows.kind == "table"
    assert layers_of(CASES["a function of its own operand"]()).layers[0].x.name.startswith("input")


def exact(rows, scale, zero):
    """The result before it is rounded, in float64."""
    x = rows.x.values.astype(np.float64) * float(rows.x.scale)
    if rows.normal is None:
        y = np.exp(x - x.max(axis=-1, keepdims=True))
        y /= y.sum(axis=-1, keepdims=True)
    else:
        gamma, beta, epsilon = rows.normal
        y = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) * gamma + beta
    return y / scale + zero


@pytest.mark.parametrize("width", [3, 64, 768])
@pytest.mark.parametrize("spread", [2, 30, 127])
@pytest.mark.parametrize("scale", [1 / 256, 1 / 2550])
def test_softmax_is_off_by_a_bit_of_its_quotient_at_most(width, spread, scale):
    random = np.random.default_rng(width + spread)
    x = np.clip(np.rint(random.normal(0, spread, (40, width))), -128, 127).astype(np.int64)
    rows = Rows(Number(x, np.float32(0.07)))
    off = np.abs(rows.quantized(scale, -128) - exact(rows, scale, -128))
    assert off.max() < 0.5 + 2**-16 / scale


@pytest.mark.parametrize("width", [9, 64, 768])
@pytest.mark.parametrize("spread", [1, 30, 127])
@pytest.mark.parametrize("scale", [4 / 127, 1 / 127])
def test_normalization_is_off_by_a_bit_of_its_fraction_at_most(width, spread, scale):
    random = np.random.default_rng(width + spread)
    x = np.clip(np.rint(random.normal(20, spread, (40, width))), -128, 127).astype(np.int64)
    normal = random.normal(1, 0.3, width), random.normal(0, 0.3, width), 1e-5
    rows = Rows(Number(x, np.float32(0.03)), normal)
    off = np.abs(rows.quantized(scale, 3) - exact(rows, scale, 3))
    assert off.max() < 0.5 + 2**-12 * np.abs(normal[0]).max() / scale


def test_factors_use_the_bits_that_they_have():
    work = softmax_work(0.1, 1 / 256, -128)
    # 2^-16 * 256 * 2^24 is 2^16, and -128 * 2^24 + 2^23 fits 32 bits; at 2^25 it does not.
    assert (work.factors[0], work.last_shift) == (1 << 16, 24)
    assert work.offsets[0] == -(128 << 24) + (1 << 23)
    normal = normalization_work((0.5, 0.03125), 0, np.float32([1, -2]), np.float32([0, 1]), 1e-5)
    # 2 / 0.03125 * 2^-12 is 2^-6; its factor has 17 bits at most, so the shift is 22.
    assert (list(normal.factors), normal.last_shift) == ([1 << 15, -(1 << 16)], 22)
    assert list(normal.offsets) == [1 << 21, (32 << 22) + (1 << 21)]


REFUSED = {
    "two tensors": (
        lambda: network((1, 5, 9), "a = MatMul(input, w) output = Div(a, input)", w=numbers(9, 9)),
        "is a function of 2 tensors; those of one are computed",
    ),
    "other axes": (lambda: network((1, 5, 9), "output = Softmax <axis = 1> (input)"), "works on other than the chann"),
    "many channels": (
        lambda: network((1, 2, 1032), "output = Softmax <axis = -1> (input)"),
        "works on 1032 channels, and at most 1024 are computed",
    ),
    "other transposes": (
        lambda: network((1, 5, 9), "a = Sigmoid(input) t = Transpose <perm = [1, 0, 2]> (a) output = Sigmoid(t)"),
        "transposes other than heads",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_computed_is_named(case):
    build, message = REFUSED[case]
    with pytest.raises(PipelineError, match=message):
        layers_of(build())


@pytest.mark.parametrize(
    ("model", "design", "message"),
    [
        (attention, EngineDesign(4, 8, 2), "multiplies two tensors; give an engine with simd 1"),
        (attention, EngineDesign(4, 8, pack_cols=2), "tensors with zero points; give an engine with pack_cols 1"),
        (
            CASES["softmax"],
            EngineDesign(4, 8, has_row_work=False),
            "is row-wise work; give an engine with has_row_work",
        ),
        (lambda: attention(8, 24), SMALL, "a head of 12 channels is not a whole number of folds of 8"),
    ],
)
def test_an_engine_that_does_not_compute_it_is_named(model, design, message):
    with pytest.raises(PipelineError, match=message):
        best_tilings(layers_of(model()), design, QUIET)


def test_heads_and_rows_are_arranged_as_in_memory():
    values = np.arange(2 * 3 * 4).reshape(1, 2, 3, 4)  # two heads, three lines, four channels of a head
    tensor = layers_of(attention(3, 8)).layers[-1].y.whole
    stored = tensor.arranged(values)
    for head in range(2):
        for line in range(3):
            assert list(stored[4 * head : 4 * head + 4, line, 0]) == list(values[0, head, line])
