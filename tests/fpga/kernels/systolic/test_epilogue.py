"""The operators behind an array's products: by hand, and as many as a fold's sums need to pass in time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import arrays
from common.fpga.kernels.systolic.array_models import array_resources
from common.fpga.kernels.systolic.epilogue import epilogue, fused_products
from common.workload.layers import Convolution, Matmul, Pointwise, Pooling, Rowwise
from tests.support.kernels.dataflow_kernels import COSTS, task_of
from tests.support.paths import CONFIGS

PRODUCT = Matmul(61, 127, 257)
ELEMENTS = 61 * 257
DEPTHWISE = Convolution(1, 32, 28, 28, 32, 28, 28, 3, 3, groups=32)


def behind(*op_types, precision="int8", product=PRODUCT, before=()):
    """A product with element-wise operators behind it."""
    layers = (*(Pointwise(name, ELEMENTS) for name in before), product, *(Pointwise(n, ELEMENTS) for n in op_types))
    return task_of(*layers, precision=precision)


def test_an_integer_array_requantizes_and_computes_what_is_fused():
    """4 x 6 x 2 in int8: 64 steps of the product for 24 sums, so one of each operator (configs/dataflow.yaml)."""
    found = epilogue((4, 6, 2), "int8", fused_products([behind("Add", "Relu")]), COSTS)
    assert (found.lut, found.ff, found.dsp) == (32 + 54 + 32 + 129, 32 + 32 + 45 + 72, 1)


def test_sums_that_leave_faster_need_more_operators():
    """16 x 6 x 16 in int8: 8 steps, 4 sums a column and cycle, so 96 sums in 8 cycles: twelve of each."""
    found = epilogue((16, 6, 16), "int8", fused_products([behind("Relu")]), COSTS)
    assert (found.lut, found.dsp) == (12 * (54 + 32 + 129), 12)


def test_fp32_sums_leave_as_they_are_and_bf16_is_rounded():
    """8 sums of a fold in 32 steps: one converter, of 201 LUT."""
    assert epilogue((2, 4, 4), "fp32", fused_products([behind(precision="fp32")]), COSTS).lut == 0
    assert epilogue((2, 4, 4), "bf16", fused_products([behind(precision="bf16")]), COSTS).lut == 201


def test_the_array_has_the_most_that_any_product_needs_of_each_operator():
    """The sum of one and the comparison of the other, not two full lanes."""
    both = epilogue(
        (4, 6, 2), "fp32", fused_products([behind("Add", precision="fp32"), behind("Relu", precision="fp32")]), COSTS
    )
    assert (both.lut, both.dsp) == (214 + 66, 2)


def test_formats_of_operands_and_folded_scales_cost_nothing():
    plain = fused_products([behind("Relu")])
    quantized = behind("Relu", "QuantizeLinear", before=("DequantizeLinear", "DequantizeLinear"))
    assert fused_products([quantized]) == fused_products([behind("BatchNormalization", "Relu")]) == plain
    assert fused_products([behind("Add", "BatchNormalization")]) != fused_products([behind("Add")])


def test_what_an_array_does_not_compute_has_no_epilogue():
    rows, pool = Rowwise("Softmax", 61, 257), Pooling(1, 67, 113, 113, 56, 56, 3, 3, 2, 2)
    others = [task_of(rows, precision="int8"), task_of(PRODUCT, rows, precision="int8")]
    others += [task_of(PRODUCT, pool, precision="int8"), task_of(PRODUCT, PRODUCT, precision="int8")]
    assert fused_products(others) == frozenset()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 64),
    cols=st.integers(1, 64),
    simd=st.sampled_from([1, 2, 4, 8, 16]),
    extents=st.tuples(st.integers(1, 90), st.integers(1, 900), st.integers(1, 90)),
    precision=st.sampled_from(["fp32", "int8", "int4"]),
)
def test_operators_keep_up_with_the_folds_and_one_fewer_would_not(rows, cols, simd, extents, precision):
    """Folds are laid out product by product here; each sum passes one comparator, one per cycle and comparator."""
    m, k, n = extents
    found = epilogue(
        (rows, cols, simd),
        precision,
        fused_products([behind("Relu", precision=precision, product=Matmul(m, k, n))]),
        COSTS,
    )
    own = epilogue(
        (rows, cols, simd), precision, fused_products([behind(precision=precision, product=Matmul(m, k, n))]), COSTS
    )
    of_one = {"fp32": 66, "int8": 54, "int4": 54}[precision]
    comparators = (found.lut - own.lut) / of_one
    assert comparators == int(comparators) >= 1
    sum_bits, bits = {"fp32": (32, 32), "int8": (32, 8), "int4": (24, 4)}[precision]
    leave = max(1, simd * bits // sum_bits)
    steps = -(-k // simd)
    cycles = max(steps, -(-rows // leave))
    most = max(min(rows, high) * min(cols, wide) for high, wide in ((m, n), (n, m)))
    assert comparators * cycles >= most > (comparators - 1) * cycles


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "slack"), [("int8", 0.25), ("fp32", 0.05)])
def test_arrays_of_a_plan_pay_for_their_epilogue_and_still_fit(precision, slack):
    """A residual block: the same arrays as for bare products, larger by their epilogue, which is a small part."""
    u280, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    room = max(u280.budgets, key=lambda budget: budget.dsp)
    fused = [behind("Add", "Relu", precision=precision), behind("Relu", precision=precision, product=DEPTHWISE)]
    found = arrays(u280, precision, models, fused, room)
    assert found
    for array in found:
        assert array.resources.fits(u280.total_budget if array.spans_regions else room)
        size = (array.rows, array.cols, array.simd)
        own = epilogue(size, precision, fused_products(fused), models.dataflow)
        assert 0 < own.lut < slack * array.resources.lut
        assert 0 < own.dsp < slack * array.resources.dsp
        rate = u280.macs_per_dsp[precision]
        bare = array_resources(size, precision, array.buffers, array.ports, rate, models.systolic)
        assert array.bare.lut == pytest.approx(bare.lut + own.lut)
        assert array.bare.dsp == pytest.approx(bare.dsp + own.dsp)
