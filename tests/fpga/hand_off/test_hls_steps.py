"""The steps of a program, compiled by g++: every operator on single elements, and tensors that are joined and cut."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil

import numpy as np
import pytest

from common.fpga.kernels.dataflow.operators import FOLDS, GELU_FLOPS, NORMALIZERS, STREAMED
from common.graphs.operators import ADDITIONS, POINTWISE, POOLS
from tests.support.kernels.hls import (
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
    Program,
    Step,
    View,
    as_bytes,
    elements,
    rounded,
)
from tests.support.kernels.rowwise_kernels import (
    ELEMENTS,
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert CURVES.keys() >= POINTWISE | ADDITIONS, "what a group fuses behind a contraction"
    assert CURVES.keys() | MOVED | NORMALIZERS.keys() | FOLDS.keys() | (POOLS - {"LpPool"}) == set(STREAMED)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@needs_compiler
def test_an_inverse_and_the_value_that_entered(kernels):
    """X / (1 + |x|) in whole numbers: the value that entered over what it has become."""
    x = random_of("int16", (1, 1, 1, 499))
    steps = (Step(SLOPE, m=1, n=-1), Step(SUM, n=256), Step(INVERSE, -1, n=4096, least=-32768, most=32767))
    found = Call(kernels, "int16", x).run(ELEMENTS, x.shape, x.shape, after=steps)
    expected = [int(v * 4096 / (abs(v) + 256)) for v in x.ravel().tolist()]
    np.testing.assert_array_equal(found.ravel(), expected)
