"""Reductions and pools of a row-wise kernel, compiled by g++: equal to numpy's integers, and close to real numbers."""

from __future__ import annotations

import ctypes
import math
import shutil

import numpy as np
import pytest

from common.fpga.kernels.dataflow.operators import FOLDS
from common.graphs.operators import POOLS
from tests.support.kernels.hls import (
    BITS,
    PRODUCT,
    ROOT,
    SUM,
    Memory,
    Program,
    Step,
    View,
    exponential,
    ratio,
    rounded,
)
from tests.support.kernels.rowwise_kernels import (
    FOLD,
    LANES,
    NORMALIZATION,
    POOL,
    SOFTMAX,
    UNITS,
    Call,
    compiled_kernels,
    dense,
    limits,
    random_of,
)

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format."""
    return compiled_kernels(tmp_path_factory.mktemp("rowwise"))


# --- reductions -------------------------------------------------------------------------------------------------------


def normalized(row, smallest, *, is_centred):
    """(row - mean) / deviation with 16 fraction bits: exact moments, a root of 16 bits, a reciprocal of 16 bits."""
    count, total, squares = len(row), sum(row) if is_centred else 0, sum(v * v for v in row)
    variance, shift = count * squares - total * total + smallest, 30
    variance = variance or 1
    while variance < 2**60:
        variance, shift = 4 * variance, shift - 1
    reciprocal = 2**31 // (math.isqrt(variance) >> 15)
    return [int(rounded((count * v - total) * reciprocal, shift)) for v in row]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("width", [23, 53])  # a row that the buffer holds, and a longer one
@pytest.mark.parametrize("is_centred", [True, False])
def test_a_normalization(kernels, precision, width, is_centred):
    x = random_of(precision, (2, 3, 1, width)) // 3
    x[1, 2] = 5  # a row without variance
    random, epsilon_of_scale = np.random.default_rng(2), 0.3  # epsilon / scale^2
    gamma, beta = random.integers(1000, 9000, width), random.integers(-4000, 4000, width)  # 12 fraction bits
    half = 1 << (BITS[precision] - 1)
    factor = half // 5  # of the result: three deviations just fit
    smallest = round(width**2 * epsilon_of_scale)
    call = Call(kernels, precision, x)
    call.add(gamma, (0, 0, 0, 1), is_wide=True)
    call.add(beta, (0, 0, 0, 1), is_wide=True)
    steps = (Step(PRODUCT, 1, shift=16), Step(SUM, 2, m=factor, n=factor, shift=12, **limits(precision)))
    found = call.run(NORMALIZATION, x.shape, x.shape, settings=(int(is_centred), smallest), after=steps)
    exact = [normalized(row.tolist(), smallest, is_centred=is_centred) for row in x.reshape(-1, width)]
    scaled = rounded(np.array(exact, dtype=object) * gamma, 16)
    expected = np.clip(rounded((scaled + beta) * factor, 12), -half, half - 1)
    np.testing.assert_array_equal(found.reshape(-1, width), expected.astype(np.int64))
    centre = x.mean(axis=-1, keepdims=True) * is_centred
    deviation = np.sqrt(((x - centre) ** 2).mean(axis=-1, keepdims=True) + smallest / width**2)
    real = (((x - centre) / deviation * gamma + beta) / 4096 * factor).clip(-half, half - 1)
    assert np.abs(found - real).max() < (2 if precision == "int16" else 0.52)


@pytest.mark.slow
@needs_compiler
def test_a_normalization_of_maps_with_channels_last(kernels):
    """InstanceNormalization: a row is a channel of an image, whose elements are apart in memory."""
    x = random_of("int8", (2, 11, 7))  # images, pixels, channels
    call = Call(kernels, "int8", x.reshape(1, 2, 11, 7), strides=None)
    call.operands[0] = View(call.operands[0].base, (77, 1, 7, 0))
    steps = (Step(SUM, m=40, shift=16, **limits("int8")),)
    found = call.run(NORMALIZATION, (2, 7, 11, 1), (2, 1, 11, 7), strides=(77, 1, 7, 0), settings=(1, 0), after=steps)
    real = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * 40
    assert np.abs(found.reshape(x.shape) - real).max() < 0.52


@pytest.mark.slow
@needs_compiler
def test_a_sum_that_is_normalized(kernels):
    """SkipLayerNormalization: the first steps add, for both passes."""
    x, y = random_of("int8", (1, 5, 1, 53)), random_of("int8", (1, 5, 1, 53), seed=9)
    call = Call(kernels, "int8", x)
    call.add(y)
    before, after = (Step(SUM, 1, m=3, n=5),), (Step(SUM, m=40, shift=16, **limits("int8")),)
    found = call.run(NORMALIZATION, x.shape, x.shape, settings=(1, 0), before=before, after=after)
    total = 3 * x + 5 * y
    real = (total - total.mean(axis=-1, keepdims=True)) / total.std(axis=-1, keepdims=True) * 40
    assert np.abs(found - real).max() < 0.52


def softmax(row):
    """Probabilities with 16 fraction bits; the sum is rescaled whenever a step of LANES elements has a larger value."""
    largest, total = None, 0
    for first in range(0, len(row), LANES):
        step = row[first : first + LANES]
        most = max(step) if largest is None else max(largest, *step)
        if largest is not None and most != largest:
            total = int(rounded(total * exponential(most - largest), 16))
        total += sum(exponential(most - v) for v in step)
        largest = most
    return [ratio(exponential(largest - v), total, 16) for v in row]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("width", [1, 23, 101])
def test_a_softmax(kernels, precision, width):
    x, bits = random_of(precision, (3, 5, 1, width)), BITS[precision]
    scale = 9.0 / (1 << bits)
    factor = round(scale * math.log2(math.e) * 2**16 * 2 ** (bits - 4))  # 18 bits
    before = (Step(SUM, m=factor, shift=bits - 4),)
    half = 1 << (bits - 1)  # the result's scale is 1 / 2^bits, its zero point -half
    after = (Step(SUM, m=1, n=-half << (16 - bits), shift=16 - bits, **limits(precision)),)
    found = Call(kernels, precision, x).run(SOFTMAX, x.shape, x.shape, before=before, after=after)
    logarithms = rounded(x.astype(object) * factor, bits - 4).reshape(-1, width)
    probabilities = np.array([softmax([int(v) for v in row]) for row in logarithms], dtype=object)
    expected = np.clip(rounded(probabilities + (-half << (16 - bits)), 16 - bits), -half, half - 1)
    np.testing.assert_array_equal(found.reshape(-1, width), expected.astype(np.int64))
    powers = np.exp((x - x.max(axis=-1, keepdims=True)) * scale)
    real = (powers / powers.sum(axis=-1, keepdims=True) * 2 * half - half).clip(-half, half - 1)
    assert np.abs(found - real).max() < (1.5 if precision == "int16" else 0.52)


FOLDED = {
    "ReduceSum": (0, lambda x: x.sum(axis=-1)),
    "ReduceMean": (0, lambda x: x.sum(axis=-1)),  # the last steps divide
    "ReduceL1": (1, lambda x: np.abs(x).sum(axis=-1)),
    "ReduceSumSquare": (2, lambda x: (x * x).sum(axis=-1)),
    "ReduceL2": (2, lambda x: (x * x).sum(axis=-1)),  # the last steps take the root
    "ReduceMax": (3, lambda x: x.max(axis=-1)),
    "ReduceMin": (4, lambda x: x.min(axis=-1)),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("op_type", FOLDS)
@pytest.mark.parametrize("precision", BITS)
def test_a_fold(kernels, precision, op_type):
    kind, function = FOLDED[op_type]
    x, shift = random_of(precision, (2, 5, 1, 37)), 3 if kind == 2 else 0  # squares leave their lowest bits
    folded = rounded(function(x.reshape(-1, 37)), shift)
    if op_type == "ReduceL2":
        steps, folded = [Step(ROOT, m=8)], np.array([math.isqrt(int(v) * 8) for v in folded], dtype=object)
    elif op_type == "ReduceMean":
        steps, folded = [Step(SUM, m=65536 // 37, shift=16)], rounded(folded * (65536 // 37), 16)
    else:
        steps = []
    last = max(0, int(max(abs(v) for v in folded)).bit_length() - BITS[precision] + 1)  # so that the largest fits
    after = (*steps, Step(SUM, shift=last, **limits(precision)))
    found = Call(kernels, precision, x).run(FOLD, x.shape, (2, 5, 1, 1), settings=(kind, shift), after=after)
    expected = rounded(folded, last).clip(*limits(precision).values()).astype(np.int64)
    np.testing.assert_array_equal(found.ravel(), expected)


# --- pools ------------------------------------------------------------------------------------------------------------

WINDOWS = {
    "MaxPool": {"kernel": (3, 2), "stride": (2, 1), "pads": (1, 1), "dilation": (1, 2)},
    "AveragePool": {"kernel": (3, 3), "stride": (2, 2), "pads": (1, 0)},
    "GlobalMaxPool": {"kernel": (11, 7)},
    "GlobalAveragePool": {"kernel": (11, 7)},
    "QLinearAveragePool": {"kernel": (2, 5), "pads": (1, 2), "counts_padding": 1},
    "QLinearGlobalAveragePool": {"kernel": (11, 7)},
}


def test_every_pool_of_a_plan_is_tested():
    assert WINDOWS.keys() == POOLS - {"LpPool"}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("op_type", WINDOWS)
def test_a_pool(kernels, precision, op_type):
    given = {"stride": (1, 1), "pads": (0, 0), "dilation": (1, 1), "counts_padding": 0, **WINDOWS[op_type]}
    kernel, stride, pads, dilation = (given[key] for key in ("kernel", "stride", "pads", "dilation"))
    x, is_mean = random_of(precision, (2, 11, 7, 5)), "Average" in op_type
    sizes = [(11, 7)[a] + 2 * pads[a] - (kernel[a] - 1) * dilation[a] - 1 for a in range(2)]
    shape = (2, *(size // step + 1 for size, step in zip(sizes, stride, strict=True)), 5)
    settings = (11, 7, *kernel, *stride, *dilation, *pads, int(is_mean), given["counts_padding"])
    after = (Step(SUM, shift=8 if is_mean else 0, **limits(precision)),)
    found = Call(kernels, precision, x).run(POOL, shape, shape, settings=settings, after=after)
    expected = np.zeros(shape, np.int64)
    for n, y, column, c in np.ndindex(shape):
        rows = [y * stride[0] - pads[0] + tap * dilation[0] for tap in range(kernel[0])]
        columns = [column * stride[1] - pads[1] + tap * dilation[1] for tap in range(kernel[1])]
        window = [int(x[n, r, q, c]) for r in rows for q in columns if 0 <= r < 11 and 0 <= q < 7]
        count = math.prod(kernel) if given["counts_padding"] else len(window)
        mean = math.floor(256 * sum(window) / count + 0.5)
        expected[n, y, column, c] = math.floor(mean / 256 + 0.5) if is_mean else max(window)
    np.testing.assert_array_equal(found, expected)


# --- floating point ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_floats_are_close_to_numpy(kernels):
    x = np.random.default_rng(4).standard_normal((1, 5, 1, 53)).astype("<f4")
    unlimited = {"least": -1e30, "most": 1e30}
    memory = Memory(UNITS)
    x_base, y_base = memory.add(x.tobytes()), memory.add(bytes(x.nbytes))
    views = {"result": View(y_base, dense(x.shape)), "operands": (View(x_base, dense(x.shape)),)}
    logarithm = (Step(SUM, m=math.log2(math.e), **unlimited),)
    programs = [
        Program(SOFTMAX, x.shape, before=logarithm, **views),
        Program(NORMALIZATION, x.shape, settings=(1, 53**2 * 1e-5), **views),
    ]
    power = np.exp(x - x.max(axis=-1, keepdims=True))
    centred = x - x.mean(axis=-1, keepdims=True)
    expected = [power / power.sum(axis=-1, keepdims=True), centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)]
    for program, real in zip(programs, expected, strict=True):
        base = memory.add(program.content(is_integer=False))
        content = memory.after(memory.run(kernels["fp32"], ctypes.c_int64(base)), y_base)
        found = np.frombuffer(content[: x.nbytes].tobytes(), "<f4").reshape(x.shape)
        np.testing.assert_allclose(found, real, rtol=1e-4, atol=1e-5)
