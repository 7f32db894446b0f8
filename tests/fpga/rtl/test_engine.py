"""The whole engine: layers on its Verilog against integers by numpy, planned against simulated cycles."""

from __future__ import annotations

import subprocess
from dataclasses import astuple, replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from benchmarks.plans import engine_networks, integer_reference
from benchmarks.plans.engine_of_plan import planned_engine, simulated_cycles
from benchmarks.plans.integer_reference import outputs
from common.fpga.device.board_files import load_board
from common.fpga.kernels.systolic.tiling import Buffer
from common.fpga.rtl import programs
from common.fpga.rtl.engine import simulate
from common.fpga.rtl.engine.cycles import (
    DescriptorQueues,
    best_tilings,
    network_cycles,
    planned_cycles,
    word_cycles,
)
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.engine.memory_timing import MemoryTiming, OpenRows
from common.fpga.rtl.engine.places import INPUT, Transfer
from common.fpga.rtl.engine.program import laid_out, mantissa_and_shift, program_of, residual_factors
from common.fpga.rtl.engine.reading.layers import OPERATORS, layers_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.simulate import EngineSimulator
from common.fpga.rtl.engine.tiling import tilings
from common.messages.errors import ConfigurationError, PipelineError
from models.classifiers.resnet8 import build_tiny_resnet8
from models.graph_builder import IR_VERSION
from tests.support.engine.maps import CASES, Net, added, one, one_pool, pooled, product, sum_of

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")

# Small buffers: layers have several tiles, sums have several parts. Rows are odd, a word has two steps.
SMALL = EngineDesign(3, 4, 2, 4, 512, 16, 256, 8, 64, 128, 8)
QUIET = MemoryTiming(0, 1, 0, 0, 0, 4, 1024)
STALLS = MemoryTiming(17, 1.5, 6, 200, 23, 4, 128)


def product_of_a_map():
    net = Net(3, 4, 6)
    return net.model(net.quantized(net.node("MatMul", [net.top, net.weights((6, 5), 0.01)]), 0.2, 0))


def with_constant_nodes(model):
    """The same model with its initializers as nodes."""
    nodes = [helper.make_node("Constant", [], [each.name], value=each) for each in model.graph.initializer]
    del model.graph.initializer[:]
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return onnx.shape_inference.infer_shapes(model)


@pytest.fixture(scope="module")
def simulator():
    with EngineSimulator(SMALL) as built:
        yield built


def image(network, seed=5):
    tensor = network.inputs[0]
    shape = (1, tensor.channels, tensor.height, tensor.width)
    return np.random.default_rng(seed).uniform(-8, 8, shape).astype(np.float32)


def signed(tensor, values):
    shaped = np.asarray(values).astype(np.int64) - (128 if tensor.is_unsigned else 0)
    return shaped.reshape(tensor.channels, tensor.height, tensor.width)


def run(simulator, model, timing, choose=best_tilings):
    network = layers_of(model)
    network = on_whole_folds(network, simulator.design.cols)
    divided = choose(network, simulator.design, timing)
    program = program_of(network, divided, simulator.design)
    x = image(network)
    expected = outputs(model, {"input": x})
    inputs = {each.name: signed(each, expected[each.name]).astype(np.int8) for each in network.inputs}
    return network, divided, expected, simulator.run(program, inputs, timing, 5_000_000)


