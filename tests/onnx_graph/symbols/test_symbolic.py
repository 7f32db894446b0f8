"""Expressions over unbound dimensions: they are what any binding gives, or unknown."""

from __future__ import annotations

import cProfile
from functools import partial
from itertools import pairwise

import numpy as np
import onnx
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from common.graphs.expressions import at, dimension
from common.onnx_graph.counts import FIGURES, count_nodes
from common.onnx_graph.load import load_model
from common.onnx_graph.shapes.node_inference import infer_node
from common.onnx_graph.shapes.types import TensorType
from common.onnx_graph.symbols.symbolic import sample_bindings, with_symbols
from models.classifiers.densenet121 import build_tiny_densenet
from models.small.control_flow import build_tiny_loop, build_tiny_loop_nested, build_tiny_scan
from models.small.functions import build_tiny_functions
from models.small.recurrent import build_tiny_gru, build_tiny_lstm, build_tiny_rnn
from models.small.tiny import build_tiny_cnn, build_tiny_mlp, build_tiny_transformer, build_tiny_two_inputs
from models.transformers.bert import build_bert
from models.transformers.vit import build_tiny_vit
from tests.support.models.onnx_models import FLOAT, Typed, model, weight


def fitted(names, extent):
    """What is made of one dimension that is ``extent`` of the symbols."""
    samples = [({"y": TensorType(FLOAT, (extent(**sample),))}, {}) for sample in sample_bindings(names)]
    return with_symbols(samples, names)[0]["y"].shape[0]


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (lambda a, b: 7, "7"),
        (lambda a, b: a, "a"),
        (lambda a, b: a * b, "a*b"),
        (lambda a, b: a * a, "a**2"),
        (lambda a, b: 3 * a + 5, "3*a + 5"),
        (lambda a, b: a + b, "a + b"),
        (lambda a, b: a - b + 100, "a - b + 100"),
        (lambda a, b: 12 * a * b, "12*a*b"),
        (lambda a, b: a * (b + 1), "a*(b + 1)"),
        (lambda a, b: a * (2 * a + 3 * b - 1), "a*(2*a + 3*b - 1)"),
        (lambda a, b: 5 * a * b * (a + 7), "5*a*b*(a + 7)"),
    ],
)
def test_products_and_affine_forms_are_found(extent, expected):
    found = fitted(("a", "b"), extent)
    assert str(found) == str(sympy.expand(sympy.sympify(expected)))


