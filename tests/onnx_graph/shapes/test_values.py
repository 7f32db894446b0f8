"""Values that follow from shapes and constants, and what is never evaluated."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.load import load_model
from common.onnx_graph.shapes import evaluation
from common.onnx_graph.shapes import values as module
from common.onnx_graph.shapes.budget import LARGEST_OPERAND
from common.onnx_graph.shapes.regions import read_region
from common.onnx_graph.shapes.types import TensorType
from common.onnx_graph.shapes.values import Values, stored_value
from tests.support.models.onnx_models import INT64, Typed, model


def node(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs.split(",") if inputs else [], outputs.split(","), **attributes)


def values_of(nodes, shapes=None, weights=None, given=None):
    """Values of a graph of which only the shapes of some tensors are known."""
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    region = read_region(helper.make_graph(nodes, "g", [], [], stored))
    types = {name: TensorType(TensorProto.FLOAT, shape) for name, shape in (shapes or {}).items()}
    found = Values(types, {"": 17}, given or {})
    found.add_region(region)
    return found


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Shape", "x", "y")], [3, 5, 7]),
        ([node("Shape", "x", "y", start=1)], [5, 7]),
        ([node("Shape", "x", "y", start=-2, end=-1)], [5]),
        ([node("Shape", "x", "y", end=100)], [3, 5, 7]),
        ([node("Size", "x", "y")], 105),
        ([node("Shape", "x", "s"), node("Gather", "s,two", "y")], 7),
        ([node("Shape", "x", "s"), node("Gather", "s,two", "g"), node("Mul", "g,two", "y")], 14),
        ([node("Shape", "x", "s"), node("Slice", "s,one,three", "y")], [5, 7]),
        ([node("Shape", "x", "s"), node("ReduceProd", "s", "y", keepdims=0)], 105),
        ([node("Shape", "x", "s"), node("Concat", "s,ones", "y", axis=0)], [3, 5, 7, 1, 1]),
        ([node("Shape", "x", "s"), node("Equal", "s,five", "e"), node("Where", "e,nines,s", "y")], [3, 9, 7]),
        ([node("Size", "x", "n"), node("Div", "n,two", "h"), node("Range", "fifty,h,one0", "y")], [50, 51]),
        ([node("Shape", "x", "s"), node("ConstantOfShape", "ones", "c"), node("Shape", "c", "y")], [1, 1]),
        ([node("Shape", "x", "s"), node("Cast", "s", "f", to=1), node("Sqrt", "f", "r"), node("Floor", "r", "y")],
         [1.0, 2.0, 2.0]),
    ],
)  # fmt: skip
def test_chains_of_shapes(nodes, expected):
    weights = {"two": np.array(2), "one": np.array([1]), "three": np.array([3]), "ones": np.array([1, 1]),
               "five": np.array([5]), "nines": np.array([9, 9, 9]), "fifty": np.array(50),
               "one0": np.array(1)}  # fmt: skip
    found = values_of(nodes, {"x": (3, 5, 7), "c": (1, 1)}, weights).find("y")
    assert found.tolist() == expected


def test_a_shape_with_an_unknown_dimension_has_no_value():
    assert values_of([node("Shape", "x", "y")], {"x": (3, None)}).find("y") is None
    assert values_of([node("Shape", "x", "y")]).find("y") is None
    assert values_of([node("Add", "x,x", "y")], {"x": (3,)}).find("y") is None


@pytest.mark.slow
def test_a_chain_of_five_thousand_nodes():
    names = ["one", *(f"t{index}" for index in range(5000))]
    nodes = [node("Add", f"{before},one", after) for before, after in itertools.pairwise(names)]
    found = values_of(nodes, weights={"one": np.array(1)}, shapes={})
    assert found.find("t4999").item() == 5001


def test_a_chain_of_five_thousand_unknown_nodes_is_unknown():
    names = ["x", *(f"t{index}" for index in range(5000))]
    nodes = [node("Relu", before, after) for before, after in itertools.pairwise(names)]
    assert values_of(nodes, {"x": (3,)}).find("t4999") is None


def test_a_diamond_of_forty_levels_is_evaluated_once_per_node(monkeypatch):
    """Each node reads the one before it twice: 2⁴⁰ paths."""
    calls = []
    evaluate = module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda one, *rest: calls.append(one.output[0]) or evaluate(one, *rest))
    names = ["one", *(f"t{index}" for index in range(40))]
    nodes = [node("Add", f"{before},{before}", after) for before, after in itertools.pairwise(names)]
    assert values_of(nodes, weights={"one": np.array(1)}).find("t39").item() == 2**40
    assert calls == names[1:]


RANDOM = [
    node("RandomNormal", "", "y", shape=[2, 3]),
    node("RandomUniform", "", "y", shape=[2, 3]),
    node("RandomNormalLike", "w", "y"),
    node("RandomUniformLike", "w", "y"),
    node("Bernoulli", "w", "y"),
    node("Multinomial", "w", "y", sample_size=5),
]


@pytest.mark.parametrize("random", RANDOM, ids=lambda one: one.op_type)
def test_random_values_are_unknown(random, monkeypatch):
    monkeypatch.setattr(module, "evaluate", lambda *_: pytest.fail("evaluated"))
    found = values_of([random, node("Neg", "y", "z")], weights={"w": np.full((1, 2), 0.5, np.float32)})
    assert found.find("z") is None


def test_a_large_operand_is_not_evaluated(monkeypatch):
    """10⁹ elements would be 4 GB: neither they nor what follows from them are made."""
    monkeypatch.setattr(module, "evaluate", lambda *_: pytest.fail("evaluated"))
    nodes = [node("Add", "big,one", "b"), node("ReduceMax", "b", "y", keepdims=0)]
    found = values_of(nodes, {"big": (10**9,), "b": (10**9,)}, {"one": np.float32(1)})
    assert found.find("y") is None


def test_a_large_result_of_small_operands_takes_no_memory(tmp_path):
    """ConstantOfShape, Expand, Tile and Range make large tensors of a few numbers: 10⁸ elements, 400 MB each."""
    side = LARGEST_OPERAND // 100
    nodes = [
        node("ConstantOfShape", "s", "a"),
        node("Expand", "one,s", "b"),
        node("Add", "a,b", "c"),
        node("NonZero", "c", "y"),
    ]
    weights = {"s": np.array([side, side]), "one": np.float32(1)}
    proto = model(nodes, {"x": (3,)}, {"y": Typed(INT64, None)}, weights)
    onnx.save(proto, tmp_path / "m.onnx")
    tracemalloc.start()
    try:
        graph = load_model(tmp_path / "m.onnx", {}).graph
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph.tensors["c"].shape == (side, side)
    assert graph.tensors["y"].shape == (2, None)
    assert most < 30_000_000


def test_what_the_reference_implementation_cannot_do_is_unknown():
    nodes = [
        node("Reshape", "five,wrong", "a"),
        node("Gather", "five,far", "b"),
        helper.make_node("Mystery", ["five"], ["c"], domain="example"),
        node("NoSuchOperator", "five", "d"),
    ]
    weights = {"five": np.zeros(5, np.float32), "wrong": np.array([7]), "far": np.array(99)}
    found = values_of(nodes, weights=weights)
    assert [found.find(name) for name in "abcd"] == [None] * 4


def test_a_division_by_zero_does_not_raise():
    with np.errstate(all="raise"):
        values_of([node("Div", "one,zero", "y")], weights={"one": np.array(1), "zero": np.array(0)}).find("y")
        float_value = values_of([node("Div", "a,b", "y")], weights={"a": np.float32(1), "b": np.float32(0)}).find("y")
    assert np.isinf(float_value)


def test_given_inputs_are_values():
    found = values_of([node("Mul", "x,two", "y")], weights={"two": np.array(2)}, given={"x": np.array([3, 5])})
    assert found.find("y").tolist() == [6, 10]


def test_a_given_value_wins_over_the_default_in_the_file():
    """An initializer that is listed among the inputs is a default."""
    found = values_of([node("Neg", "w", "y")], weights={"w": np.array(2)}, given={"w": np.array(7)})
    assert found.find("y").item() == -7


def test_a_weight_whose_payload_was_not_read_has_no_value():
    bare = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000])
    assert stored_value(bare) is None
    empty = onnx.TensorProto(name="w", data_type=TensorProto.INT64, dims=[0])
    assert stored_value(empty).shape == (0,)
    aside = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    aside.ClearField("raw_data")
    aside.data_location = TensorProto.EXTERNAL
    assert stored_value(aside) is None
    assert stored_value(helper.make_tensor("w", INT64, [2], [3, 5])).tolist() == [3, 5]


def test_an_if_on_constants_has_the_value_of_its_branch(tmp_path):
    branches = [
        helper.make_graph([node("Add", "two,two", "r")], "b", [], [helper.make_empty_tensor_value_info("r")]),
        helper.make_graph([node("Mul", "two,five", "r")], "b", [], [helper.make_empty_tensor_value_info("r")]),
    ]
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1], name="if")
    proto = model([choice, node("ConstantOfShape", "y", "z")], {"x": (3,)}, {"z": None},
                  {"c": np.array(False), "two": np.array([2]), "five": np.array([5])})  # fmt: skip
    proto.graph.node[1].name = "fill"
    onnx.save(proto, tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx", {}).graph.tensors["z"].shape == (10,)


def test_nodes_that_differ_by_their_names_are_evaluated_once():
    evaluation._kept.cache_clear()
    nodes = [node("Add", "two,three", f"y{index}") for index in range(11)]
    found = values_of(nodes, weights={"two": np.array(2), "three": np.array(3)})
    assert {int(found.find(f"y{index}")) for index in range(11)} == {5}
    assert evaluation._kept.cache_info().misses == 1


def test_a_result_of_the_same_bytes_in_another_type_or_shape_is_another():
    """Eight zero bytes are one int64, two float32, or a matrix of them: the sizes differ."""
    weights = {"a": np.zeros(1, np.int64), "b": np.zeros(2, np.float32), "c": np.zeros((1, 2), np.float32)}
    found = values_of([node("NonZero", name, f"y{name}") for name in weights], weights=weights)
    assert [found.find(f"y{name}").shape for name in weights] == [(1, 0), (1, 0), (2, 0)]