def most_tiles(network, design, timing):
    """The division of each layer that has the most tiles, and so the most borders between them."""
    return [max(tilings(layer, design), key=lambda tiling: len(tiling.tiles)) for layer in network.layers]


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("choose", [best_tilings, most_tiles])
@pytest.mark.parametrize("timing", [QUIET, STALLS])
@pytest.mark.parametrize("case", CASES)
def test_a_layer_has_the_integers_of_numpy(simulator, case, timing, choose):
    network, _, expected, done = run(simulator, CASES[case](), timing, choose)
    assert network.outputs[0].name in expected
    for y in {layer.y.whole.name: layer.y.whole for layer in network.layers if layer.y.whole.name in expected}.values():
        np.testing.assert_array_equal(done.tensors[y.name], signed(y, expected[y.name]), y.name)
        assert len(np.unique(done.tensors[y.name])) > 4, "the result says little"


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("design", [replace(SMALL, pack_cols=2), EngineDesign(4, 4, 4, 4)], ids=["packed", "words"])
def test_other_engines_have_the_integers_of_numpy(design):
    """Two products on a multiplier, whose sums leave together; steps of whole words."""
    with EngineSimulator(design) as built:
        for case in ("several words, a stride", "parts of sums", "addition"):
            network, _, expected, done = run(built, CASES[case](), QUIET)
            for layer in network.layers:
                np.testing.assert_array_equal(done.tensors[layer.y.name], signed(layer.y, expected[layer.y.name]), case)


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("timing", [QUIET, STALLS])
def test_planned_cycles_are_those_of_the_verilog(simulator, timing):
    """Layers of some thousand cycles; the memory that stalls opens a row for each 32 words."""
    for model in (one(16, 12, 12, 16, 3, pad=1), one(24, 10, 10, 24, 3, pad=1, groups=24), one(32, 12, 12, 12, 1)):
        _, divided, _, done = run(simulator, model, timing)
        (tiling,), (spent,) = divided, done.calls
        planned = planned_cycles(tiling, timing)
        assert planned.total == pytest.approx(spent.cycles, rel=0.1), tiling.layer
        assert planned.computing == spent.by_cause["computing"]
        assert sum(spent.by_cause.values()) == spent.cycles


@needs_verilator
@pytest.mark.slow
def test_calls_that_are_shorter_than_their_descriptors_wait_for_the_host(simulator):
    """64 calls for a pixel or four: the host gives one in 36 cycles, and 28 wait in the queue."""
    pool = Net(256, 1, 2)
    pooled = pool.model(pool.quantized(pool.node("GlobalAveragePool", [pool.top]), 0.03, 3))
    for model in (pooled, one(256, 2, 2, 256, 1, groups=256)):
        network, divided, _, done = run(simulator, model, QUIET)
        (planned,), (spent,) = network_cycles(network, divided, QUIET), done.calls
        assert spent.cycles > 64 * 36
        assert planned.total == pytest.approx(spent.cycles, rel=0.05)


def test_the_host_waits_for_room_in_a_queue_by_hand():
    """A word takes two cycles. A queue holds 512 words and the next descriptor: 29 calls of 18 words, and 8 words."""
    queues = DescriptorQueues(now=0.0)
    queues.add(["load", *["compute"] * 30, "load"])
    assert queues.when("load") == 6 * 2
    queues.take("load", 12.0)
    assert queues.when("load") == float("inf"), "it is behind the thirtieth call, for which there is no room"
    assert queues.when("compute") == 12 + 36
    queues.take("compute", 5000.0)
    assert queues.when("load") == 5000 + (18 - 8) * 2 + 12
    quick = DescriptorQueues(now=0.0)
    quick.add(["compute"] * 30)
    assert quick.when("compute") == 36
    quick.take("compute", 36.0)
    for place in range(2, 31):
        assert quick.when("compute") == 36 * place, "there was room in time"
        quick.take("compute", 36.0 * place)
    assert quick.later(1000.0).now == 36 * 30 - 1000


@needs_verilator
@pytest.mark.slow
def test_a_slower_memory_is_seen_in_its_cause(simulator):
    model = one(32, 12, 12, 12, 1)
    _, _, _, quick = run(simulator, model, QUIET)
    _, _, _, slow = run(simulator, model, replace(QUIET, word_cycles=4))
    assert slow.calls[0].by_cause["load"] > 2 * quick.calls[0].by_cause["load"]
    assert slow.calls[0].by_cause["computing"] == quick.calls[0].by_cause["computing"]
    assert quick.row_miss_cycles == quick.refresh_cycles == 0
    _, _, _, stalled = run(simulator, model, STALLS)
    assert stalled.row_miss_cycles > 0 < stalled.refresh_cycles


