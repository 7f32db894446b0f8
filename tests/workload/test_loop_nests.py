from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from common.workload.layer_rows import layers_by_node
from common.workload.layers import Convolution, Matmul, Pointwise
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS, LoopNest, nest_of, window_extent
from common.workload.nest_rows import nests_by_node
from models.__main__ import BUILDERS
from tests.support.models.onnx_models import UINT8, Typed, model, weight
from tests.support.tables.source import SIZES, source_rows

FP32 = {"input": 32, "weight": 32, "output": 32}


def points(nest):
    """Every point of the nest as the three elements that it touches, written from the definition of a convolution."""
    axes = [range(nest.bounds[loop]) for loop in LOOPS]
    for n, g, k, c, p, q, r, s in product(*axes):
        row, column = p * nest.stride_p + r * nest.dilation_r, q * nest.stride_q + s * nest.dilation_s
        yield {"input": (n, g, c, row, column), "weight": (g, k, c, r, s), "output": (n, g, k, p, q)}


small = st.integers(1, 3)
nests = st.builds(
    LoopNest,
    n=st.integers(1, 2),
    groups=st.integers(1, 2),
    **dict.fromkeys(("k", "c", "p", "q", "r", "s", "stride_p", "stride_q", "dilation_r", "dilation_s"), small),
)


@given(nests)
def test_a_nest_counts_its_own_points(nest):
    touched = {"input": set(), "weight": set(), "output": set()}
    count = 0
    for point in points(nest):
        count += 1
        for operand, element in point.items():
            touched[operand].add(element)
    assert nest.macs == count
    for operand in ("weight", "output"):
        assert nest.elements[operand] == len(touched[operand])
    rows = [element[3] for element in touched["input"]]
    columns = [element[4] for element in touched["input"]]
    span = (max(rows) + 1) * (max(columns) + 1)  # the rows and columns that strides leave out are stored all the same
    assert nest.elements["input"] == nest.n * nest.groups * nest.c * span
    assert len(touched["input"]) <= nest.elements["input"]


@given(nests, st.data())
def test_an_operand_moves_with_its_relevant_loops_alone(nest, data):
    loop = data.draw(st.sampled_from(LOOPS))
    axis = LOOPS.index(loop)
    extents = [1] * len(LOOPS)
    extents[axis] = nest.bounds[loop]
    line = LoopNest(**{name: getattr(nest, name) for name in ("stride_p", "stride_q", "dilation_r", "dilation_s")},
                    **dict(zip(("n", "groups", "k", "c", "p", "q", "r", "s"), extents, strict=True)))  # fmt: skip
    for operand, loops in RELEVANT_LOOPS.items():
        distinct = {point[operand] for point in points(line)}
        assert len(distinct) == (nest.bounds[loop] if loop in loops else 1)


def test_bytes_of_formats_below_a_byte_are_packed():
    nest = LoopNest(k=3, c=5, p=7, input_bits=4, weight_bits=4, output_bits=16)
    assert nest.operand_bytes == {"input": 18, "weight": 8, "output": 2 * 21}  # 35 and 15 halves of a byte


def test_the_nest_of_a_convolution_and_of_a_product():
    layer = Convolution(2, 6, 13, 17, 10, 7, 6, 3, 5, 2, 3, groups=2, dilation_width=2)
    nest = nest_of(layer, FP32, (1, 2))
    assert nest is not None
    assert nest.bounds == {"N": 2, "G": 2, "K": 5, "C": 3, "P": 7, "Q": 6, "R": 3, "S": 5}
    assert (nest.stride_p, nest.stride_q, nest.dilation_r, nest.dilation_s) == (2, 3, 1, 2)
    assert (nest.pad_p, nest.pad_q, nest.stored_height, nest.stored_width) == (1, 2, 13, 17)
    assert nest.macs == layer.macs
    product = nest_of(Matmul(5, 7, 11, 3, has_weight=False), FP32)
    assert product == LoopNest(p=5, c=7, k=11, groups=3, has_weight=False)
    assert product.elements == {"input": 3 * 5 * 7, "weight": 3 * 7 * 11, "output": 3 * 5 * 11}