@pytest.mark.parametrize(
    "extent",
    [
        lambda a, b: (a - 1) // 2 + 1,
        lambda a, b: a % 5,
        lambda a, b: max(b, a),
        lambda a, b: 2 * (a // 2),
        lambda a, b: 2 * -(-b // 2) * a,
        lambda a, b: min(a, 10),
        lambda a, b: min(b, a),
        lambda a, b: a // b + 1,
        lambda a, b: a**4,
        lambda a, b: None if a > 7 else a,
    ],
)
def test_what_is_no_such_form_is_unknown(extent):
    assert fitted(("a", "b"), extent) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.lists(st.sampled_from("abc"), max_size=2),
    st.lists(st.integers(1, 500), min_size=3, max_size=3),
)
def test_an_expression_holds_at_any_binding(coefficients, monomial, sizes):
    """m·(1 + p·a + q·b + r·c) for every monomial m of degree at most two."""
    names = ("a", "b", "c")

    def extent(**dims):
        affine = 1 + sum(factor * dims[name] for factor, name in zip(coefficients, names, strict=True))
        for name in monomial:
            affine *= dims[name]
        return affine

    found = fitted(names, extent)
    binding = dict(zip(names, sizes, strict=True))
    assert at(found, binding) == extent(**binding)


def test_a_rank_that_changes_is_unknown():
    names = ("a",)
    samples = [({"y": TensorType(FLOAT, (3,) * (index + 1))}, {}) for index, _ in enumerate(sample_bindings(names))]
    assert with_symbols(samples, names)[0]["y"].shape is None


def test_the_samples_tell_the_symbols_apart():
    """At each but that of ones no two dimensions, and no dimension and product of two others, are equal."""
    for sample in (sample for sample in sample_bindings(("a", "b", "c")) if {*sample.values()} != {1}):
        sizes = list(sample.values())
        products = [one * other for place, one in enumerate(sizes) for other in sizes[place:]]
        assert len({*sizes, *products}) == 3 + 6
    assert {tuple(sample) for sample in sample_bindings(("a", "b", "c"))} == {("a", "b", "c")}
    assert sample_bindings(()) == [{}]


@pytest.mark.parametrize(("limit", "expected"), [(25, 25), (31, 31), (512, 512)])
def test_a_dimension_that_a_table_limits_is_the_smaller_one(limit, expected):
    found = fitted(("a", "b"), lambda a, b: min(a, limit))
    assert [at(found, {"a": size}) for size in (3, expected, 2000)] == [3, expected, expected]


def test_what_has_no_shape_at_large_sizes_is_what_the_small_ones_say():
    assert str(fitted(("a", "b"), lambda a, b: a + 2 * b if a < 500 else None)) == "a + 2*b"


def figures_of(path, sizes=None):
    loaded = load_model(path, sizes or {}, symbolic=sizes is None)
    return loaded, {one.node.name: one for one in count_nodes(loaded.graph, loaded.bounds)}


SMALL_BERT = partial(build_bert, layers=1, width=21, heads=3, feed=37, vocabulary=97, positions=127)
BUILDERS = [SMALL_BERT, build_tiny_vit, build_tiny_cnn, build_tiny_mlp, build_tiny_transformer, build_tiny_two_inputs,
            build_tiny_lstm, build_tiny_gru, build_tiny_rnn, build_tiny_densenet, build_tiny_functions,
            build_tiny_loop, build_tiny_loop_nested, build_tiny_scan]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: getattr(build, "__name__", "bert"))
def test_expressions_agree_with_bound_models(tmp_path, build):
    """At three bindings that no sample used; every figure of every node, and every shape."""
    onnx.save(build(), tmp_path / "m.onnx")
    loaded, symbolic = figures_of(tmp_path / "m.onnx")
    assert loaded.unbound
    for sizes in ((1, 2), (3, 5), (12, 110)):
        binding = dict(zip(loaded.unbound, sizes, strict=False))
        bound, numbers = figures_of(tmp_path / "m.onnx", binding)
        assert list(numbers) == list(symbolic)
        for name, one in symbolic.items():
            for figure in FIGURES:
                found = one.figure(figure)
                assert found is not None, (name, figure)
                assert at(found, binding) == numbers[name].figure(figure), (name, figure, found, binding)
        for name, tensor in loaded.graph.tensors.items():
            shape = tuple(at(dim, binding) for dim in tensor.shape)
            assert shape == bound.graph.tensors[name].shape, name