@needs_verilator
@pytest.mark.slow
def test_each_stall_of_memory_is_seen_alone(simulator):
    """A layer of one tile, which loads weights, constants and its input one after the other, and stores its result."""
    model = one(8, 4, 6, 8, 1)

    def cycles(choose=fewest_tiles, **changed):
        _, (tiling,), _, done = run(simulator, model, replace(QUIET, **changed), choose)
        assert (len(tiling.tiles) == 1) == (choose is fewest_tiles)
        return done.calls[0].cycles, done.row_miss_cycles, done.refresh_cycles

    quiet = cycles()
    # Eight bursts of eight words are under way at a time, so the latency of a word counts once.
    late = cycles(latency_cycles=30)
    assert 25 <= late[0] - quiet[0] <= 35
    assert quiet[1:] == late[1:] == (0, 0)
    assert cycles(word_cycles=3)[0] > quiet[0] + 100
    # Where loads and stores alternate, each closes the other one's row in a single bank; 64 banks keep all rows open.
    one_bank, banks = (cycles(most_tiles, row_miss_cycles=20, bank_count=count, row_bytes=4096) for count in (1, 64))
    assert one_bank[1] > banks[1] > 0
    assert one_bank[0] > banks[0] > quiet[0]
    refreshed = cycles(refresh_interval_cycles=50, refresh_cycles=10)
    assert refreshed[0] > quiet[0]
    assert refreshed[2] > 0 == refreshed[1]


def fewest_tiles(network, design, timing):
    return [min(tilings(layer, design), key=lambda tiling: len(tiling.tiles)) for layer in network.layers]


@needs_verilator
@pytest.mark.slow
def test_what_is_never_over_is_one_line(simulator):
    model = one(4, 5, 5, 8, 1)
    network = layers_of(model)
    program = program_of(network, best_tilings(network, SMALL, QUIET), SMALL)
    inputs = {network.inputs[0].name: np.zeros((4, 5, 5), np.int8)}
    with pytest.raises(PipelineError, match="not over after 600 cycles"):
        simulator.run(program, inputs, QUIET, 600)


def test_another_failure_is_not_a_simulation_that_is_never_over(monkeypatch):
    """The simulation as a program that is killed: no word of cycles."""

    def failing(command, folder):
        if command[0].endswith("Vengine"):
            raise PipelineError("Vengine", "exit code -11: no message")

    monkeypatch.setattr(simulate, "call", failing)
    model = one(4, 5, 5, 8, 1)
    network = layers_of(model)
    program = program_of(network, best_tilings(network, SMALL, QUIET), SMALL)
    inputs = {network.inputs[0].name: np.zeros((4, 5, 5), np.int8)}
    with (
        EngineSimulator(SMALL) as simulator,
        pytest.raises(PipelineError, match=r"^Vengine: exit code -11: no message$"),
    ):
        simulator.run(program, inputs, QUIET, 600)


