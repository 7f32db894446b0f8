"""The taxonomy of operators, and the sets that rooms build of it."""

from __future__ import annotations

from itertools import combinations

import pytest

from common.fpga.kernels.dataflow import operators as lanes
from common.fusion import patterns
from common.graphs import operators
from common.onnx_graph.work.registry import FORMULAS

CLASSES = {
    name: value for name, value in vars(operators).items() if name.isupper() and isinstance(value, (frozenset, dict))
}
APART = (
    "CONVOLUTIONS",
    "TRANSPOSED_CONVOLUTIONS",
    "DEFORMABLE_CONVOLUTIONS",
    "MATRIX_PRODUCTS",
    "ATTENTION",
    "SOFTMAX",
    "NORMALIZATIONS",
    "REDUCTIONS",
    "POOLS",
    "POINTWISE",
    "MOVEMENT",
    "CONTROL_FLOW",
    "SHAPE_CONSTANTS",
)


def test_an_operator_is_in_one_class():
    for one, other in combinations(APART, 2):
        assert CLASSES[one].isdisjoint(CLASSES[other]), (one, other)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"CONTROL_FLOW"}))
def test_every_operator_has_a_formula_of_its_work(name):
    """A misspelt operator has none. GemmFastGelu and the like exist in ONNX Runtime's own domains alone."""
    counted = {op_type for _, op_type in FORMULAS}
    assert set(CLASSES[name]) - counted <= {"Constant"}


def test_contractions_are_what_multiplies():
    assert {"Conv", "ConvTranspose", "DeformConv", "Gemm", "QLinearMatMul", "Attention"} <= operators.CONTRACTIONS
    assert operators.CONTRACTIONS.isdisjoint(operators.POINTWISE | operators.POOLS | operators.MOVEMENT)


def test_the_weight_of_each_convolution():
    weight = operators.CONVOLUTION_WEIGHT
    assert set(weight) == {
        *operators.CONVOLUTIONS,
        *operators.TRANSPOSED_CONVOLUTIONS,
        *operators.DEFORMABLE_CONVOLUTIONS,
    }
    assert (weight["Conv"], weight["ConvInteger"], weight["QLinearConv"], weight["QLinearConvTranspose"]) == (
        1,
        1,
        3,
        3,
    )


def test_int8_operators_and_floats():
    assert {"QLinearConv", "ConvInteger", "MatMulInteger", "QAttention"} <= operators.INT8_OPERATORS
    assert operators.INT8_OPERATORS.isdisjoint({"Conv", "MatMul", "MatMulNBits"})


def test_kernels_of_rows_know_the_operators_that_fusion_gives_them():
    assert set(lanes.NORMALIZERS) | set(lanes.GELU_FLOPS) == patterns.ROWS
    assert set(lanes.FOLDS) == patterns.ROW_REDUCTIONS
    moved = {"Concat", "QLinearConcat", "Split", "Slice", "Pad"}  # contiguous elements, in the order of their layout
    assert set(lanes.ELEMENTWISE) - moved == operators.POINTWISE - operators.GELUS | {"Sum", operators.DEQUANTIZE}