@pytest.mark.parametrize(
    "layer",
    [
        Pointwise("Relu", 7),
        Convolution(1, 3, 5, 7, 2, 9, 13, 3, 3, 2, 2, is_transposed=True),
        Convolution(2, 3, 65, 11, 7, 24, 7, 6, 5, 2, 1, axes=3),
    ],
)
def test_what_is_no_nest(layer):
    assert nest_of(layer, FP32) is None


def test_window_extent():
    assert window_extent(1, 1, 5, 7) == 1
    assert window_extent(4, 3, 2, 5) == 3 * 2 + 2 * 5 + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BUILDERS if name.startswith("tiny")] + ["resnet18", "squeezenet"])
def test_the_nests_of_a_model_have_its_macs(name):
    rows, graph = source_rows(BUILDERS[name](), **SIZES)
    nests_of, layers = nests_by_node(rows, graph), layers_by_node(rows, graph)
    assert set(nests_of) == {row["source_node"] for row in rows}
    compared = 0
    for row in rows:
        found = nests_of[row["source_node"]]
        if found:
            passes = row["execution_count"] or 1
            assert row["macs"] in (passes * sum(nest.macs for nest in found), None)  # None: data decide the passes
            compared += 1
        else:
            contractions = [layer for layer in layers[row["source_node"]] or () if hasattr(layer, "macs")]
            assert not contractions
    assert compared or "gru" in name or "lstm" in name or "rnn" in name


def test_resnet18_has_the_published_work():
    rows, graph = source_rows(BUILDERS["resnet18"](has_weights=False), N=1)
    found = [nest for nests in nests_by_node(rows, graph).values() for nest in nests]
    assert sum(nest.macs for nest in found) == 1_814_073_344
    # 11,689,512 parameters without 9,600 of the normalizations and 1,000 of the classifier's bias
    assert sum(nest.elements["weight"] for nest in found) == 11_689_512 - 9_600 - 1_000
    stem = found[0]
    assert (stem.pad_p, stem.pad_q, stem.stored_height, stem.stored_width) == (3, 3, 224, 224)
    assert len(found) == 21
    assert len(set(found)) == 12  # repeated layers are one nest


def test_the_widths_of_a_quantized_convolution():
    scale, zero = np.array(0.5, np.float32), np.array(3, np.uint8)
    values = [Typed(UINT8, (2, 3, 13, 11)), scale, zero, np.ones((7, 3, 3, 3), np.int8), scale, np.array(0, np.int8)]
    values += [scale, zero]
    names = [f"x{index}" for index in range(len(values))]
    node = helper.make_node("QLinearConv", names, ["y"], name="node", pads=[1, 2, 1, 2])
    proto = model(
        [node],
        {"x0": values[0]},
        {"y": Typed(UINT8, None)},
        {name: value for name, value in zip(names, values, strict=True) if isinstance(value, np.ndarray)},
    )
    (nest,) = nests_by_node(*source_rows(proto))["node"]
    assert (nest.input_bits, nest.weight_bits, nest.output_bits) == (8, 8, 8)
    assert (nest.pad_p, nest.pad_q) == (1, 2)


def test_the_nest_of_one_axis_is_a_row():
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node", pads=[3, 1], strides=[2])
    proto = model([node], {"x": Typed(1, (2, 3, 17))}, {"y": None}, {"w": weight(7, 3, 5)})
    (nest,) = nests_by_node(*source_rows(proto))["node"]
    # ⌊(17 + 4 − 5) / 2⌋ + 1 = 9 columns
    assert nest == LoopNest(n=2, k=7, c=3, q=9, s=5, stride_q=2, pad_q=3, height=1, width=17)


@pytest.mark.parametrize(("attributes", "bits"), [({}, 4), ({"bits": 8}, 8)])
def test_packed_weights_keep_their_bits(attributes, bits):
    """8 bits take a byte of each code, 4 bits half of one; four are usual."""
    values = {"b": np.zeros((7, 2, 4 * bits), np.uint8), "s": np.ones(14, np.float32)}
    sizes = {"K": 64, "N": 7, "block_size": 32, **attributes}
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], name="node", domain="com.microsoft", **sizes)
    proto = model([node], {"a": (5, 64)}, {"y": None}, values, domains=["com.microsoft"])
    (nest,) = nests_by_node(*source_rows(proto))["node"]
    assert (nest.input_bits, nest.weight_bits, nest.output_bits, nest.macs) == (32, bits, 32, 5 * 64 * 7)