SIZES = [
    EngineDesign(8, 8),
    EngineDesign(4, 16, 2),
    EngineDesign(12, 8, 4, 4, pack_cols=2),
    EngineDesign(5, 16, 1, 16),
    EngineDesign(8, 8, 8),
    EngineDesign(8, 8, burst_words=16, has_row_work=False),
]


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("design", SIZES, ids=lambda design: f"{design.name}-{design.word_bytes}-{design.burst_words}")
def test_the_linter_has_nothing_to_say(design, tmp_path):
    (tmp_path / "engine.v").write_text(design.verilog(), encoding="utf-8")
    command = ["verilator", "--lint-only", "-Wall", "--top-module", design.name, "engine.v"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_factor_is_exact():
    for value in (np.float32(0.00123), np.float32(1), np.float32(3.7), np.float32(2.0**-39), np.float32(1.9999999)):
        number, shift = mantissa_and_shift(float(value))
        assert Fraction(number, 2**shift) == Fraction(float(value))
        assert 1 << 23 <= number < 1 << 24
    assert mantissa_and_shift(0.0)[0] == mantissa_and_shift(2.0**-50)[0] == 0
    with pytest.raises(PipelineError, match="is no factor of a requantization"):
        mantissa_and_shift(2.0**23)


def test_factors_of_a_residual_are_within_half_of_their_last_bit():
    layer = layers_of(added()).layers[-1]
    own, other, shift = residual_factors(layer.residual, layer.y)
    assert 1 << 24 <= max(own, other) < 1 << 25
    for factor, scale in ((own, layer.residual.own_scale), (other, layer.residual.other.scale)):
        assert abs(factor / 2**shift - float(scale) / float(layer.y.scale)) <= 2.0 ** -(shift + 1)


def test_a_map_is_in_memory_pixel_by_pixel():
    values = np.arange(5 * 2 * 3, dtype=np.int8).reshape(5, 2, 3)
    words = laid_out(values, SMALL).reshape(2, 3, 8)  # five channels are two folds of four
    for line in range(2):
        for column in range(3):
            assert list(words[line, column]) == [*values[:, line, column], 0, 0, 0]


def test_layers_of_resnet8_are_its_contractions_and_its_pool():
    model = build_tiny_resnet8(batch=1)
    network = layers_of(model)
    kinds = ("Conv", "Gemm", "GlobalAveragePool")
    assert {layer.node for layer in network.layers} == {n.name for n in model.graph.node if n.op_type in kinds}
    assert sum(layer.residual is not None for layer in network.layers) == 3
    assert sum(layer.macs for layer in network.layers) == 12_501_632 + 64 * 64  # the pool adds 64 pixels of 64 channels
    known = {tensor.name for tensor in network.inputs}
    for layer in network.layers:  # each reads what is there
        assert layer.x.name in known
        assert layer.residual is None or layer.residual.other.name in known
        known.add(layer.y.name)


@pytest.mark.parametrize("case", ["a scale per tensor", "a product with a scale per tensor"])
def test_one_scale_of_the_weights_is_that_of_each_channel(case):
    model = CASES[case]()
    network = layers_of(model)
    (layer,) = network.layers
    assert layer.factors.shape == (layer.y.channels,)
    assert len(set(layer.factors)) == 1
    program_of(network, best_tilings(network, SMALL, QUIET), SMALL)


def same(one, other):
    """Whether two values are equal, arrays of them included."""
    np.testing.assert_equal(*(astuple(value) for value in (one, other)))


def test_constants_may_be_nodes():
    for build in (added, pooled):
        same(layers_of(with_constant_nodes(build())), layers_of(build()))


def test_a_constant_may_be_a_number():
    model = CASES["limits"]()
    clip = next(node for node in model.graph.node if node.op_type == "Clip")
    clip.input[2] = "limit"
    model.graph.node.insert(0, helper.make_node("Constant", [], ["limit"], value_float=2.0))
    network = layers_of(model)
    same(network, layers_of(CASES["limits"]()))
    of_both = [outputs(each, {"input": image(network)}) for each in (model, CASES["limits"]())]
    np.testing.assert_array_equal(*(each[network.layers[-1].y.name] for each in of_both))


def test_the_reference_has_the_operators_of_the_engine():
    assert set(integer_reference.OPERATORS) == set(OPERATORS)


def with_inputs(count):
    net = Net(8, 7, 5)
    model = net.model(net.convolution(net.top, 12, 1))
    more = [helper.make_tensor_value_info(f"more{place}", TensorProto.FLOAT, [1]) for place in range(count - 1)]
    model.graph.input.extend(more)
    return model


def without_an_input():
    value = numpy_helper.from_array(np.ones((1, 2), np.float32), "one")
    node = helper.make_node("Relu", ["one"], ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph([node], "net", [], [result], [value])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=IR_VERSION)


def without_a_layer():
    net = Net(8, 7, 5)
    return net.model(net.top)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: with_inputs(2), "net.onnx: has 2 inputs; give a network of one input"),
        (without_an_input, "net.onnx: has 0 inputs; give a network of one input"),
        (without_a_layer, "net.onnx: has no layer for the engine"),
        (product_of_a_map, "MatMul n9: multiplies other than rows or a vector of channels by a matrix"),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(build, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine_networks, "is_there", lambda _: True)
    onnx.save(build(), tmp_path / "net.onnx")
    assert engine_networks.main(["--model", str(tmp_path / "net.onnx")]) == 1
    assert capsys.readouterr().err == f"engine_networks: error: {message}\n"


def test_initializers_among_the_inputs_are_no_inputs():
    model = with_inputs(1)
    model.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in model.graph.initializer
    )
    same(engine_networks.network_in("net", model), layers_of(with_inputs(1)))


def test_a_constant_of_texts_is_named():
    model = one(3, 5, 6, 4, 3)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["words"], "n0", value_strings=["a"]))
    with pytest.raises(PipelineError, match=r"Constant n0: a constant that is no tensor and no number: value_strings"):
        layers_of(model)


