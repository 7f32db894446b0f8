"""02 through main: unbound dimensions, bodies, shapes that depend on values, upper bounds."""

from __future__ import annotations

import importlib
import re
from functools import partial

import numpy as np
import onnx
import pandas as pd
import pytest
import sympy
from onnx import TensorProto, helper

from common.messages.errors import UnusableValueError
from common.onnx_graph.counts import BOUNDED, FIGURES
from models.small.control_flow import (
    build_tiny_if,
    build_tiny_loop,
    build_tiny_loop_condition,
    build_tiny_loop_input,
    build_tiny_loop_nested,
    build_tiny_scan,
)
from models.transformers.bert import build_bert, build_tiny_bert
from models.transformers.vit import build_tiny_vit
from tests.support.models.onnx_models import Typed, model, weight

stage = importlib.import_module("02_shapes_flops_bytes")
BATCH, SEQ = sympy.symbols("batch seq", integer=True, positive=True)


EXPRESSED = [name for name in FIGURES if name != "dequantized"]  # whose columns have an expression beside them


@pytest.fixture
def run(tmp_path, capsys):
    """op_metrics of a model and what 02 printed."""

    def metrics_of(proto, *flags):
        path = tmp_path / "model.onnx"
        if isinstance(proto, onnx.ModelProto):
            onnx.save(proto, path)
        else:
            path = proto
        assert stage.main(["--model", str(path), "--out", str(tmp_path / "out"), *map(str, flags)]) == 0
        table = pd.read_csv(tmp_path / "out" / "op_metrics.csv", index_col="source_node", keep_default_na=False,
                            na_values=[""])  # fmt: skip
        return table, capsys.readouterr()

    return metrics_of


def refused(tmp_path, proto, *flags):
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(UnusableValueError) as caught:
        stage.main(["--model", str(tmp_path / "model.onnx"), "--out", str(tmp_path / "out"), *map(str, flags)])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    return str(caught.value)


def total(metrics, figure):
    """Sum of a column of numbers and expressions, as a polynomial."""
    symbols = {"batch": BATCH, "seq": SEQ}
    texts = metrics[f"{figure}_expression"].dropna()
    known = metrics[figure].dropna().sum()
    return sympy.expand(sum(sympy.sympify(text, locals=symbols) for text in texts) + int(known))


# --- unbound dimensions ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "width", "heads", "feed"), [(2, 21, 3, 37), (3, 22, 2, 31)], ids=["tiny", "three layers"]
)
def test_the_macs_of_bert_are_an_exact_polynomial(run, layers, width, heads, feed):
    """Per layer and token 4·w² + 2·w·f for the weights, 2·w per pair of tokens for scores and sums of values."""
    proto = build_bert(layers=layers, width=width, heads=heads, feed=feed, vocabulary=97, positions=67)
    metrics, printed = run(proto)
    token, pair = layers * (4 * width**2 + 2 * width * feed), layers * 2 * width
    assert total(metrics, "macs") == token * BATCH * SEQ + pair * BATCH * SEQ**2
    assert f"macs = {pair}*batch*seq**2 + {token}*batch*seq" in printed.out.splitlines()
    products = metrics[metrics["op_type"] == "MatMul"]
    assert products[["macs", "flops", "bytes"]].isna().all(axis=None)
    assert products["macs_expression"].notna().all()
    assert metrics["is_counted"].all()
    assert "note" not in printed.err


@pytest.mark.slow
def test_a_layer_of_bert_base_has_a_twelfth_of_its_polynomial(run):
    """BERT-base has 84934656·batch·seq + 18432·batch·seq² MACs in 12 equal layers."""
    metrics, _ = run(build_bert(layers=1, vocabulary=97, positions=67))
    assert 12 * total(metrics, "macs") == 84_934_656 * BATCH * SEQ + 18_432 * BATCH * SEQ**2


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "seq"), [(1, 7), (3, 29), (5, 113)])
@pytest.mark.parametrize(
    "build", [partial(build_bert, layers=2, width=21, heads=3, feed=37, vocabulary=97, positions=127), build_tiny_scan]
)
def test_bound_dimensions_give_what_the_expressions_say(run, build, batch, seq):
    symbolic, _ = run(build())
    bound, printed = run(build(), "--dim", f"batch={batch}", "--dim", f"seq={seq}")
    assert bound[[f"{name}_expression" for name in EXPRESSED]].isna().all(axis=None)
    assert "batch" not in printed.out
    assert differing(symbolic, bound, {"batch": batch, "seq": seq}) == []


