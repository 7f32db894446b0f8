"""The C++ of a streaming kernel, compiled by g++ and compared with numpy."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import streaming
from common.fpga.hand_off.designs import ARITHMETIC, cpp
from common.fpga.hand_off.units import KernelPort, port_names
from tests.support.kernels.hls import (
    BITS,
    SUM,
    WORD_BYTES,
    Memory,
    Program,
    Step,
    View,
    as_bytes,
    compiled,
    elements,
    pointer,
)
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
MATRIX_PORTS = 3
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def engine(precision, vectors):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    return replace(streaming(board, precision, models, MATRIX_PORTS), vectors=vectors)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, for one vector and for two at once."""
    folder = tmp_path_factory.mktemp("streaming")
    functions = {}
    for precision, vectors in [*((name, 1) for name in ARITHMETIC), ("int8", 2)]:
        kernel = engine(precision, vectors)
        ports = [KernelPort(name, 8 * WORD_BYTES, "") for name in port_names(kernel)]
        functions[precision, vectors] = compiled(cpp(kernel, "K", ports), folder, f"{precision}_{vectors}")
    return functions


def lines(values, bits):
    """Rows that each begin with a word; what is behind their elements counts for nothing."""
    return [as_bytes(row, bits).ljust(ceil(len(row) * bits / 8 / WORD_BYTES) * WORD_BYTES, b"\x5a") for row in values]


def matrix_of_ports(matrices, bits):
    """Row r of every matrix on port r % MATRIX_PORTS, equally many on each."""
    contents = [b""] * MATRIX_PORTS
    for matrix in matrices:
        rows = lines(matrix, bits)
        rows += [bytes(len(rows[0]))] * (-len(rows) % MATRIX_PORTS)
        for r, row in enumerate(rows):
            contents[r % MATRIX_PORTS] += row
    return contents


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "engine_vectors"), [*((name, 1) for name in BITS), ("int8", 2)])
@pytest.mark.parametrize(
    ("products", "vectors", "rows", "columns"), [(1, 1, 17, 53), (2, 3, 11, 37), (1, 2, 2, 16), (3, 1, 7, 5)]
)
def test_numbers_are_those_of_numpy(kernels, precision, engine_vectors, products, vectors, rows, columns):
    bits, random = BITS[precision], np.random.default_rng(rows)
    half = 1 << (bits - 1)
    matrices = random.integers(-half, half, (products, rows, columns))
    x = random.integers(-half, half, (products, vectors, columns))
    residual = random.integers(-half, half, (products, vectors, rows))
    x_zero, y_zero = 3, -2
    bias = random.integers(-9 * half, 9 * half, (products, rows))
    sums = np.einsum("prc,pvc->pvr", matrices, x - x_zero) + bias[:, None]
    scale = (random.uniform(0.3, 0.9, (products, rows)) * half / np.abs(sums).max()).astype(np.float32)
    wide = np.rint(sums.astype(np.float32) * scale[:, None]) + y_zero
    expected = np.floor((wide * 5 + residual * 3) / 8 + 0.5).clip(-half, half - 1).astype(np.int64)

    x0 = Memory(1)  # the vector's port also has the parameters and the program
    contents = [b""] * engine_vectors
    turns = ceil(vectors / engine_vectors)
    for product in x:
        padded = lines([*product, *[np.zeros(columns, int)] * (turns * engine_vectors - vectors)], bits)
        for v, line in enumerate(padded):
            contents[v % engine_vectors] += line
    x_base = x0.add(contents[0])
    parameters = np.zeros((products, rows), dtype=[("bias", "<i4"), ("scale", "<f4")])
    parameters["bias"], parameters["scale"] = bias, scale
    parameters_base = x0.add(parameters.tobytes())
    operand = View(x0.add(as_bytes(residual, bits)), (0, vectors * rows, rows, 1))
    step = Step(SUM, 0, m=5, n=3, shift=3, least=-half, most=half - 1)
    program_base = x0.add(Program(after=(step,), operands=(operand,)).content())

    words = ceil(rows * bits / 8 / WORD_BYTES)
    y = [np.zeros(products * turns * words * WORD_BYTES, np.uint8) for _ in range(engine_vectors)]
    p = [np.frombuffer(content, np.uint8).copy() for content in matrix_of_ports(matrices, bits)]
    (first,) = x0.arrays()
    xs = [first, *(np.frombuffer(content, np.uint8).copy() for content in contents[1:])]
    vector_ports = [port for pair in zip(xs, y, strict=True) for port in pair]  # x0, y0, x1, y1
    bases = [0, x_base, 0, parameters_base, program_base]
    sizes = [products, vectors, rows, columns, x_zero, y_zero]
    limits = [ctypes.c_float(-30000), ctypes.c_float(30000)]
    ports = map(pointer, [*p, *vector_ports])
    kernels[precision, engine_vectors](*ports, *map(ctypes.c_int64, bases), *map(ctypes.c_int32, sizes), *limits)

    assert len(np.unique(expected)) > 3
    for product in range(products):
        for v in range(vectors):
            start = (product * turns + v // engine_vectors) * words * WORD_BYTES
            found = elements(y[v % engine_vectors][start:], rows, bits)
            np.testing.assert_array_equal(found, expected[product, v])


@pytest.mark.slow
def test_floats_are_close_to_numpy(kernels):
    random = np.random.default_rng(5)
    a, x = random.standard_normal((7, 23)).astype("<f4"), random.standard_normal(23).astype("<f4")
    p = [b""] * MATRIX_PORTS
    for r, row in enumerate([*a, *np.zeros((2, 23), "<f4")]):
        p[r % MATRIX_PORTS] += row.tobytes().ljust(96, b"\0")
    x0, parameters = Memory(1), np.zeros(7, dtype=[("bias", "<i4"), ("scale", "<f4")])
    parameters["scale"] = 1
    contents = (x.tobytes(), parameters.tobytes(), Program().content(is_integer=False))
    x_base, parameters_base, program_base = map(x0.add, contents)
    y = np.zeros(32, np.uint8)
    ports = [*(np.frombuffer(content, np.uint8).copy() for content in p), *x0.arrays(), y]
    bases, sizes = [0, x_base, 0, parameters_base, program_base], [1, 1, 7, 23, 0, 0]
    limits = [ctypes.c_float(-1e9), ctypes.c_float(1e9)]
    kernels["fp32", 1](*map(pointer, ports), *map(ctypes.c_int64, bases), *map(ctypes.c_int32, sizes), *limits)
    np.testing.assert_allclose(y[:28].view("<f4"), a @ x, rtol=1e-4, atol=1e-5)


def test_pragmas_are_those_of_the_plan():
    kernel = engine("int8", 1)
    text = cpp(kernel, "K", [KernelPort(name, 256, "") for name in port_names(kernel)])
    for name in ("p0", "p1", "p2", "x0", "y0"):
        assert f"INTERFACE m_axi port={name} bundle={name} offset=slave max_widen_bitwidth=256" in text
    assert "constexpr int MATRIX_PORTS = 3;" in text
    assert "constexpr int WORD_BYTES = 32;" in text