def test_scales_of_weights_must_be_those_of_the_output_channels():
    model = product()
    (dequantize,) = (n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.attribute)  # has an axis
    (scale,) = (each for each in model.graph.initializer if each.name == dequantize.input[1])
    scale.CopyFrom(numpy_helper.from_array(np.full(3, 0.01, np.float32), scale.name))
    with pytest.raises(PipelineError, match=r"Gemm n.*: its weights have neither one scale nor one for each output"):
        layers_of(model)


def test_tiles_compute_each_sum_once():
    for layer in layers_of(build_tiny_resnet8(batch=1)).layers:
        for tiling in tilings(layer, EngineDesign(8, 8, window_depth=64)):
            seen = np.zeros((layer.y.height, -(-layer.y.channels // 8), -(-layer.x.channels // 8)), int)
            for tile in tiling.tiles:
                for piece in tile.pieces:
                    words = slice(piece.first_word, piece.first_word + piece.words)
                    folds = slice(piece.first_fold, piece.first_fold + piece.folds)
                    seen[tile.first_line : tile.first_line + tile.lines, folds, words] += 1
            expected = np.eye(seen.shape[1], dtype=int) if layer.groups > 1 else 1
            assert np.array_equal(seen, np.broadcast_to(expected, seen.shape)), (layer.node, tiling.tiles[0])


def test_a_map_of_many_lines_is_divided_into_single_lines():
    """320 lines of 100 words; half of the input's buffer has 128 words, and so room for one line."""
    layer = layers_of(one(8, 320, 100, 8, 1)).layers[0]
    found = tilings(layer, EngineDesign(8, 8, input_depth=256))
    assert {len(tiling.tiles) for tiling in found} == {320}


def test_words_of_a_transfer_by_hand():
    # 100 words in bursts of 8, at 1.5 cycles each; the requests of 25 words that lie apart take two cycles each.
    assert word_cycles(Transfer(INPUT, 0, 1, 100), SMALL, STALLS) == 150
    assert word_cycles(Transfer(INPUT, 0, 25, 1, 64), SMALL, QUIET) == 50


def test_rows_that_are_open_by_hand():
    rows = OpenRows(STALLS)  # four banks, rows of 128 bytes
    assert rows.misses(0, 400, 1, 0) == 4
    assert rows.misses(384, 128, 1, 0) == 0
    assert rows.misses(512, 1, 1, 0) == 1  # row 4 is in the bank of row 0
    assert rows.misses(0, 1, 1, 0) == 1
    assert rows.misses(128, 8, 3, 256) == 1  # of rows 1, 3 and 5, the last one is not open
    rows.close()
    assert rows.misses(384, 1, 1, 0) == 1


@needs_verilator
@pytest.mark.slow
def test_rows_that_the_memory_opens_are_those_of_the_plan(simulator):
    """A layer of one tile: its transfers follow one after the other, and no refresh closes a row."""
    timing = replace(QUIET, row_miss_cycles=10, row_bytes=64)
    _, (tiling,), _, done = run(simulator, one(8, 4, 6, 8, 1), timing, fewest_tiles)
    idle = replace(timing, row_miss_cycles=0)
    planned = planned_cycles(tiling, timing).total - planned_cycles(tiling, idle).total
    assert planned == done.row_miss_cycles > 0


def after_pool(kind, *limits):
    """A maximum pool, and what limits its result."""
    net = Net(6, 9, 8)
    y = net.node("MaxPool", [net.top], kernel_shape=[3, 3])
    return net.model(
        net.quantized(net.node(kind, [y, *(net.constant(np.float32(each)) for each in limits)]), 0.0625, 3)
    )


def part_of_a_map(kind, *given):
    net = Net(6, 9, 8)
    y = net.node(kind, [net.top, *(net.constant(np.array(each, np.int64)) for each in given)])
    return net.model(net.quantized(y, 0.0625, 3))


def joined_along(axis):
    net = Net(6, 9, 8)
    return net.model(net.quantized(net.node("Concat", [net.top, net.top], axis=axis), 0.0625, 3))


def scaled_by(shape):
    net = Net(6, 9, 5)
    return net.model(net.quantized(net.node("Mul", [net.top, net.weights(shape, 0.01)]), 0.0625, 3))


def with_a_vector(net):
    """A vector of five channels, which ONNX adds to the five columns of a map."""
    wide = net.convolution(net.top, 8, 1)
    net.shape = (8, 7, 5)
    narrow = net.quantized(net.node("GlobalAveragePool", [net.convolution(net.top, 5, 1)]), 0.02, 0)
    return [wide, net.node("Flatten", [narrow])]


def with_an_output():
    """An addition whose later operand is an output of the network too."""
    model = added()
    own = next(node for node in model.graph.node if node.op_type == "Add").input[0]
    model.graph.output.append(helper.make_tensor_value_info(own, TensorProto.FLOAT, None))
    return model


CASES["a sum of an output"] = with_an_output


def with_another_scale_of_the_bias():
    model = one(3, 5, 6, 4, 3)
    bias = next(node for node in model.graph.node if node.op_type == "Conv").input[2]
    maker = next(node for node in model.graph.node if bias in node.output)
    scale = next(each for each in model.graph.initializer if each.name == maker.input[1])
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.01), scale.name))
    return model


