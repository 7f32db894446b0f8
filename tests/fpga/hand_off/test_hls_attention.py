"""The C++ of an attention kernel, compiled by g++: equal to numpy's integers, and close to real numbers."""

from __future__ import annotations

import ctypes
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import attention
from common.fpga.hand_off.designs import ARITHMETIC, cpp
from tests.support.kernels.hls import (
    BITS,
    SUM,
    Memory,
    Program,
    Step,
    View,
    as_bytes,
    compiled,
    elements,
    exponential,
    port_names,
    ratio,
    rounded,
)
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
PORT_COUNT, QUERY_ROWS, ROW_LANES, KEY_BLOCK, HEADS_AT_ONCE, HEAD_DIM = 3, 5, 4, 7, 2, 23
KEPT_KEYS = 13  # of the longest heads; more keys are read again
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def engine(precision):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    planned = attention(board, precision, models, QUERY_ROWS, HEAD_DIM, KEPT_KEYS * 2 * HEAD_DIM)
    return replace(planned, row_lanes=ROW_LANES, key_block=KEY_BLOCK, heads_parallel=HEADS_AT_ONCE)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, as a function."""
    folder = tmp_path_factory.mktemp("attention")
    names = port_names(PORT_COUNT)
    return {name: compiled(cpp(engine(name), "K", names), folder, name) for name in ARITHMETIC}


def weighted_mean(logarithms, values, bits):
    """Mean of the values with 8 fraction bits, block by block; a larger score rescales what was summed before."""
    largest, total, result = None, 0, np.zeros(values.shape[1], dtype=object)
    most_weight = 2 ** (bits - 1) - 1
    for first in range(0, len(logarithms), KEY_BLOCK):
        block = logarithms[first : first + KEY_BLOCK]
        most = max(block) if largest is None else max(largest, *block)
        if largest is not None and most != largest:
            power = exponential(most - largest)
            total, result = int(rounded(total * power, 16)), rounded(result * power, 16)
        weights = [min(int(rounded(exponential(most - s), 17 - bits)), most_weight) for s in block]
        total += sum(weights)
        result = result + np.array(weights, dtype=object) @ values[first : first + KEY_BLOCK]
        largest = most
    return [ratio(v, total, 8) for v in result]


# Batch, heads, queries, keys, length of a key, of a value: kept on the chip, or read again by each tile.
SHAPES = {"kept": (2, 3, 11, 13, 19, 23), "read again": (1, 3, 13, 29, 17, 11), "one key": (1, 1, 2, 1, 3, 5)}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_mask", [False, True])
def test_numbers_are_those_of_numpy(kernels, precision, shape, has_mask):
    batch, heads, queries, keys, key_dim, value_dim = SHAPES[shape]
    bits, random = BITS[precision], np.random.default_rng(keys)
    half = 1 << (bits - 1)
    # Q, K and V as projections write them: (batch, line, head, element).
    q = random.integers(-half, half, (batch, queries, heads, key_dim))
    k = random.integers(-half, half, (batch, keys, heads, key_dim))
    v = random.integers(-half, half, (batch, keys, heads, value_dim))
    mask = np.where(np.arange(keys) > np.arange(queries)[:, None] + keys // 3, -half, 0)  # the same for all heads
    zeros = (2, -1, 1)
    scale = 3.0 / (half * half * math.sqrt(key_dim))
    down = 6 if precision == "int16" else 0  # products of sixteen bits leave their lowest bits
    factor, shift = scaled(scale * math.log2(math.e) * 2 ** (16 + down))

    memory = Memory(PORT_COUNT)

    def view(tensor, zero):
        lines, _, length = tensor.shape[1:]
        return View(memory.add(as_bytes(tensor, bits)), (lines * heads * length, length, heads * length, 1), zero=zero)

    operands = [view(*pair) for pair in zip((q, k, v), zeros, strict=True)]
    operands.append(View(memory.add(as_bytes(mask, bits)), (0, 0, keys, 1)))
    before = [Step(SUM, m=factor, shift=shift)]
    before += [Step(SUM, 3, n=2**17 - 1)] if has_mask else []
    after = (Step(SUM, m=3, n=5 << 8, shift=9, least=-half, most=half - 1),)
    base = memory.add(bytes((batch * queries * heads * value_dim * bits + 7) // 8))
    program = Program(
        extents=(batch, heads, queries, keys),
        settings=(key_dim, value_dim, down),
        before=tuple(before),
        after=after,
        result=View(base, (queries * heads * value_dim, value_dim, heads * value_dim, 1)),
        operands=tuple(operands),
    )
    content = memory.run(kernels[precision], ctypes.c_int64(memory.add(program.content())))
    shape_of_result = (batch, queries, heads, value_dim)
    found = elements(memory.after(content, base), math.prod(shape_of_result), bits).reshape(shape_of_result)

    centred = [tensor - zero for tensor, zero in zip((q, k, v), zeros, strict=True)]
    products = np.einsum("bqhd,bkhd->bhqk", centred[0], centred[1])
    logarithms = rounded(rounded(products, down) * factor, shift)
    if has_mask:
        logarithms = (logarithms + mask.astype(object) * (2**17 - 1)).clip(-(2**31), 2**31 - 1)
    expected = np.zeros(shape_of_result, np.int64)
    for b, h, row in np.ndindex(batch, heads, queries):
        means = weighted_mean([int(s) for s in logarithms[b, h, row]], centred[2][b, :, h].astype(object), bits)
        results = rounded(np.array(means, dtype=object) * 3 + (5 << 8), 9)
        expected[b, row, h] = np.clip(results, -half, half - 1).astype(np.int64)
    np.testing.assert_array_equal(found, expected)

    scores = products * scale + (mask * 1e9 if has_mask else 0)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mean = np.einsum("bhqk,bkhd->bqhd", powers / powers.sum(axis=-1, keepdims=True), centred[2])
    error = np.abs(found - np.clip((3 * mean + 5) / 2, -half, half - 1)).max()
    assert error < {"int4": 2.5, "int8": 2.0, "int16": 6.0}[precision]


def scaled(factor):
    """A factor as a multiplier of 17 bits and a shift."""
    shift = 16 - math.floor(math.log2(factor)) - 1
    return round(factor * 2.0**shift), shift


@pytest.mark.slow
@needs_compiler
def test_floats_are_close_to_numpy(kernels):
    random = np.random.default_rng(8)
    q, k, v = (
        random.standard_normal((1, 2, lines, length)).astype("<f4") for lines, length in ((7, 5), (11, 5), (11, 3))
    )
    memory, unlimited = Memory(PORT_COUNT), {"least": -1e30, "most": 1e30}
    operands = tuple(View(memory.add(t.tobytes()), (0, t.shape[2] * t.shape[3], t.shape[3], 1)) for t in (q, k, v))
    base = memory.add(bytes(4 * 2 * 7 * 3))
    program = Program(
        extents=(1, 2, 7, 11),
        settings=(5, 3),
        before=(Step(SUM, m=0.4 * math.log2(math.e), **unlimited),),
        result=View(base, (0, 21, 3, 1)),
        operands=operands,
    )
    content = memory.run(kernels["fp32"], ctypes.c_int64(memory.add(program.content(is_integer=False))))
    found = np.frombuffer(memory.after(content, base)[: 4 * 42].tobytes(), "<f4").reshape(1, 2, 7, 3)
    scores = 0.4 * q @ k.transpose(0, 1, 3, 2)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(axis=-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


def test_pragmas_are_those_of_the_plan():
    text = cpp(engine("int8"), "K", port_names(PORT_COUNT))
    for line in ("QUERY_ROWS = 5", "ROW_LANES = 4", "EXP_LANES = 5", "KEY_BLOCK = 7", "HEADS = 2", "HEAD_DIM = 23"):
        assert f"constexpr int {line};" in text
    assert f"BUFFER_ELEMENTS = {KEPT_KEYS * 2 * HEAD_DIM};" in text
    assert "BIND_STORAGE variable=kept type=ram_2p impl=uram" in text
    assert text.count("#pragma HLS PIPELINE II=2") == 4  # the loops of the plan; loads start in every cycle
