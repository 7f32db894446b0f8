"""The C++ of a row-wise kernel, compiled by g++: equal to numpy's integers, and close to real numbers."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil

import numpy as np
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import rowwise
from common.fpga.hand_off.hls import cpp
from common.fpga.hand_off.number_types import ARITHMETIC
from common.fpga.kernels.lanes import FOLDS, GELU_FLOPS, NORMALIZERS, STREAMED
from common.operators import POOLS
from common.workload.layers import Rowwise
from common.workload.tasks import Task
from tests.support.hls import (
    BITS,
    INVERSE,
    LARGEST,
    ONE,
    PRODUCT,
    QUOTIENT,
    ROOT,
    SLOPE,
    SLOPE_OF_OPERAND,
    SMALLEST,
    SUM,
    TABLE,
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
from tests.support.paths import ROOT as REPOSITORY

CONFIGS = REPOSITORY / "configs"
UNITS, LANES, ROW_LIMIT = 3, 4, 31
ELEMENTS, NORMALIZATION, SOFTMAX, FOLD, POOL = range(5)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def text_of(precision):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    task = Task("rows", "rowwise", (Rowwise("Softmax", 7, ROW_LIMIT),), precision, 0, 1, 1)
    text = cpp(rowwise(board, precision, models, [task], 0.1, UNITS), "K", port_names(UNITS))
    lines = {"ROW_LIMIT": ROW_LIMIT, "LANES": LANES}  # rows here are short, so that some are longer than the buffer
    for name, value in lines.items():
        before = next(line for line in text.splitlines() if line.startswith(f"constexpr int {name} ="))
        text = text.replace(before, f"constexpr int {name} = {value};")
    return text


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The compiled kernel of each format, as a function."""
    folder = tmp_path_factory.mktemp("rowwise")
    return {precision: compiled(text_of(precision), folder, precision) for precision in ARITHMETIC}