@pytest.mark.parametrize(
    "name",
    ["N", "S", "E", "I", "Q", "O", "pi", "beta", "gamma", "zeta", "lambda", "batch size", "None", "seq-len", "x.0"],
)
def test_any_name_may_be_a_symbol(tmp_path, name):
    """Python and SymPy have objects of most of these names; (name, 7) by 7×11 has 77·name MACs."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    onnx.save(model([node], {"x": (name, 7)}, {"y": None}, {"w": weight(7, 11)}), tmp_path / "m.onnx")
    loaded, counted = figures_of(tmp_path / "m.onnx")
    extent, width = loaded.graph.tensors["y"].shape
    assert str(extent) == (name if name.isidentifier() else f"'{name}'")  # a-b would read as a difference
    assert counted["product"].figure("macs") == 77 * dimension(name) == 77 * extent
    assert width == 11


def test_two_inputs_that_share_a_dimension_share_a_symbol(tmp_path):
    nodes = [helper.make_node("Gemm", ["x", "y"], ["z"], name="gemm", transA=1)]
    onnx.save(model(nodes, {"x": ("k", "m"), "y": ("k", "n")}, {"z": None}), tmp_path / "m.onnx")
    loaded, counted = figures_of(tmp_path / "m.onnx")
    assert loaded.unbound == ("k", "m", "n")
    assert str(counted["gemm"].figure("macs")) == "k*m*n"
    assert [str(dim) for dim in loaded.graph.tensors["z"].shape] == ["m", "n"]


def test_an_unfit_dimension_is_unknown_and_so_is_what_depends_on_it(tmp_path):
    """⌊(h − 3) / 2⌋ + 1 rows: the batch in front of it stays a symbol."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="pool"),
    ]
    proto = model(nodes, {"x": ("batch", 3, "h", 13)}, {"y": None}, {"w": weight(7, 3, 3, 3)})
    onnx.save(proto, tmp_path / "m.onnx")
    loaded, counted = figures_of(tmp_path / "m.onnx")
    batch, channels, rows, columns = loaded.graph.tensors["c"].shape
    assert (str(batch), channels, rows, columns) == ("batch", 7, None, 6)
    assert [counted[name].figure("flops") for name in ("conv", "relu")] == [None, None]
    assert [str(dim) for dim in loaded.graph.tensors["y"].shape] == ["batch", "7", "1", "1"]


def test_a_reshape_multiplies_symbols(tmp_path):
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["r"], name="reshape"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    weights = {"flat": np.array([-1, 7]), "w": weight(7, 11)}
    onnx.save(model(nodes, {"x": ("batch", "seq", 7)}, {"y": None}, weights), tmp_path / "m.onnx")
    loaded, counted = figures_of(tmp_path / "m.onnx")
    assert str(loaded.graph.tensors["r"].shape[0]) == "batch*seq"
    assert str(counted["product"].figure("macs")) == "77*batch*seq"


@pytest.mark.parametrize("height", [8, 9, 64])
def test_halving_and_doubling_is_not_taken_for_a_difference(tmp_path, height):
    """Pooled by 2 and doubled again, 9 rows are 8 and 8 rows are 8: no polynomial."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["p", "w"], ["y"], name="up", strides=[2, 2]),
    ]
    proto = model(nodes, {"x": (1, 3, "h", 14)}, {"y": None}, {"w": weight(3, 7, 2, 2)})
    onnx.save(proto, tmp_path / "m.onnx")
    loaded, _ = figures_of(tmp_path / "m.onnx")
    bound, _ = figures_of(tmp_path / "m.onnx", {"h": height})
    assert bound.graph.tensors["y"].shape == (1, 7, height // 2 * 2, 14)
    rows = loaded.graph.tensors["y"].shape[2]
    assert rows is None or at(rows, {"h": height}) == height // 2 * 2


def test_an_expression_without_symbols_is_a_plain_number():
    """A number of SymPy's own would reach a JSON cell, which cannot hold it. The model has no shapes at large sizes."""
    assert type(fitted(("a", "b"), lambda a, b: 7 if a < 1_000 else None)) is int


def times_inferred(path, dimensions):
    """How often a node is inferred by itself while a model is loaded."""
    profile = cProfile.Profile()
    profile.runcall(load_model, path, dimensions, symbolic=True)
    profile.create_stats()
    return sum(figures[1] for (_, line, name), figures in profile.stats.items() if (line, name) == _PLACE)


_PLACE = (infer_node.__code__.co_firstlineno, infer_node.__name__)


