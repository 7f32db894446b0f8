"""The cycles of an array's C++: its pipelined loops are counted again while the compiled text runs."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.plans.hand_off_loops import COLUMNS, compared
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.designs import cpp
from common.fpga.hand_off.specification import AVERAGED, CAUSES, FILLING, longest, loops
from common.fpga.hand_off.trips import ArrayTrips, Phase
from common.fpga.kernels.systolic.array import MappedProduct, build_array
from common.fpga.kernels.systolic.tiling import Tile
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import Task
from tests.support.kernels.hls import BITS, SUM, Memory, Program, Step, View, as_bytes, compiled, counting, port_names
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def array(precision="int8", size=(4, 6, 2), tile=Tile(8, 12, 10), board_name="u280"):  # noqa: B008 - frozen
    board, models = load_board(board_name, CONFIGS / "boards"), load_models(CONFIGS)
    return build_array(size, precision, array_ports(board), board.macs_per_dsp[precision], models.systolic, tile)


def run_and_count(engine, folder, name, call, *, beside=0):
    """Call the C++ of an engine, and return the cycles of each of its loops."""
    text, loops = counting(cpp(engine, "K", port_names_of(engine)))
    function = compiled(text, folder, name)
    library = ctypes.CDLL(str(folder / f"{name}.so"))
    library.counted.restype = ctypes.POINTER(ctypes.c_longlong)
    layer, bits = call.layer, BITS[engine.precision]
    x = np.zeros(layer.batch * layer.in_height * layer.in_width * layer.in_channels)
    w = np.zeros(call.depth * layer.out_channels)
    result = bytes((call.pixels * layer.out_channels * bits + 7) // 8)
    memory = Memory(int(engine.ports.count), engine.ports.port_bits // 8)
    bases = [memory.add(content) for content in (as_bytes(x, bits), as_bytes(w, bits), bytes(8 * layer.out_channels))]
    strides = (0, *call.result_pitches)
    operands = tuple(View(memory.add(result), strides) for _ in range(beside))
    after = tuple(Step(SUM, number, n=1) for number in range(beside))
    program = Program(
        settings=call.settings(tuple(bases)), after=after, result=View(memory.add(result), strides), operands=operands
    )
    memory.run(function, ctypes.c_int64(memory.add(program.content())))
    counts = library.counted()
    found = {}
    for place, label in enumerate(loops):
        found[label] = found.get(label, 0) + counts[place]
    return found


def port_names_of(engine):
    return [type(each)(each.name, engine.ports.port_bits, "") for each in port_names(engine.ports.count)]


LAYERS = {
    "product": Matmul(37, 67, 11),
    "batch": Matmul(13, 21, 9, 3),
    "window": Convolution(2, 3, 9, 7, 13, 9, 7, 3, 3),
    "strided": Convolution(1, 40, 9, 11, 17, 5, 6, 3, 3, 2, 2),
    "grouped": Convolution(1, 6, 9, 7, 10, 9, 7, 3, 3, groups=2),
    "depthwise": Convolution(1, 3, 9, 31, 3, 9, 31, 3, 3, groups=3),
    "dilated": Convolution(1, 5, 9, 9, 7, 9, 9, 3, 3, dilation_height=2, dilation_width=2),
}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("is_transposed", "beside"), [(False, 0), (True, 0), (False, 1), (True, 2)])
@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("name", LAYERS)
def test_trips_are_those_of_the_running_loops(tmp_path, name, precision, is_transposed, beside):
    check_trips(tmp_path, array(precision), LAYERS[name], is_transposed, beside)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", ["window", "strided", "dilated", "wide"])
def test_trips_of_ports_that_are_narrower_than_the_banks(tmp_path, name, is_transposed):
    """A KV260's two words of 16 bytes: a piece has three beats, of one run or of several."""
    layers = LAYERS | {"wide": Convolution(1, 21, 9, 11, 17, 9, 11, 3, 3)}
    engine = array(size=(8, 6, 16), tile=Tile(16, 12, 96), board_name="kv260")
    assert engine.ports.bytes_per_cycle // engine.simd < min(engine.rows, engine.cols)
    check_trips(tmp_path, engine, layers[name], is_transposed, 1)


def check_trips(folder, engine, layer, is_transposed, beside):
    whole = layer.as_matmul() if isinstance(layer, Convolution) else layer
    turned = Matmul(whole.n, whole.k, whole.m, whole.batch) if is_transposed else whole
    product = MappedProduct(turned, is_transposed, "columns" if is_transposed else "rows", 1.0, 1.0, 1.0)
    call = ArrayCall.of(layer, product)
    found = run_and_count(engine, folder, "K", call, beside=beside)
    trips = ArrayTrips(engine, call, beside)
    assert trips.trips == found["cycle"]
    reading = ("piece", "packed", "constant", "beside")
    assert sum(phase.read for phase in trips.phases) == sum(found[loop] for loop in reading)
    assert sum(phase.words for phase in trips.phases) == found["words"]
    assert sum(phase.written for phase in trips.phases) == found["result"]
    assert len(trips.phases) >= 5