def differing(symbolic, bound, sizes):
    """Figures of nodes that are another number when they are bound than their expressions say."""
    wrong = []
    for name, row in symbolic.iterrows():
        for figure in EXPRESSED:
            text = row[f"{figure}_expression"]
            found = row[figure] if pd.isna(text) else int(sympy.sympify(text).subs(sizes))
            if pd.notna(found) and found != bound.loc[name, figure]:
                wrong.append((name, figure, found, bound.loc[name, figure]))
    return wrong


def test_a_shape_of_constants_symbols_and_data(run):
    """The reshaped tensor is 1 × unknown at every binding; the 1 is a number for the JSON cell."""
    nodes = [
        helper.make_node("Concat", ["one", "width"], ["shape"], name="shape", axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape"),
    ]
    inputs = {"x": ("batch", 1, 6), "width": Typed(TensorProto.INT64, (1,))}
    metrics, _ = run(model(nodes, inputs, {"y": None}, {"one": np.array([1])}))
    assert metrics.loc["reshape", ["input_shapes", "output_shapes"]].tolist() == ['[["batch",1,6],[2]]', "[[1,null]]"]


@pytest.mark.slow
@pytest.mark.parametrize("seq", [7, 29, 31])
def test_a_table_smaller_than_the_samples_is_not_taken_for_a_constant(run, seq):
    """Of 31 positions a slice takes min(seq, 31), which is no polynomial: a smaller seq must not be told 31."""
    symbolic, _ = run(build_tiny_bert())
    bound, _ = run(build_tiny_bert(), "--dim", "batch=3", "--dim", f"seq={seq}")
    assert differing(symbolic, bound, {"batch": 3, "seq": seq}) == []


@pytest.mark.slow
def test_one_dimension_may_be_bound_and_the_other_not(run):
    metrics, printed = run(build_tiny_bert(), "--dim", "seq=13")
    assert total(metrics, "macs") == (6636 * 13 + 84 * 13**2) * BATCH
    assert "macs = 100464*batch" in printed.out.splitlines()


@pytest.mark.slow
def test_a_vision_transformer_is_linear_in_its_batch(run):
    metrics, _ = run(build_tiny_vit())
    per_image, _ = run(build_tiny_vit(), "--dim", "batch=1")
    assert total(metrics, "macs") == int(per_image["macs"].sum()) * BATCH


def test_symbolic_shapes_are_text_in_the_shape_cells(run):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    proto = model([node], {"x": ("batch", "seq", 7)}, {"y": None}, {"w": weight(7, 11)})
    row = run(proto)[0].loc["product"]
    assert row["input_shapes"] == '[["batch","seq",7],[7,11]]'
    assert row["output_shapes"] == '[["batch","seq",11]]'
    assert row["macs_expression"] == "77*batch*seq"
    assert row["flops_expression"] == "154*batch*seq"
    assert row["input_bytes_expression"] == "28*batch*seq"
    assert row["output_bytes_expression"] == "44*batch*seq"
    assert row["weight_bytes"] == 4 * 77
    assert pd.isna(row["macs"])


@pytest.mark.slow
def test_a_dimension_that_follows_no_polynomial_is_unknown_and_said_so(run):
    """A convolution by 2 halves the height, rounded: no polynomial; bound, it is known."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", strides=[2, 1])
    proto = model([node], {"x": (1, 3, "height", 13)}, {"y": None}, {"w": weight(7, 3, 3, 5)})
    metrics, printed = run(proto)
    assert metrics.loc["conv", "output_shapes"] == "[[1,7,null,9]]"
    assert metrics.loc["conv", ["macs", "macs_expression", "flops", "flops_expression"]].isna().all()
    assert "Conv (1)" in printed.err
    assert "macs = 0" not in printed.out
    bound, _ = run(proto, "--dim", "height=17")
    assert bound.loc["conv", "macs"] == 8 * 9 * 7 * 3 * 15


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_loop_counts_its_body_once_per_trip(run):
    """7 trips of 3×11 by 11×11, and once 3×13 by 13×11 in front."""
    metrics, printed = run(build_tiny_loop(), "--dim", "batch=3")
    inside = metrics[metrics["body"].notna()]
    assert set(inside["body"]) == {"/Loop.body"}
    assert set(inside["execution_count"]) == {7}
    products = metrics[metrics["op_type"] == "MatMul"]
    assert sorted(products["macs"]) == [3 * 13 * 11, 7 * 3 * 11 * 11]
    assert metrics.loc[inside.index[inside["op_type"] == "MatMul"], "weight_bytes"].item() == 7 * 4 * 121
    assert "at most" not in printed.out
    assert "note" not in printed.err


def test_nested_loops_multiply(run):
    metrics, _ = run(build_tiny_loop_nested(), "--dim", "batch=3")
    products = metrics[metrics["op_type"] == "MatMul"]
    assert sorted(products["execution_count"]) == [5, 15]
    assert sorted(products["macs"]) == [5 * 3 * 121, 15 * 3 * 121]


@pytest.mark.slow
def test_a_scan_runs_as_often_as_its_sequence_is_long(run):
    metrics, printed = run(build_tiny_scan())
    assert total(metrics, "macs") == 2 * (13 * 11 + 11 * 11) * BATCH * SEQ
    assert "macs = 528*batch*seq" in printed.out.splitlines()
    bound, _ = run(build_tiny_scan(), "--dim", "batch=3", "--dim", "seq=5")
    assert set(bound.loc[bound["body"].notna(), "execution_count"]) == {5}
    assert bound["macs"].sum() == 528 * 3 * 5


def test_an_unknown_branch_is_empty_and_the_larger_one_bounds(run):
    """3 × (13·29 + 29·11) against 3 × 13·11 MACs; the larger branch also rectifies 3·29 values."""
    metrics, printed = run(build_tiny_if(), "--dim", "batch=3")
    inside = metrics[metrics["body"].notna()]
    assert inside["execution_count"].isna().all()
    assert inside[["flops", "bytes"]].isna().all(axis=None)
    larger = inside[inside["is_in_bound"]]
    assert set(larger["body"]) == {"/If.then_branch"}
    assert larger["upper_bound_macs"].sum() == 3 * (13 * 29 + 29 * 11) == 2088
    assert larger["upper_bound_flops"].sum() == 2 * 2088 + 3 * 29
    smaller = inside[~inside["is_in_bound"]]
    assert set(smaller["body"]) == {"/If.else_branch"}
    assert smaller["upper_bound_macs"].sum() == 3 * 13 * 11
    assert "at most 2.09 k MACs, 4.26 k FLOPs, 4.46 kB moved, including nodes whose work depends on data" in printed.out
    assert "note: how often they run depends on data: MatMul (3), Relu (2)" in printed.err


@pytest.mark.parametrize(("wide", "macs"), [(True, 3 * (13 * 29 + 29 * 11)), (False, 3 * 13 * 11)])
def test_the_value_of_the_condition_tells_the_branch(run, tmp_path, wide, macs):
    np.save(tmp_path / "wide.npy", np.array(wide))
    metrics, printed = run(build_tiny_if(), "--dim", "batch=3", "--input", f"wide={tmp_path / 'wide.npy'}")
    assert metrics["macs"].sum() == macs
    assert set(metrics["body"].dropna()) == {"/If.then_branch" if wide else "/If.else_branch"}
    assert "note" not in printed.err
    assert "at most" not in printed.out


def test_trips_from_an_input_are_unknown_until_it_is_given(run, tmp_path):
    metrics, printed = run(build_tiny_loop_input(), "--dim", "batch=3")
    inside = metrics[metrics["body"].notna()]
    assert inside["execution_count"].isna().all()
    assert inside.loc[inside["op_type"] == "MatMul", ["macs", "upper_bound_macs"]].isna().all(axis=None)
    assert "at most" not in printed.out
    np.save(tmp_path / "trips.npy", np.array(17))
    metrics, _ = run(build_tiny_loop_input(), "--dim", "batch=3", "--input", f"trips={tmp_path / 'trips.npy'}")
    assert metrics["macs"].sum() == 3 * 13 * 11 + 17 * 3 * 121


def test_a_loop_until_the_data_say_stop_is_bounded_by_its_most_trips(run):
    metrics, printed = run(build_tiny_loop_condition(), "--dim", "batch=3")
    product = metrics[metrics["op_type"] == "MatMul"].iloc[0]
    assert pd.isna(product["macs"])
    assert product["upper_bound_macs"] == 1000 * 3 * 121
    assert "at most 363 k MACs" in printed.out


@pytest.mark.parametrize("build", [build_tiny_if, build_tiny_loop_condition])
@pytest.mark.parametrize("flags", [[], ["--dim", "batch=3"]], ids=["unbound", "bound"])
def test_unknown_is_never_printed_as_zero(run, build, flags):
    _, printed = run(build(), *flags)
    totals = [line for line in printed.out.splitlines() if line.startswith(("total", "macs"))]
    assert all(not re.search(r"(=|^total +\d+) +0\b", line) for line in totals), printed.out


# --- values ---------------------------------------------------------------------------------------------------------


def reshaped():
    """x of 3·5·7 elements in a shape that an input tells, times a weight of 7 columns."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], name="reshape"),
        helper.make_node("Relu", ["r"], ["y"], name="relu"),
        helper.make_node("Tile", ["x", "repeats"], ["t"], name="tile"),
    ]
    inputs = {"x": (3, 5, 7), "shape": Typed(TensorProto.INT64, (2,)), "repeats": Typed(TensorProto.INT64, (3,))}
    return model(nodes, inputs, {"y": None, "t": None})