def with_weights_of(dtype):
    model = one(3, 5, 6, 4, 3)
    name = next(node for node in model.graph.node if node.op_type == "Conv").input[1]
    maker = next(node for node in model.graph.node if name in node.output)
    for each in model.graph.initializer:
        if each.name in (maker.input[0], maker.input[2]):
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each).astype(dtype) * 3, each.name))
    return model


def with_another_scale_of_the_input():
    model = one(3, 5, 6, 4, 3)
    dequantize = next(node for node in model.graph.node if node.op_type == "DequantizeLinear")
    dequantize.input[1] = "twice"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.125), "twice"))
    return model


def flattened_at(axis):
    net = Net(10, 1, 1)
    y = net.node("Flatten", [net.top], axis=axis)
    return net.model(net.quantized(net.node("Gemm", [y, net.weights((1, 7), 0.01)]), 0.2, 0))


REFUSED = {
    "a pool and ReLU": (lambda: after_pool("Relu"), r"Relu n\d+: limits the maximum of a pool"),
    "a pool and Clip": (lambda: after_pool("Clip", 0, 2), r"Clip n\d+: limits the maximum of a pool"),
    "an average with automatic pads": (
        lambda: one_pool("AveragePool", auto_pad="SAME_UPPER"),
        r"AveragePool n\d+: the average of a window that is partly outside has another divisor",
    ),
    "an average whose extents are rounded up": (
        lambda: one_pool("AveragePool", strides=[2, 2], ceil_mode=1, count_include_pad=1, height=8),
        r"AveragePool n\d+: the average of a window that is partly outside has another divisor",
    ),
    "a window outside": (
        lambda: one(3, 5, 6, 4, 3, pad=3),
        r"Conv n\d+: has a window that is wholly outside of its map",
    ),
    "wide dilations": (lambda: one(3, 40, 41, 4, 3, apart=17), r"Conv n\d+: .* or dilations above 16"),
    "columns of a map": (
        lambda: part_of_a_map("Slice", [1], [4], [3]),
        r"Slice n\d+: takes other than some channels or lines one after the other",
    ),
    "every second channel": (
        lambda: part_of_a_map("Slice", [0], [6], [1], [2]),
        r"Slice n\d+: takes other than some channels or lines one after the other",
    ),
    "columns that are joined": (lambda: joined_along(3), r"Concat n\d+: joins other than channels or lines"),
    "a factor for each column": (
        lambda: scaled_by((1, 1, 1, 5)),
        r"Mul n\d+: its operand t\d+ is a constant of several values",
    ),
    "a vector that is added to columns": (
        lambda: sum_of(with_a_vector),
        r"Add n\d+: adds \[1, 5\] to \[1, 8, 7, 5\]",
    ),
    "another scale of the bias": (
        with_another_scale_of_the_bias,
        r"Conv n\d+: the scale of its bias is not scale\(x\) \* scale\(w\)",
    ),
    "another scale of the input": (
        with_another_scale_of_the_input,
        r"DequantizeLinear n\d+: has another scale or zero point than the tensor that it reads",
    ),
    "weights of int16": (
        lambda: with_weights_of(np.int16),
        r"DequantizeLinear n\d+: weights of int16, which are neither int8 nor uint8",
    ),
    "weights of int32": (lambda: with_weights_of(np.int32), r"Conv n\d+: its weights do not fit int8"),
    "a product of a map": (
        product_of_a_map,
        r"MatMul n\d+: multiplies other than rows or a vector of channels by a matrix",
    ),
    "a batch of channels": (lambda: flattened_at(2), r"Flatten n\d+: does more than flatten a map"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_computed_wrongly_is_refused(case):
    build, message = REFUSED[case]
    with pytest.raises(PipelineError, match=message):
        layers_of(build())


def test_limits_follow_one_another():
    """Clip to -2 ... -1 and then ReLU: zero everywhere."""
    net = Net(4, 5, 5)
    net.convolution(net.top, 8, 1)
    sums = next(node.output[0] for node in net.nodes if node.op_type == "Conv")
    low, high = (net.constant(np.float32(limit)) for limit in (-2, -1))
    y = net.node("Relu", [net.node("Clip", [sums, low, high])])
    layer = layers_of(net.model(net.quantized(y, 0.05, -5))).layers[-1]
    assert (layer.low, layer.high) == (-5, -5)


def without(model, kind):
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    node = next(node for node in changed.graph.node if node.op_type == kind)
    node.op_type = "Sin"
    return changed


@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_onnx_runtime_s_on_the_same_integers(case):
    model = CASES[case]()
    network = layers_of(model)
    feeds = {"input": image(network)}
    assert engine_networks._units_from_runtime(model, network, feeds, outputs(model, feeds)) <= 1


def test_what_is_not_quantized_is_named():
    model = pooled()
    for node in model.graph.node:
        if node.op_type == "MaxPool":
            node.input[0] = "input"
    with pytest.raises(PipelineError, match=r"MaxPool n.*: reads no quantized tensor"):
        layers_of(model)
    model = one(3, 5, 6, 4, 3)
    model.graph.node[0].input[1] = "input"
    with pytest.raises(PipelineError, match=r"QuantizeLinear n.*: its operand input is no constant"):
        layers_of(model)


def test_a_model_that_is_none_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine_networks, "is_there", lambda _: True)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    for name in ("bad.onnx", "missing.onnx", "empty.onnx"):
        assert engine_networks.main(["--model", str(tmp_path / name)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"engine_networks: error: {tmp_path / name}: no ONNX model")


def test_what_the_engine_does_not_compute_is_named():
    with pytest.raises(PipelineError, match=r"Sin n.*: the engine has no such operator"):
        layers_of(without(one(3, 5, 6, 4, 3, relu=True), "Relu"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cols": 12}, "cols is 12; give a power of two"),
        ({"rows": 1}, "rows is 1; give 2 to 128"),
        ({"word_bytes": 16}, "cols is no multiple of word_bytes"),
        ({"burst_words": 512}, "burst_words is 512"),
        ({"input_depth": 1000}, "the depth of a buffer is no power of two"),
    ],
)
def test_there_is_no_such_engine(change, message):
    with pytest.raises(PipelineError, match=message):
        replace(EngineDesign(8, 8), **change)


def test_a_window_must_fit():
    layer = layers_of(one(4, 9, 9, 4, 5)).layers[0]
    with pytest.raises(PipelineError, match=r"a window of \(5, 5\) does not fit the operand buffer"):
        tilings(layer, SMALL)


def test_a_board_s_memory_in_cycles_by_hand():
    timing = load_fabric("ulx3s", engine_networks.FABRICS).timing(8, 100)
    # 16 bits at 143 MHz are 286 MB/s: 8 bytes take 27.97 ns, at 100 MHz 2.797 cycles. A refresh comes each 7812.5 ns.
    assert timing.word_cycles == pytest.approx(2.797, abs=1e-3)
    assert (timing.latency_cycles, timing.row_miss_cycles) == pytest.approx((9.0, 3.0))
    assert (timing.refresh_interval_cycles, timing.refresh_cycles) == pytest.approx((781.25, 6.0))
    assert load_fabric("ecpix5", engine_networks.FABRICS).timing(8, 75).word_cycles == 1.0  # 1.2 GB/s


@pytest.mark.parametrize("name", ["ulx3s", "ecpix5"])
def test_a_board_s_file_has_what_is_read_and_no_more(name, tmp_path):
    content = yaml.safe_load((engine_networks.FABRICS / f"{name}.yaml").read_text(encoding="utf-8"))
    content["resources"] = {"lut": {"value": 1, "source": "none", "trust": "assumed"}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="unknown key 'resources'"):
        load_fabric("more", tmp_path)


def test_networks_are_skipped_with_a_reason(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert engine_networks.main([]) == 0
    assert capsys.readouterr().err == "engine_networks: skipped: no verilator; make rtl-tools installs it\n"


@needs_verilator
@pytest.mark.exhaustive
def test_networks_are_right_on_the_engine(capsys):
    assert engine_networks.main(["--network", "resnet8", "mobilenet"]) == 0
    assert "NO" not in capsys.readouterr().out


@needs_verilator
@pytest.mark.slow
def test_a_tensor_that_differs_fails(simulator, monkeypatch, capsys):
    model = one(9, 8, 7, 13, 3, 2, 1)
    given = (simulator, "one", model, layers_of(model), STALLS, 0)
    monkeypatch.setattr(engine_networks, "MOST_OF_CALL", 1.0)
    monkeypatch.setattr(engine_networks, "MOST_OF_TOTAL", 1.0)
    assert engine_networks.simulated(*given).exit_code == 0
    right = engine_networks.outputs

    def wrong(model, feeds):
        tensors = right(model, feeds)
        name = layers_of(model).layers[-1].y.name
        return tensors | {name: tensors[name] ^ 1}

    monkeypatch.setattr(engine_networks, "outputs", wrong)
    assert engine_networks.simulated(*given).exit_code == 1
    assert " NO" in capsys.readouterr().out


def planned_array(size, port_bits=128, buffers=(("a", 8192), ("b", 4096), ("sums", 3000), ("results", 1000))):
    """What an engine reads of an array of a plan: contents of the buffers in bytes."""
    held = tuple(Buffer(name, 1, 8, content) for name, content in buffers)
    ports = SimpleNamespace(count=1, port_bits=port_bits)
    rows, cols, simd = size
    return SimpleNamespace(rows=rows, cols=cols, simd=simd, precision="int8", name="array", buffers=held, ports=ports)


def test_the_engine_of_a_plan_s_array_by_hand():
    """Ports of 16 bytes, of which a fold of eight channels takes eight; depths are powers of two that fit."""
    design = EngineDesign.of(planned_array((12, 8, 4)))
    assert (design.rows, design.cols, design.simd, design.word_bytes) == (12, 8, 4, 8)
    # 8192 / 8; 4096 / (8 * 4); 3000 / (8 * 4) is 93, and 1000 / 8 is 125.
    assert (design.input_depth, design.weight_depth) == (1024, 128)
    assert (design.partial_depth, design.result_depth) == (64, 64)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (planned_array((8, 8, 16)), "cols is no multiple of word_bytes, or word_bytes none of simd"),
        (planned_array((8, 12, 4)), "cols is 12; give a power of two"),
    ],
)
def test_an_array_that_no_engine_is_is_refused(array, message):
    with pytest.raises(PipelineError, match=message):
        EngineDesign.of(array)


def test_an_engine_is_for_int8():
    array = planned_array((8, 8, 4))
    array.precision = "int16"
    with pytest.raises(PipelineError, match="array: computes in int16; the engine is for int8"):
        EngineDesign.of(array)


def test_a_plan_chooses_among_arrays_that_the_engine_can_be():
    engine = planned_engine(build_tiny_resnet8(batch=1), load_board("kv260", engine_networks.CONFIGS / "boards"), 64)
    assert engine.design.rows * engine.design.cols * engine.design.simd <= 64
    network = layers_of(build_tiny_resnet8(batch=1))
    spent = {layer.node: place for place, layer in enumerate(network.layers)}
    found = simulated_cycles(engine, network, spent)
    assert sum(found) == sum(spent[node] for call in engine.calls for node in call.nodes)
    quick = engine.timing(MemoryTiming(5, 99, 1, 2, 3, 4, 512))
    assert (quick.word_cycles, quick.latency_cycles, quick.row_bytes) == (1.0, 5, 512)
    backwards = replace(engine, calls=engine.calls[::-1])
    with pytest.raises(PipelineError, match="the plan's calls are in another order"):
        simulated_cycles(backwards, network, spent)