@pytest.mark.parametrize(("m", "k", "n"), [(3136, 576, 64), (784, 1152, 128), (512, 1024, 1024), (196, 2304, 256)])
def test_layers_that_keep_an_array_busy_take_the_planned_cycles(m, k, n):
    """Products of networks on a catalogue's array: the loops take the plan's cycles within a tenth."""
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    engine = build_array((32, 32, 8), "int8", array_ports(board), 2.0, models.systolic)
    layer = Matmul(m, k, n)
    product = engine._single(layer, task_of(layer))
    assert ArrayTrips(engine, ArrayCall.of(layer, product)).cycles == pytest.approx(product.cycles, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_the_loops_of_whole_networks_take_the_planned_cycles(name):
    row = dict(zip(COLUMNS, compared(name, "u280"), strict=True))
    assert int(row["products"]) > 20
    assert float(row["ratio"]) == pytest.approx(1, abs=0.1)


# --- why a product takes other cycles than the plan counts ------------------------------------------------------------


@pytest.mark.parametrize(("factor", "cause"), [(0.8, CAUSES["ports"]), (1.3, AVERAGED)])
def test_a_product_that_is_apart_from_the_plan_has_one_line_with_its_cause(factor, cause):
    """A layer of ResNets on the largest array of the catalogue for a U280, planned with other cycles."""
    engine, layer = array("int8", (12, 64, 16), Tile(288, 256, 160)), Convolution(1, 512, 7, 7, 512, 7, 7, 3, 3)
    task = task_of(layer)
    (product,) = engine.products(task)
    found = loops(engine, layer, replace(product, cycles=factor * product.cycles), task)
    assert abs(found["loop_cycles"] / found["planned_cycles"] - 1) > 0.1
    assert found["loop_cause"].startswith(f"{cause} (cycles over ")
    assert "\n" not in found["loop_cause"]
    trips = ArrayTrips(engine, ArrayCall.of(layer, product))
    steps = sum(phase.steps for phase in trips.phases)
    assert f"steps {steps:,}, " in found["loop_cause"]


def test_a_small_product_has_no_fill_in_its_loops():
    engine, layer = array("int8", (12, 64, 16), Tile(288, 256, 160)), Matmul(30, 96, 50)
    task = task_of(layer)
    (product,) = engine.products(task)
    found = loops(engine, layer, product, task)
    assert found["loop_cause"].startswith(f"{FILLING} (cycles over ")
    assert found["loop_cycles"] == pytest.approx(found["planned_cycles"] - engine.once_cycles, rel=0.1)


@pytest.mark.parametrize(
    ("phases", "cause"),
    [
        ([(10, 4, 5, 6.0), (10, 4, 25, 20.0), (10, 22, 5, 6.0)], "pieces"),
        ([(10, 4, 5, 6.0), (10, 4, 25, 26.5), (10, 22, 5, 6.0)], "ports"),
        ([(10, 4, 5, 6.0), (10, 4, 15, 12.0), (10, 22, 5, 6.0)], "results"),
        ([(10, 4, 15, 6.0), (0, 4, 15, 20.0), (0, 12, 5, 6.0)], ""),
    ],
)
def test_the_cause_takes_the_most_cycles_beyond_the_steps_of_its_phases(phases, cause):
    made = [Phase(steps, results, pieces, 0, 0, 0, 0.0, ports) for steps, results, pieces, ports in phases]
    assert longest(made) == cause


def test_a_product_near_the_plan_has_none():
    engine, layer = array("int8", (12, 64, 16), Tile(288, 256, 160)), Convolution(1, 128, 28, 28, 128, 28, 28, 3, 3)
    task = task_of(layer)
    (product,) = engine.products(task)
    found = loops(engine, layer, product, task)
    assert found["loop_cycles"] == pytest.approx(found["planned_cycles"], rel=0.1)
    assert "loop_cause" not in found


def task_of(layer):
    product = layer.as_matmul() if isinstance(layer, Convolution) else layer
    whole = isinstance(layer, Convolution)
    read = layer.batch * layer.in_channels * layer.in_height * layer.in_width if whole else layer.m * layer.k
    return Task("t", "gemm", (layer,), "int8", product.k * product.n, read, product.m * product.n)