def test_what_is_unknown_at_one_binding_is_not_sought_at_the_others(tmp_path):
    path, names = tmp_path / "tiled.onnx", [f"r{index}" for index in range(17)]
    nodes = [helper.make_node("Tile", ["x", "repeats"], [names[0]], name="tile")]
    nodes += [helper.make_node("Relu", [one], [other], name=other) for one, other in pairwise(names)]
    inputs = {"x": ("a", "b", 5), "repeats": Typed(onnx.TensorProto.INT64, (3,))}
    onnx.save(model(nodes, inputs, {names[-1]: (None, None, None)}), path)
    assert times_inferred(path, {}) == times_inferred(path, {"a": 2, "b": 3})


def test_what_does_not_depend_on_an_unbound_dimension_is_inferred_once(tmp_path):
    """A mask of 13×13 is computed from a fixed extent of an input whose batch is unbound.

    The input is too large for ONNX to propagate values, so each node of the mask is inferred by itself.
    """
    path, names = tmp_path / "masked.onnx", [f"r{index}" for index in range(17)]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "one"], ["side"], name="side"),
        helper.make_node("Concat", ["side", "side"], ["square"], name="square", axis=0),
        helper.make_node("ConstantOfShape", ["square"], [names[0]], name="mask"),
        *(helper.make_node("Relu", [one], [other], name=other) for one, other in pairwise(names)),
    ]
    inputs = {"x": ("batch", 13, 70_001)}
    onnx.save(model(nodes, inputs, {names[-1]: (None, None)}, {"one": np.array([1])}), path)
    bound = times_inferred(path, {"batch": 2})
    assert bound >= len(names)
    assert times_inferred(path, {}) == bound
    assert load_model(path, {}, symbolic=True).graph.tensors[names[-1]].shape == (13, 13)


def test_a_value_that_follows_from_an_unbound_dimension_is_followed_where_no_type_tells_it(tmp_path):
    """``target`` has two elements at every batch; only its value tells that rows are 3·batch."""
    path, names = tmp_path / "made.onnx", ["made", "r0", "r1"]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], name="rows"),
        helper.make_node("Mul", ["rows", "three"], ["tripled"], name="tripled"),
        helper.make_node("Concat", ["tripled", "five"], ["target"], name="target", axis=0),
        helper.make_node("ConstantOfShape", ["target"], ["made"], name="made"),
        *(helper.make_node("Relu", [one], [other], name=other) for one, other in pairwise(names)),
    ]
    numbers = {"zero": np.array([0]), "three": np.array([3]), "five": np.array([5])}
    onnx.save(model(nodes, {"x": ("batch", 70_001)}, {"r1": (None, None)}, numbers), path)
    graph = load_model(path, {}, symbolic=True).graph
    assert [str(graph.tensors[name].shape) for name in names] == ["(3*batch, 5)"] * 3


def test_bounds_that_complete_no_shape_are_not_kept(tmp_path):
    """Repeats that are data have no bound, so a graph of bounds would tell nothing."""
    path = tmp_path / "tiled.onnx"
    nodes = [helper.make_node("Tile", ["x", "repeats"], ["y"], name="tile")]
    inputs = {"x": ("a", 5), "repeats": Typed(onnx.TensorProto.INT64, (2,))}
    onnx.save(model(nodes, inputs, {"y": (None, None)}), path)
    assert load_model(path, {}, symbolic=True).bounds is None


def test_a_shape_that_depends_on_data_in_one_axis_keeps_its_other_expressions(tmp_path):
    path = tmp_path / "compressed.onnx"
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["y"], name="compress", axis=1),
        helper.make_node("Flatten", ["y"], ["z"], name="flat", axis=2),
    ]
    inputs = {"x": ("a", "b", 5), "chosen": Typed(onnx.TensorProto.BOOL, ("b",))}
    onnx.save(model(nodes, inputs, {"z": (None, None)}), path)
    loaded = load_model(path, {}, symbolic=True)
    assert str(loaded.graph.tensors["z"].shape) == "(None, 5)"
    assert str(loaded.bounds.tensors["z"].shape) == "(a*b, 5)"