def dense(shape):
    """The strides of a dense tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(4))


class Call:
    """The memory of one call: operands are added first, then it runs."""

    def __init__(self, kernels, precision, x, **view):
        self.kernel, self.bits, self.memory = kernels[precision], BITS[precision], Memory(UNITS)
        self.operands, self.table = [], -1
        self.add(x, **view)

    def add(self, tensor, strides=None, *, is_wide=False, **view):
        base = self.memory.add(as_bytes(tensor, 32 if is_wide else self.bits))
        self.operands.append(View(base, strides or dense(tensor.shape), is_wide=is_wide, **view))

    def tabulate(self, entries):
        self.table = self.memory.add(np.asarray(entries).astype("<i2").tobytes())

    def run(self, kind, extents, result_shape, **program):
        count = math.prod(result_shape)
        base = self.memory.add(bytes((count * self.bits + 7) // 8))
        strides = program.pop("strides", None) or dense(result_shape)
        result = View(base, strides, offset=program.pop("offset", 0))
        whole = Program(kind, extents, table=self.table, result=result, operands=tuple(self.operands), **program)
        content = self.memory.run(self.kernel, ctypes.c_int64(self.memory.add(whole.content())))
        return elements(self.memory.after(content, base), count, self.bits).reshape(result_shape)


def random_of(precision, shape, seed=3):
    half = 1 << (BITS[precision] - 1)
    return np.random.default_rng(seed).integers(-half, half, shape)


def limits(precision):
    half = 1 << (BITS[precision] - 1)
    return {"least": -half, "most": half - 1}


# --- steps ------------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("precision", BITS)
def test_a_residual_a_factor_per_channel_and_a_tensor_in_another_order(kernels, precision):
    """((5 * (x - 3) + 9 * y) / 2^a * factor + shift) / 2^b, y being read with its axes in another order."""
    shape, (first, last) = (2, 3, 5, 7), {"int4": (3, 11), "int8": (7, 7), "int16": (9, 12)}[precision]
    x, y = random_of(precision, shape), random_of(precision, (7, 2, 5, 3), seed=5)
    factor, shift = np.random.default_rng(1).integers(-999, 999, (2, 7))
    call = Call(kernels, precision, x, zero=3)
    call.add(y, (15, 1, 3, 30))
    call.add(factor, (0, 0, 0, 1), is_wide=True)
    call.add(shift, (0, 0, 0, 1), is_wide=True)
    steps = (
        Step(SUM, 1, m=5, n=9, shift=first),
        Step(PRODUCT, 2),
        Step(SUM, 3, m=1, n=1, shift=last, **limits(precision)),
    )
    found = call.run(ELEMENTS, shape, shape, after=steps)
    sums = rounded(5 * (x - 3) + 9 * y.transpose(1, 3, 2, 0), first)
    expected = np.clip(rounded(sums * factor + shift, last), *limits(precision).values())
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(found, expected.astype(np.int64))


@needs_compiler
def test_parts_of_tensors_are_joined_split_and_padded(kernels):
    x, y = random_of("int8", (3, 5, 7, 2)), random_of("int8", (3, 5, 11, 2), seed=7)
    call = Call(kernels, "int8", x)
    whole = call.memory.add(as_bytes(np.full((3, 5, 19, 2), 77), 8))  # padded with 77
    call.operands.append(View(call.memory.add(as_bytes(y, 8)), dense(y.shape)))
    strides = dense((3, 5, 19, 2))
    for operand, part, offset in ((0, x, 0), (1, y[:, :, ::2], 2 * 8)):  # every second line of y, behind a gap
        view = View(call.operands[operand].base, dense((3, 5, 7, 2) if operand == 0 else (3, 5, 11, 2)))
        if operand:
            view = View(view.base, (110, 22, 4, 1))
        program = Program(ELEMENTS, part.shape, result=View(whole, strides, offset), operands=(view,))
        base = call.memory.add(program.content())
        content = call.memory.run(call.kernel, ctypes.c_int64(base))
        call.memory.words = [
            [port[i : i + 16] for i in range(0, len(port), 16)]
            for port in (content.reshape(-1, UNITS, 16)[:, p].tobytes() for p in range(UNITS))
        ]
    found = elements(call.memory.after(content, whole), 3 * 5 * 19 * 2, 8).reshape(3, 5, 19, 2)
    np.testing.assert_array_equal(found[:, :, :7], x)
    np.testing.assert_array_equal(found[:, :, 8:14], y[:, :, ::2])
    assert (found[:, :, [7, *range(14, 19)]] == 77).all()


SIXTEENTH = 1 / 16  # of one, the scale of operands below


def curve(operation, **step):
    return lambda call: (Step(operation, **step),)


def table_of(function):
    def steps(call):
        values = np.rint([function(q * SIXTEENTH) / SIXTEENTH for q in range(-128, 129)])
        call.tabulate(np.clip(np.nan_to_num(values, nan=0), -32768, 32767))
        return (Step(TABLE, m=0),)

    return steps


def with_operand(operation, **step):
    return lambda call: (Step(operation, 1, **step),)


def erf(v):
    return math.erf(v)


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def gelu(v):
    return v * (1 + math.erf(v / math.sqrt(2))) / 2


def elu(v):
    return v if v > 0 else math.expm1(v)


# Steps of every operator on single elements, and what it computes: of v and, where it has a second operand, of w.
CURVES = {
    **dict.fromkeys(
        ("Cast", "Identity", "Dropout", "DequantizeLinear", "QuantizeLinear"), (lambda call: (), lambda v, w: v)
    ),
    "Add": (with_operand(SUM, n=1), lambda v, w: v + w),
    "Sub": (with_operand(SUM, n=-1), lambda v, w: v - w),
    "Sum": (with_operand(SUM, n=1), lambda v, w: v + w),
    "QLinearAdd": (with_operand(SUM, n=1), lambda v, w: v + w),
    "Mul": (with_operand(PRODUCT, shift=4), lambda v, w: v * w),
    "QLinearMul": (with_operand(PRODUCT, shift=4), lambda v, w: v * w),
    "Div": (with_operand(QUOTIENT, m=16 * 64, shift=6), lambda v, w: v / w),
    "Min": (with_operand(SMALLEST, n=1), min),
    "Max": (with_operand(LARGEST, n=1), max),
    "PRelu": (
        lambda call: (Step(SLOPE_OF_OPERAND, 1, m=16, shift=4),),
        lambda v, w: v if v > 0 else v * w,
    ),
    "BatchNormalization": (
        lambda call: (Step(PRODUCT, 1, shift=4), Step(SUM, ONE, n=5)),
        lambda v, w: v * w + 5 / 16,
    ),
    "Neg": (curve(SUM, m=-1), lambda v, w: -v),
    "Abs": (curve(SLOPE, m=1, n=-1), lambda v, w: abs(v)),
    "Relu": (curve(SUM, least=0), lambda v, w: max(v, 0)),
    "Clip": (curve(SUM, least=-16, most=48), lambda v, w: min(max(v, -1), 3)),
    "LeakyRelu": (curve(SLOPE, m=256, n=26, shift=8), lambda v, w: v if v > 0 else v * 26 / 256),
    "QLinearLeakyRelu": (curve(SLOPE, m=256, n=26, shift=8), lambda v, w: v if v > 0 else v * 26 / 256),
    "HardSigmoid": (
        curve(SUM, m=13, n=64 * 8, shift=6, least=0, most=16),
        lambda v, w: min(max(v * 13 / 64 + 0.5, 0), 1),
    ),
    "Sqrt": (curve(ROOT, m=16 * 1024, shift=5), lambda v, w: math.sqrt(max(v, 0))),
    "Pow": (table_of(lambda v: abs(v) ** 1.5), lambda v, w: abs(v) ** 1.5),
    "Exp": (table_of(math.exp), lambda v, w: math.exp(v)),
    "Erf": (table_of(erf), lambda v, w: erf(v)),
    "Tanh": (table_of(math.tanh), lambda v, w: math.tanh(v)),
    "Softplus": (table_of(lambda v: math.log1p(math.exp(v))), lambda v, w: math.log1p(math.exp(v))),
    "Softsign": (table_of(lambda v: v / (1 + abs(v))), lambda v, w: v / (1 + abs(v))),
    "Elu": (table_of(elu), lambda v, w: elu(v)),
    "Celu": (table_of(elu), lambda v, w: elu(v)),
    "Selu": (table_of(lambda v: 1.0507 * elu(v)), lambda v, w: 1.0507 * elu(v)),
    "Sigmoid": (table_of(sigmoid), lambda v, w: sigmoid(v)),
    "QLinearSigmoid": (table_of(sigmoid), lambda v, w: sigmoid(v)),
    "HardSwish": (table_of(lambda v: v * min(max(v / 6 + 0.5, 0), 1)), lambda v, w: v * min(max(v / 6 + 0.5, 0), 1)),
    "Swish": (table_of(lambda v: v * sigmoid(v)), lambda v, w: v * sigmoid(v)),
    "Mish": (
        table_of(lambda v: v * math.tanh(math.log1p(math.exp(v)))),
        lambda v, w: v * math.tanh(math.log1p(math.exp(v))),
    ),
    **dict.fromkeys(GELU_FLOPS, (table_of(gelu), lambda v, w: gelu(v))),
}
MOVED = {"Concat", "QLinearConcat", "Split", "Slice", "Pad"}  # views, tested above


def test_every_operator_of_a_plan_has_steps():
    assert CURVES.keys() | MOVED | NORMALIZERS.keys() | FOLDS.keys() | (POOLS - {"LpPool"}) == set(STREAMED)


@needs_compiler
@pytest.mark.parametrize("op_type", CURVES)
def test_steps_are_within_half_a_step_of_the_operator(kernels, op_type):
    steps, function = CURVES[op_type]
    values = np.array([*itertools.product(range(-128, 128, 3), (-61, -16, 7, 53))])
    x, w = (values[:, side].reshape(4, -1, 1, 43) for side in range(2))
    call = Call(kernels, "int8", x)
    call.add(w)
    before = steps(call)
    found = call.run(ELEMENTS, x.shape, x.shape, before=before, after=(Step(SUM, **limits("int8")),))
    pairs = zip((x * SIXTEENTH).ravel().tolist(), (w * SIXTEENTH).ravel().tolist(), strict=True)
    real = np.array([function(v, q) for v, q in pairs]).reshape(x.shape) / SIXTEENTH
    tolerance = 0.55 if op_type in ("Sqrt", "Div") else 0.5 + 1e-9
    assert np.abs(found - np.clip(real, -128, 127)).max() <= tolerance
    assert len(np.unique(found)) > 10


@needs_compiler
@pytest.mark.parametrize(("part_bits", "scale"), [(8, 2**-12), (5, 2**-10)])
def test_a_table_of_sixteen_bits_is_linear_between_its_entries(kernels, part_bits, scale):
    x = random_of("int16", (3, 1, 1, 997))
    part = 1 << part_bits
    entries = np.rint([4096 * math.tanh((index - 128) * part * scale) for index in range(257)])
    call = Call(kernels, "int16", x)
    call.tabulate(entries)
    found = call.run(ELEMENTS, x.shape, x.shape, after=(Step(TABLE, m=part_bits, shift=part_bits),))
    inside = np.clip(x, -128 * part, 128 * part - 1) + 128 * part
    low, rest = inside // part, inside % part
    expected = np.floor((entries[low] * (part - rest) + entries[low + 1] * rest) / part + 0.5)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - 4096 * np.tanh(np.clip(x, -128 * part, 128 * part) * scale)).max() < 4


@needs_compiler
def test_an_inverse_and_the_value_that_entered(kernels):
    """X / (1 + |x|) in whole numbers: the value that entered over what it has become."""
    x = random_of("int16", (1, 1, 1, 499))
    steps = (Step(SLOPE, m=1, n=-1), Step(SUM, n=256), Step(INVERSE, -1, n=4096, least=-32768, most=32767))
    found = Call(kernels, "int16", x).run(ELEMENTS, x.shape, x.shape, after=steps)
    expected = [int(v * 4096 / (abs(v) + 256)) for v in x.ravel().tolist()]
    np.testing.assert_array_equal(found.ravel(), expected)


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
