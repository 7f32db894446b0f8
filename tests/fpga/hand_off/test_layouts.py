"""Layouts that agree: an array and a row-wise kernel have the same ports, and read each other's tensors in place."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports, rowwise, streaming
from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.build_files import build_files
from common.fpga.hand_off.designs import cpp
from common.fpga.hand_off.units import beside_arrays, compute_units, connectivity, copiers
from common.fpga.kernels.systolic.array import MappedProduct, build_array
from common.fpga.kernels.systolic.tiling import Tile
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Pooling
from common.workload.tasks import Task
from tests.support.kernels.hls import SUM, Memory, Program, Step, View, as_bytes, compiled, elements, pointer
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
BOARD, MODELS = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
NONE = ThreePoint.exactly(0.0)


def planned(name, engine):
    return PlannedKernel(name, engine, engine.name, None, (), None, NONE, None, 0, 0, NONE, NONE)


@pytest.fixture(scope="module")
def kernels():
    """An array, a row-wise kernel and a stream, each with channels of its own."""
    tile = Tile(8, 12, 10)
    array = build_array((4, 6, 2), "int8", array_ports(BOARD), BOARD.macs_per_dsp["int8"], MODELS.systolic, tile)
    tasks = [Task("p", "pool", (Pooling(1, 13, 8, 6, 4, 3, 2, 2),), "int8", 0, 1, 1)]
    rows = rowwise(BOARD, "int8", MODELS, tasks, 0.03125)
    return [planned("K1", array), planned("K2", rows), planned("K3", streaming(BOARD, "int8", MODELS))]


def ports_of(units):
    return {unit.name: [(port.name, port.bits, port.memory) for port in unit.ports] for unit in units}


def test_a_row_wise_kernel_has_the_ports_of_the_array_that_it_exchanges_with(kernels):
    alone = ports_of(compute_units(kernels, BOARD))
    assert not set(alone["K1"]) & set(alone["K2"])
    assert len(alone["K2"]) < len(alone["K1"])
    beside = beside_arrays(kernels, {("K1", "K2"): 2, ("K3", "K2"): 5, ("K3", "K1"): 1})
    assert beside == {"K2": "K1"}
    units = compute_units(kernels, BOARD, beside)
    found = ports_of(units)
    assert found["K2"] == found["K1"] == alone["K1"]
    first, moved = ([int(memory[4:-1]) for _, _, memory in each["K3"]] for each in (alone, found))
    channels_of_rows = {memory for _, _, memory in alone["K2"]}
    assert [before - after for before, after in zip(first, moved, strict=True)] == [len(channels_of_rows)] * len(first)
    lines = connectivity(units).splitlines()
    assert [line for line in lines if line.startswith("sp=K2.")] == [
        line.replace("K1", "K2") for line in lines if line.startswith("sp=K1.")
    ]
    assert f"nk={kernels[1].engine.name.replace('-', '_')}_8p:1:K2" in lines


@pytest.mark.parametrize("exchanged", [{}, {("K3", "K2"): 5}, {("K1", "K3"): 5}])
def test_a_kernel_that_exchanges_nothing_with_an_array_keeps_its_own(kernels, exchanged):
    assert beside_arrays(kernels, exchanged) == {}


def test_a_copier_has_the_ports_of_the_array_and_the_channel_of_the_vectors(kernels):
    units = {unit.name: unit for unit in compute_units(kernels, BOARD)}
    (copier,) = copiers([*units.values()], {("K1", "K3"): 1, ("K3", "K1"): 2, ("K1", "K2"): 1})
    assert (copier.name, copier.design) == ("K3_K1_copy", "copy_int8_8x256_1v")
    channel = next(port.memory for port in units["K3"].ports if port.name == "x0")
    assert [(port.name, port.memory) for port in copier.vectors] == [("v0", channel)]
    files = build_files([*units.values()], [copier])
    lines = files["converters.cfg"].splitlines()
    assert "nk=copy_int8_8x256_1v:1:K3_K1_copy" in lines
    ports = [(port.name, port.memory) for port in (*units["K1"].ports, *copier.vectors)]
    assert [line for line in lines if line.startswith("sp=K3_K1_copy.")] == [
        f"sp=K3_K1_copy.{name}:{memory}" for name, memory in ports
    ]
    hertz = round(units["K3"].engine.clock_mhz * 1e6)
    assert f"freqHz={hertz}:K3_K1_copy" in files["clock.cfg"].splitlines()
    assert 'extern "C" void copy_int8_8x256_1v(' in files["hls/copy_int8_8x256_1v.cpp"]
    assert "copy_int8_8x256_1v" in files["Makefile"]


@pytest.mark.parametrize("change", [{"precision": "int16"}, {"port_bits": 512}])
def test_formats_and_words_that_differ_have_no_copier(kernels, change):
    units = {unit.name: unit for unit in compute_units(kernels, BOARD)}
    stream = units["K3"]
    if bits := change.get("port_bits"):
        other = replace(stream, ports=tuple(replace(port, bits=bits) for port in stream.ports))
    else:
        other = replace(stream, engine=replace(stream.engine, **change))
    assert copiers([units["K1"], other], {("K1", "K3"): 1}) == ()
    assert copiers([units["K1"], stream], {("K1", "K3"): 1}) != ()


def array_program(memory, layer, source, weights, scale):
    """The program of a convolution, and the view of its result."""
    constants = np.zeros(layer.out_channels, dtype=[("bias", "<i4"), ("scale", "<f4")])
    constants["scale"] = scale
    bases = source, memory.add(as_bytes(weights, 8)), memory.add(constants.tobytes())
    call = ArrayCall.of(layer, MappedProduct(layer.as_matmul(), False, "rows", 1.0, 1.0, 1.0))
    size = layer.out_channels * layer.out_height * layer.out_width
    result = View(memory.add(bytes(size)), (0, *call.result_pitches))
    settings = [*call.settings(bases)]
    settings[-1] = 0  # these weights are not packed
    return memory.add(Program(settings=settings, result=result).content()), result.base


def convolved(x, weights, scale):
    """A convolution by definition: (height, width, channels), padded by one pixel, to the nearest with ties to even."""
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    taps = [padded[r : r + x.shape[0], c : c + x.shape[1]] for r in range(3) for c in range(3)]
    sums = sum(tap @ weights[:, at // 3, at % 3].T for at, tap in enumerate(taps))
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int64)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")
def test_both_read_what_the_other_writes(kernels, tmp_path):
    """A convolution, a pool of its map, a convolution of the pool's map: three calls on one memory, no copy."""
    units = {unit.name: unit for unit in compute_units(kernels, BOARD, {"K2": "K1"})}
    array, rows = (
        compiled(cpp(units[name].engine, units[name].design, units[name].ports), tmp_path, name, units[name].design)
        for name in ("K1", "K2")
    )
    random = np.random.default_rng(8)
    x, first_w, second_w = (random.integers(-128, 128, shape) for shape in ((8, 6, 5), (13, 3, 3, 5), (7, 3, 3, 13)))
    memory = Memory(len(units["K1"].ports), units["K1"].ports[0].bits // 8)
    first = Convolution(1, 5, 8, 6, 13, 8, 6, 3, 3)
    second = Convolution(1, 13, 4, 3, 7, 4, 3, 3, 3)
    first_call, mapped = array_program(memory, first, memory.add(as_bytes(x, 8)), first_w, 1e-3)
    pooled = View(memory.add(bytes(4 * 3 * 13)), (0, 3 * 13, 13, 1))
    pool = Program(
        kind=4,
        extents=(1, 4, 3, 13),
        settings=(8, 6, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0),
        after=(Step(SUM),),
        result=pooled,
        operands=(View(mapped, (0, 6 * 13, 13, 1)),),
    )
    pool_call = memory.add(pool.content())
    second_call, result = array_program(memory, second, pooled.base, second_w, 1e-3)

    ports = memory.arrays()
    for function, call in ((array, first_call), (rows, pool_call), (array, second_call)):
        function(*map(pointer, ports), ctypes.c_int64(call))
    content = np.stack([port.reshape(-1, memory.word_bytes) for port in ports], axis=1).reshape(-1)

    of_first = convolved(x, first_w, 1e-3)
    of_pool = of_first.reshape(4, 2, 3, 2, 13).max(axis=(1, 3))
    expected = convolved(of_pool, second_w, 1e-3)
    for base, wanted in ((mapped, of_first), (pooled.base, of_pool), (result, expected)):
        assert len(np.unique(wanted)) > 20, "the results say little"
        np.testing.assert_array_equal(elements(memory.after(content, base), wanted.size, 8), wanted.reshape(-1))
