"""The C++ of a hand-off, compiled by g++ and compared with numpy."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.hls import ARITHMETIC, cpp
from common.fpga.hand_off.ports import KernelPort
from common.fpga.kernels.systolic import build_array
from common.fpga.kernels.systolic_tiling import Tile
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
BITS = {"int4": 4, "int8": 8, "int16": 16}
PORT_COUNT, WORD_BYTES = 3, 16
SIZE, TILE = (4, 6, 2), Tile(8, 12, 10)  # smaller than the products below along every axis
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def text_of(precision, size=SIZE, tile=TILE):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    array = build_array(size, precision, array_ports(board), board.macs_per_dsp[precision], models.systolic, tile)
    return cpp(array, "K", [KernelPort(f"p{index}", 8 * WORD_BYTES, "") for index in range(PORT_COUNT)])


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, as a function."""
    folder = tmp_path_factory.mktemp("hls")
    functions = {}
    for precision in ARITHMETIC:
        source, library = folder / f"{precision}.cpp", folder / f"{precision}.so"
        source.write_text(text_of(precision), encoding="utf-8")
        flags = ["-std=c++14", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-label"]
        subprocess.run(["g++", *flags, "-shared", "-fPIC", "-o", library, source], check=True)
        functions[precision] = ctypes.CDLL(str(library)).K
    return functions


# --- memory -----------------------------------------------------------------------------------------------------------


def as_bytes(values, bits):
    """The bytes of a tensor; two of four bits share one, the first in the lower half."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits != 4:
        return flat.astype(f"<i{bits // 8}").tobytes()
    nibbles = np.append(flat, 0)[: (len(flat) + 1) // 2 * 2].astype(np.uint8) & 15
    return (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()


class Memory:
    """Ports with their words; a tensor lies over all of them, word by word."""

    def __init__(self):
        self.words = [[] for _ in range(PORT_COUNT)]

    def add(self, content):
        """Place a tensor, and return its base."""
        words = [content[i : i + WORD_BYTES].ljust(WORD_BYTES, b"\0") for i in range(0, len(content), WORD_BYTES)]
        words += [b"\xaa" * WORD_BYTES] * (-len(words) % PORT_COUNT)  # the rest belongs to somebody else
        base = len(self.words[0])
        for index, word in enumerate(words):
            self.words[index % PORT_COUNT].append(word)
        return base

    def run(self, kernel, *scalars):
        """Call the kernel, and return the memory as one sequence of bytes."""
        ports = [np.frombuffer(b"".join(words), np.uint8).copy() for words in self.words]
        kernel(*(port.ctypes.data_as(ctypes.c_void_p) for port in ports), *scalars)
        return np.stack([port.reshape(-1, WORD_BYTES) for port in ports], axis=1).reshape(-1)


def elements(content, count, bits):
    if bits != 4:
        return np.frombuffer(content[: count * bits // 8].tobytes(), f"<i{bits // 8}").astype(np.int64)
    pairs = content[: (count + 1) // 2]
    values = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[:count].astype(np.int64)
    return np.where(values > 7, values - 16, values)


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


@needs_compiler
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

    memory = Memory()
    places = [memory.add(as_bytes(values, bits)) for values in (x, w)]
    parameters = np.zeros(case["out"], dtype=[("bias", "<i4"), ("scale", "<f4")])
    parameters["bias"], parameters["scale"] = bias, scale
    places.append(memory.add(parameters.tobytes()))
    places.append(memory.add(bytes(expected.size * bits // 8 + 1)))
    batch, in_height, in_width, in_channels = x.shape
    integers = [
        *(groups, case["out"] // groups, batch, in_height, in_width, in_channels // groups, *sums.shape[1:3]),
        *(height, width, case["stride"], case["stride"], case["dilation"], case["dilation"], *case["pads"]),
        *(zero, out_zero),
    ]
    limits = [ctypes.c_float(-half), ctypes.c_float(half - 1)]
    orientation = [ctypes.c_int32(is_transposed), ctypes.c_int32(columns_outside)]
    scalars = [*map(ctypes.c_int64, places), *map(ctypes.c_int32, integers), *limits, *orientation]
    content = memory.run(kernels[precision], *scalars)
    found = elements(content[places[3] * PORT_COUNT * WORD_BYTES :], expected.size, bits)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@needs_compiler
def test_floats_are_close_to_numpy(kernels):
    random = np.random.default_rng(5)
    x, w = random.standard_normal((11, 23)).astype("<f4"), random.standard_normal((17, 23)).astype("<f4")
    memory = Memory()
    parameters = np.zeros(17, dtype=[("bias", "<i4"), ("scale", "<f4")])
    parameters["scale"] = 1
    places = [memory.add(content.tobytes()) for content in (x, w, parameters, np.zeros((11, 17), "<f4"))]
    integers = [1, 17, 1, 11, 1, 23, 11, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    limits = [ctypes.c_float(-1e9), ctypes.c_float(1e9)]
    scalars = [*map(ctypes.c_int64, places), *map(ctypes.c_int32, integers), *limits, *map(ctypes.c_int32, (0, 0))]
    content = memory.run(kernels["fp32"], *scalars)[places[3] * PORT_COUNT * WORD_BYTES :]
    found = np.frombuffer(content[: 4 * 11 * 17].tobytes(), "<f4").reshape(11, 17)
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-4, atol=1e-4)


def test_pragmas_are_those_of_the_plan():
    text = text_of("int8")
    assert re.findall(r"INTERFACE m_axi port=(\w+) bundle=(\w+)", text) == [(f"p{n}", f"p{n}") for n in range(3)]
    assert text.count("max_widen_bitwidth=128 max_read_burst_length=256 max_write_burst_length=256") == 3
    sizes = dict(re.findall(r"constexpr int (\w+) = (\d+);", text))
    assert [sizes[name] for name in ("ROWS", "COLS", "SIMD")] == ["4", "6", "2"]
    assert [sizes[name] for name in ("TILE_ROWS", "TILE_COLS", "TILE_DEPTH")] == ["8", "12", "10"]
    assert "BIND_STORAGE variable=sums type=ram_2p impl=lutram" in text
    assert "$" not in text
