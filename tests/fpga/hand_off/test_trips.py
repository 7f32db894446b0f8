"""The cycles of an array's C++: its pipelined loops are counted again while the compiled text runs."""

from __future__ import annotations

import ctypes
import re
import shutil

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.designs import cpp
from common.fpga.hand_off.trips import ArrayTrips, TileTrips, overlapped_cycles
from common.fpga.kernels.systolic.array import MappedProduct, build_array
from common.fpga.kernels.systolic.tiling import Tile
from common.workload.layers import Convolution, Matmul
from tests.support.kernels.hls import BITS, SUM, Memory, Program, Step, View, as_bytes, compiled, port_names
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
# A pipelined loop: its label at the begin of a line, its head, and the pragma in the line below.
LABEL = re.compile(r"^ +(\w+:)$", re.MULTILINE)
LOOP = re.compile(
    r"^(?P<label>\w+):\n *(?:for|while) \(.*\) \{\n(?=#pragma HLS PIPELINE II=(?P<interval>\d+)\n)", re.MULTILINE
)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def array(precision="int8", size=(4, 6, 2), tile=Tile(8, 12, 10)):  # noqa: B008 - frozen
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    return build_array(size, precision, array_ports(board), board.macs_per_dsp[precision], models.systolic, tile)


def counting(text):
    """The text with a counter of cycles in each pipelined loop, and the labels of these loops."""
    plain = LABEL.sub(r"\1", text)
    labels = [found["label"] for found in LOOP.finditer(plain)]
    places = iter(range(len(labels)))
    counted = LOOP.sub(lambda found: f"{found[0]}        trips[{next(places)}] += {found['interval']};\n", plain)
    head = f'static long long trips[{len(labels)}];\nextern "C" long long *counted() {{ return trips; }}\n'
    return head + counted, labels


def padding(layer, side):
    out, size, kernel, stride, dilation = (
        getattr(layer, f"{name}_{side}") for name in ("out", "in", "kernel", "stride", "dilation")
    )
    return ((out - 1) * stride + (kernel - 1) * dilation + 1 - size) // 2


def run_and_count(engine, folder, name, layer, product, *, reads_beside=False):
    """Call the C++ of an engine for one layer, and return the cycles of each of its loops."""
    ports = int(engine.ports.count)
    text, loops = counting(cpp(engine, "K", port_names_of(engine)))
    function = compiled(text, folder, name)
    library = ctypes.CDLL(str(folder / f"{name}.so"))
    library.counted.restype = ctypes.POINTER(ctypes.c_longlong)
    groups = layer.groups
    per_group = layer.in_channels // groups
    bits = BITS[engine.precision]
    x = np.zeros(layer.batch * layer.in_height * layer.in_width * layer.in_channels)
    w = np.zeros(layer.out_channels * layer.kernel_height * layer.kernel_width * per_group)
    y = layer.batch * layer.out_height * layer.out_width * layer.out_channels
    memory = Memory(ports, engine.ports.port_bits // 8)
    contents = (as_bytes(x, bits), as_bytes(w, bits), bytes(8 * layer.out_channels), bytes(y * bits // 8 + 1))
    places = [memory.add(content) for content in contents]
    program = Program()
    if reads_beside:
        residual = View(memory.add(contents[3]), (0, 0, layer.out_channels, 1))
        program = Program(after=(Step(SUM, 0, n=1),), operands=(residual,))
    places.append(memory.add(program.content()))
    pads = [padding(layer, side) for side in ("height", "width")]
    integers = [
        *(groups, layer.out_channels // groups, layer.batch, layer.in_height, layer.in_width, per_group),
        *(layer.out_height, layer.out_width, layer.kernel_height, layer.kernel_width, layer.stride_height),
        *(layer.stride_width, layer.dilation_height, layer.dilation_width, *pads, 1, 1, 0, 0),
    ]
    limits = [ctypes.c_float(-8), ctypes.c_float(7)]
    orientation = [int(product.is_transposed), int(product.outer_loop == "columns")]
    scalars = [*map(ctypes.c_int64, places), *map(ctypes.c_int32, integers), *limits]
    memory.run(function, *scalars, *map(ctypes.c_int32, orientation))
    counts = library.counted()
    found = {}
    for place, label in enumerate(loops):
        found[label] = found.get(label, 0) + counts[place]
    return found


def port_names_of(engine):
    return [type(each)(each.name, engine.ports.port_bits, "") for each in port_names(engine.ports.count)]


LAYERS = {
    "product": Convolution(1, 67, 1, 11, 37, 1, 11),
    "window": Convolution(2, 3, 9, 7, 13, 9, 7, 3, 3),
    "strided": Convolution(1, 40, 9, 11, 17, 5, 6, 3, 3, 2, 2),
    "grouped": Convolution(1, 6, 9, 7, 10, 9, 7, 3, 3, groups=2),
    "dilated": Convolution(1, 5, 9, 9, 7, 9, 9, 3, 3, dilation_height=2, dilation_width=2),
}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("is_transposed", "reads_beside"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("name", LAYERS)
def test_trips_are_those_of_the_running_loops(tmp_path, name, precision, is_transposed, reads_beside):
    engine, layer = array(precision), LAYERS[name]
    whole = layer.as_matmul()
    turned = Matmul(whole.n, whole.k, whole.m, whole.batch) if is_transposed else whole
    product = MappedProduct(turned, is_transposed, "columns" if is_transposed else "rows", 1.0, 1.0, 1.0)
    found = run_and_count(
        engine, tmp_path, f"K{precision}{name.replace(' ', '')}", layer, product, reads_beside=reads_beside
    )
    counted = list(ArrayTrips(engine, layer, product, reads_beside).tiles())
    assert sum(tile.fetched for tile in counted) == found["piece"]
    assert sum(tile.computed for tile in counted) == found["step"]
    assert sum(tile.stored for tile in counted) == found["constant"] + found["result"]
    assert len(counted) > 3


def test_three_stages_overlap_as_two_halves_of_their_buffers_allow():
    alike = [TileTrips(5, 7, 3)] * 4
    assert overlapped_cycles(iter(alike)) == 5 + 4 * 7 + 3  # computation sets the pace
    assert overlapped_cycles(iter([TileTrips(9, 2, 1)] * 3)) == 3 * 9 + 2 + 1  # the ports do
    # Stores of the first two tiles hold the third computation back: both halves of the sums are full.
    assert overlapped_cycles(iter([TileTrips(1, 1, 10)] * 3)) == 2 + 3 * 10


@pytest.mark.parametrize(("m", "k", "n"), [(3136, 576, 64), (784, 1152, 128), (512, 1024, 1024), (196, 2304, 256)])
def test_layers_that_keep_an_array_busy_take_the_planned_cycles(m, k, n):
    """Products of networks on a catalogue's array: the loops take the plan's cycles within a tenth."""
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    engine = build_array((32, 32, 8), "int8", array_ports(board), 2.0, models.systolic)
    layer = Matmul(m, k, n)
    product = engine._single(layer, task_of(layer))
    assert ArrayTrips(engine, layer, product).cycles == pytest.approx(product.cycles, rel=0.1)


def task_of(layer):
    from common.workload.tasks import Task

    return Task("t", "gemm", (layer,), "int8", layer.k * layer.n, layer.m * layer.k, layer.m * layer.n)
