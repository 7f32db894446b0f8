"""The C++ of a hand-off, compiled by g++ and compared with numpy."""

from __future__ import annotations

import ctypes
import re
import shutil

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.designs import ARITHMETIC, cpp
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.systolic.tiling import Tile
from tests.support.kernels.hls import (
    BITS,
    SUM,
    TABLE,
    Memory,
    Program,
    Step,
    View,
    as_bytes,
    compiled,
    elements,
    port_names,
)
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
PORT_COUNT = 3
SIZE, TILE = (4, 6, 2), Tile(8, 12, 10)  # smaller than the products below along every axis
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def text_of(precision, size=SIZE, tile=TILE):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    array = build_array(size, precision, array_ports(board), board.macs_per_dsp[precision], models.systolic, tile)
    return cpp(array, "K", port_names(PORT_COUNT))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, as a function."""
    folder = tmp_path_factory.mktemp("hls")
    return {precision: compiled(text_of(precision), folder, precision) for precision in ARITHMETIC}


# --- convolutions -----------------------------------------------------------------------------------------------------


def convolution(x, w, stride, dilation, pads, groups, zero):
    """Sums by definition: x is (batch, height, width, channels), w (out, kernel, kernel, in of one group)."""
    (top, left), (height, width) = pads, w.shape[1:3]
    x = np.pad(x, ((0, 0), (top, top), (left, left), (0, 0)), constant_values=zero)
    out_height = (x.shape[1] - (height - 1) * dilation - 1) // stride + 1
    out_width = (x.shape[2] - (width - 1) * dilation - 1) // stride + 1
    per_group, of_group = w.shape[3], w.shape[0] // groups
    sums = np.zeros((x.shape[0], out_height, out_width, w.shape[0]), np.int64)
    for n in range(w.shape[0]):
        first = n // of_group * per_group
        for y in range(out_height):
            for column in range(out_width):
                rows = slice(y * stride, y * stride + (height - 1) * dilation + 1, dilation)
                columns = slice(column * stride, column * stride + (width - 1) * dilation + 1, dilation)
                window = x[:, rows, columns, first : first + per_group]
                sums[:, y, column, n] = (window * w[n]).sum(axis=(1, 2, 3))
    return sums


def requantized(sums, bias, scale, zero, bits):
    """QLinearConv: the sum as a float, times its scale, to the nearest (ties to even), then cut off."""
    scaled = np.rint((sums + bias).astype(np.float32) * scale) + np.float32(zero)
    return np.clip(scaled, -(1 << (bits - 1)), (1 << (bits - 1)) - 1).astype(np.int64)


CASES = {
    "product": {"x": (1, 11, 1, 23), "out": 17},
    "window": {"x": (2, 7, 5, 3), "out": 13, "kernel": (3, 3), "pads": (1, 1)},
    "strided": {"x": (1, 9, 11, 5), "out": 7, "kernel": (3, 5), "pads": (1, 2), "stride": 2},
    "grouped and dilated": {"x": (1, 9, 7, 6), "out": 10, "kernel": (3, 1), "dilation": 2, "groups": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("is_transposed", "columns_outside"), [(0, 0), (1, 1)])
def test_numbers_are_those_of_numpy(kernels, precision, name, is_transposed, columns_outside):
    case = {"kernel": (1, 1), "pads": (0, 0), "stride": 1, "dilation": 1, "groups": 1, **CASES[name]}
    bits, random = BITS[precision], np.random.default_rng(len(name))
    half, groups, (height, width) = 1 << (bits - 1), case["groups"], case["kernel"]
    x = random.integers(-half, half, case["x"])
    w = random.integers(-half, half, (case["out"], height, width, case["x"][3] // groups))
    zero, out_zero = 3, -2
    sums = convolution(x, w, case["stride"], case["dilation"], case["pads"], groups, zero)
    bias = random.integers(-9 * half, 9 * half, case["out"]) - zero * w.sum(axis=(1, 2, 3))
    scale = (random.uniform(0.2, 0.7, case["out"]) * half / np.abs(sums).max()).astype(np.float32)
    expected = requantized(sums, bias, scale, out_zero, bits)
    assert len(np.unique(expected)) > 5, "the results say little"
    assert np.abs(expected).max() < half - 1 or (expected == -half).any() or precision == "int4"

    memory = Memory(PORT_COUNT)
    bases = [memory.add(content) for content in (as_bytes(x, bits), as_bytes(w, bits), constants_of(bias, scale))]
    result = View(
        memory.add(bytes(expected.size * bits // 8 + 1)), (0, case["out"] // groups, case["out"], 1), zero=out_zero
    )
    batch, in_height, in_width, in_channels = x.shape
    settings = [
        *(*bases, groups, case["out"] // groups, batch, in_height, in_width, in_channels // groups, *sums.shape[1:3]),
        *(height, width, case["stride"], case["stride"], case["dilation"], case["dilation"], *case["pads"], 1, 1),
        *(in_channels, in_channels // groups, zero, -half, half - 1, is_transposed, columns_outside, 0),
    ]
    found = run(kernels[precision], memory, Program(settings=settings, result=result), expected.size, bits)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def run(kernel, memory, program, count, bits):
    """Call the kernel, and return the integers of its result."""
    content = memory.run(kernel, ctypes.c_int64(memory.add(program.content())))
    return elements(memory.after(content, program.result.base), count, bits)


def constants_of(bias, scale):
    constants = np.zeros(len(scale), dtype=[("bias", "<i4"), ("scale", "<f4")])
    constants["bias"], constants["scale"] = bias, scale
    return constants.tobytes()


def settings_of_product(bases, rows, depth, columns, limits):
    """The settings of a product whose channels are the columns of the array."""
    return [*bases, 1, columns, 1, 1, rows, depth, 1, rows, *[1] * 6, 0, 0, 1, 1, depth, depth, 0, *limits, 0, 0]


@pytest.mark.slow
def test_a_transposed_convolution_reads_pixels_that_are_apart(kernels):
    """Each input pixel adds its window; the call gathers from pixels that are two and three apart."""
    random, (height, width), (top, left) = np.random.default_rng(3), (3, 5), (1, 2)
    x, w = random.integers(-128, 128, (2, 5, 3, 7)), random.integers(-128, 128, (11, *(height, width), 7))
    whole = np.zeros((2, 4 * 2 + height, 2 * 3 + width, 11), np.int64)
    for n, row, column in np.ndindex(x.shape[:3]):
        window = np.einsum("ohwi,i->hwo", w, x[n, row, column])
        whole[n, 2 * row : 2 * row + height, 3 * column : 3 * column + width] += window
    sums = whole[:, top : whole.shape[1] - top, left : whole.shape[2] - left]
    scale = np.full(11, 100 / np.abs(sums).max(), np.float32)
    memory, turned = Memory(PORT_COUNT), w[:, ::-1, ::-1]
    bases = [memory.add(content) for content in (as_bytes(x, 8), as_bytes(turned, 8), constants_of(0, scale))]
    settings = [*bases, 1, 11, 2, 5, 3, 7, *sums.shape[1:3], height, width, 1, 1, 1, 1]
    settings += [height - 1 - top, width - 1 - left, 2, 3, 7, 7, 0, -128, 127, 0, 0]
    program = Program(settings=settings, result=View(memory.add(bytes(sums.size)), (0, 11, 11, 1)))
    found = run(kernels["int8"], memory, program, sums.size, 8).reshape(sums.shape)
    np.testing.assert_array_equal(found, requantized(sums, 0, scale, 0, 8))


@pytest.mark.slow
def test_floats_are_close_to_numpy(kernels):
    random = np.random.default_rng(5)
    x, w = random.standard_normal((11, 23)).astype("<f4"), random.standard_normal((17, 23)).astype("<f4")
    memory = Memory(PORT_COUNT)
    bases = [memory.add(content) for content in (x.tobytes(), w.tobytes(), constants_of(0, np.ones(17)))]
    result = View(memory.add(bytes(4 * 11 * 17)), (0, 17, 17, 1))
    program = Program(settings=settings_of_product(bases, 11, 23, 17, (-1e9, 1e9)), result=result)
    content = memory.run(kernels["fp32"], ctypes.c_int64(memory.add(program.content(is_integer=False))))
    found = np.frombuffer(memory.after(content, result.base)[: 4 * 11 * 17].tobytes(), "<f4").reshape(11, 17)
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("has_table", [False, True])
def test_operators_behind_the_sums_run_as_steps(kernels, has_residual, has_table):
    """A residual addition (QLinearAdd), then a function of one value: a hard swish as a table."""
    random = np.random.default_rng(7)
    x, w, residual = (random.integers(-128, 128, shape) for shape in ((11, 23), (17, 23), (11, 17)))
    sums = x @ w.T
    scale = np.full(17, 8000 / np.abs(sums).max(), np.float32)
    wide = np.rint(sums.astype(np.float32) * scale).astype(np.int64)  # sixteen bits, as no operator is behind it yet
    memory, steps, value = Memory(PORT_COUNT), [], wide
    if has_residual:  # 2^-8 * (3 * wide + 97 * (residual - 5)), to the nearest
        steps.append(Step(SUM, 0, m=3, n=97, shift=8, least=-128, most=127))
        value = np.clip(np.floor((3 * value + 97 * (residual - 5)) / 256 + 0.5), -128, 127).astype(np.int64)
    else:
        steps.append(Step(SUM, m=1, shift=6, least=-128, most=127))
        value = np.clip(np.floor(value / 64 + 0.5), -128, 127).astype(np.int64)
    function = np.rint([v * np.clip(v / 6 + 3, 0, 6) / 7 for v in range(-128, 129)]).astype("<i2")
    table = memory.add(function.tobytes()) if has_table else -1
    if has_table:
        steps.append(Step(TABLE, m=0, least=-128, most=127))
        value = np.clip(function[value + 128], -128, 127)
    operand = View(memory.add(as_bytes(residual, 8)), (0, 17, 17, 1), zero=5)
    bases = [memory.add(content) for content in (as_bytes(x, 8), as_bytes(w, 8), constants_of(0, scale))]
    settings = settings_of_product(bases, 11, 23, 17, (-32768, 32767))
    result = View(memory.add(bytes(11 * 17)), (0, 17, 17, 1))
    program = Program(settings=settings, after=tuple(steps), table=table, result=result, operands=(operand,))
    found = run(kernels["int8"], memory, program, 11 * 17, 8).reshape(11, 17)
    assert len(np.unique(value)) > 30
    np.testing.assert_array_equal(found, value)


def test_pragmas_are_those_of_the_plan():
    text = text_of("int8")
    assert re.findall(r"INTERFACE m_axi port=(\w+) bundle=(\w+)", text) == [(f"p{n}", f"p{n}") for n in range(3)]
    assert text.count("max_widen_bitwidth=128 max_read_burst_length=256 max_write_burst_length=256") == 3
    sizes = dict(re.findall(r"constexpr int (\w+) = (\d+);", text))
    assert [sizes[name] for name in ("ROWS", "COLS", "SIMD")] == ["4", "6", "2"]
    assert [sizes[name] for name in ("TILE_ROWS", "TILE_COLS", "TILE_DEPTH")] == ["8", "12", "10"]
    assert "BIND_STORAGE variable=kept type=ram_2p impl=lutram" in text
    assert "$" not in text