@pytest.mark.slow
def test_given_values_make_shapes_known(run, tmp_path):
    metrics, printed = run(reshaped())
    assert metrics.loc["tile", ["bytes", "output_bytes", "upper_bound_bytes"]].isna().all()
    assert metrics.loc["relu", "output_shapes"] == "[[null,null]]"
    np.save(tmp_path / "s.npy", np.array([15, 7]))
    np.save(tmp_path / "r.npy", np.array([2, 1, 3]))
    flags = "--input", f"shape={tmp_path / 's.npy'}", "--input", f"repeats={tmp_path / 'r.npy'}"
    metrics, printed = run(reshaped(), *flags)
    assert metrics.loc["relu", "output_shapes"] == "[[15,7]]"
    assert metrics.loc["tile", "output_shapes"] == "[[6,5,21]]"
    assert metrics.loc["tile", "output_bytes"] == 4 * 6 * 5 * 21
    assert metrics.loc["relu", "flops"] == 105
    assert "note" not in printed.err


def test_a_given_array_binds_the_dimensions_of_its_input(run, tmp_path):
    np.save(tmp_path / "ids.npy", np.zeros((3, 11), np.int64))
    metrics, _ = run(build_tiny_bert(), "--input", f"input_ids={tmp_path / 'ids.npy'}")
    assert metrics["macs"].sum() == 6636 * 3 * 11 + 84 * 3 * 11**2


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros((3,), np.int64), r"shape \[3\], the model takes \[2\]"),
        (np.zeros((2,), np.float32), "type float32, the model takes int64"),
        (None, "no such file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, array, wanted):
    file = tmp_path / "s.npy"
    if array is not None:
        np.save(file, array)
    assert re.search(wanted, refused(tmp_path, reshaped(), "--input", f"shape={file}"))


def test_an_input_that_the_model_has_not_is_refused(tmp_path):
    np.save(tmp_path / "s.npy", np.zeros(2, np.int64))
    text = refused(tmp_path, reshaped(), "--input", f"form={tmp_path / 's.npy'}")
    assert text.startswith("--input: the model has no input form")


def test_a_value_that_does_not_fit_is_refused_before_anything_is_computed_from_it(tmp_path, recwarn):
    """The value of a tensor that is no input, of a type that a Cast would warn of."""
    cast = helper.make_node("Cast", ["shape"], ["form"], name="cast", to=TensorProto.INT64)
    shaped = helper.make_node("Reshape", ["x", "form"], ["y"], name="reshape")
    proto = model([cast, shaped], {"x": (6,), "shape": Typed(TensorProto.FLOAT, (2,))}, {"y": None})
    np.save(tmp_path / "s.npy", np.ones(2, np.complex64))
    text = refused(tmp_path, proto, "--input", f"shape={tmp_path / 's.npy'}")
    assert "type complex64, the model takes float32" in text
    assert not recwarn.list


def test_what_depends_on_data_has_a_bound_and_is_in_no_total(run):
    """At most 5·7 of the elements are not zero: indices of 2 × 35 int64, whose absolute values are 70 FLOPs."""
    nodes = [helper.make_node("NonZero", ["x"], ["z"], name="find"), helper.make_node("Abs", ["z"], ["y"], name="abs")]
    metrics, printed = run(model(nodes, {"x": (5, 7)}, {"y": Typed(TensorProto.INT64, None)}))
    assert pd.isna(metrics.loc["abs", "flops"])
    assert metrics.loc["abs", "upper_bound_flops"] == 70
    assert metrics.loc["abs", "upper_bound_bytes"] == 2 * 8 * 70
    assert metrics.loc["abs", "output_shapes"] == "[[2,null]]"
    assert "at most" in printed.out
    assert {f"upper_bound_{name}" for name in BOUNDED} <= set(metrics.columns)


def router(width):
    """The tokens that a router of 4 experts sends to the first go through its weight; the router's own has 16·width
    bytes, of which the scan keeps 1,024 at most."""
    nodes = [
        helper.make_node("MatMul", ["x", "r"], ["scores"], name="scores"),
        helper.make_node("ArgMax", ["scores"], ["best"], name="best", axis=1, keepdims=0),
        helper.make_node("Not", ["flags"], ["first"], name="first"),
        helper.make_node("Cast", ["best"], ["flags"], name="flags", to=TensorProto.BOOL),
        helper.make_node("NonZero", ["first"], ["found"], name="nonzero"),
        helper.make_node("Squeeze", ["found", "zero"], ["rows"], name="squeeze"),
        helper.make_node("Gather", ["x", "rows"], ["chosen"], name="gather"),
        helper.make_node("MatMul", ["chosen", "w"], ["y"], name="expert"),
    ]
    nodes[2:4] = nodes[3:1:-1]
    weights = {"r": weight(width, 4), "w": weight(width, 3), "zero": np.array([0])}
    return model(nodes, {"x": (7, width)}, {"y": None}, weights)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "is_settled"), [(64, True), (65, False)])
def test_the_note_claims_that_inputs_settle_a_shape_only_where_they_do(run, tmp_path, width, is_settled):
    _, printed = run(router(width))
    assert ("give values with --input" in printed.err) is is_settled
    assert "03_merge_profile_metrics.py counts them by the shapes that run" in printed.err
    np.save(tmp_path / "x.npy", np.zeros((7, width), np.float32))
    metrics, _ = run(router(width), "--input", f"x={tmp_path / 'x.npy'}")
    assert metrics["macs"].isna().any() == (not is_settled)


def test_the_cost_of_an_if_whose_branches_cost_the_same_is_known(run):
    sides = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w{side}"], ["r"], name=f"product{side}")],
            f"side{side}",
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        )
        for side in (1, 2)
    ]
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=sides[0], else_branch=sides[1])
    inputs = {"x": (3, 5), "c": Typed(TensorProto.BOOL, ())}
    metrics, printed = run(model([node], inputs, {"y": None}, {"w1": weight(5, 11), "w2": weight(5, 11)}))
    assert metrics["macs"].sum() == 165
    assert "leave out" not in printed.out + printed.err
    assert "at most" not in printed.out
