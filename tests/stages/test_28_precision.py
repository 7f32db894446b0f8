"""Formats from end to end: what plain ONNX Runtime and numpy find for the same model and samples, and bad input."""

from __future__ import annotations

import importlib
import shutil
import zipfile

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from onnx import TensorProto, helper

from benchmarks.plans import integer_reference
from common.messages.errors import PipelineError
from common.precision.judgement.samples import SampleFiles, Samples, divided, loaded_samples
from tests.support.models.endless_models import doubled
from tests.support.models.onnx_models import Typed, model
from tests.support.models.trained_perceptron import CLASSES, FEATURES, clouds, saved

STAGE = importlib.import_module("28_precision")
SHAPES = importlib.import_module("02_shapes_flops_bytes")


@pytest.fixture
def judged(tmp_path):
    """Run the stage on a model, and return both tables."""

    def run(network, *flags):
        STAGE.main(["--model", str(network), "--out", str(tmp_path / "out"), "--threads", "1", *map(str, flags)])
        return [pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("precision", "precision_layers")]

    return run


def test_the_table_is_what_plain_onnxruntime_finds_on_the_samples_that_judge(judged, tmp_path):
    network, archive = saved(tmp_path)
    table, layers = judged(network, "--samples", archive)
    points, classes = clouds(120, seed=2)
    _, judging = divided(Samples([{"x": points[one : one + 1]} for one in range(120)], 1, "given", classes), 0)
    x = np.concatenate([feeds["x"] for feeds in judging.feeds])
    rounding = onnxruntime.SessionOptions()
    rounding.add_session_config_entry("session.disable_quant_qdq", "1")
    quantized = tmp_path / "out/quantized.onnx"
    exact, short, on_kernels = (
        onnxruntime.InferenceSession(path, options).run(None, {"x": x})[0]
        for path, options in ((network, None), (quantized, rounding), (quantized, None))
    )
    written = table[table["is_written_model"]].iloc[0]
    noise = ((exact - on_kernels) ** 2).sum()
    assert written["kernel_sqnr_db"] == pytest.approx(10 * np.log10((exact**2).sum() / noise), abs=0.01)
    assert (written["judged_sample_count"], written["calibration_sample_count"]) == (len(x), 120 - len(x)) == (88, 32)
    assert written["sqnr_db"] == pytest.approx(10 * np.log10((exact**2).sum() / ((exact - short) ** 2).sum()), abs=0.01)
    assert written["max_abs_error"] == pytest.approx(np.abs(exact - short).max(), rel=1e-3)
    assert written["top1_agreement_share"] == (exact.argmax(1) == short.argmax(1)).mean()
    assert written["accuracy_share"] == (short.argmax(1) == judging.labels).mean()
    given = table[table["quantization_scheme"] == "as given"].iloc[0]
    assert given["accuracy_share"] == (exact.argmax(1) == judging.labels).mean() > 2 / CLASSES
    assert [*layers["source_node"]] == ["first", "second"]
    assert (layers["sqnr_db"] > written["sqnr_db"]).all()


@pytest.mark.slow
def test_the_written_model_is_a_model_as_any_other(judged, tmp_path):
    network, archive = saved(tmp_path, 40)
    judged(network, "--samples", archive)
    again = shutil.copy(tmp_path / "out/quantized.onnx", tmp_path / "again.onnx")
    with pytest.raises(PipelineError, match=r"int8 cannot be made .*its contractions are quantized already"):
        judged(again, "--samples", archive)
    SHAPES.main(["--model", str(tmp_path / "out/quantized.onnx"), "--dim", "N=1", "--out", str(tmp_path / "again")])
    metrics = pd.read_csv(tmp_path / "again" / "op_metrics.csv")
    products = metrics[metrics["op_type"] == "MatMul"]
    assert [*products["macs"]] == [FEATURES * 24, 24 * CLASSES]
    assert (metrics["op_type"] == "QuantizeLinear").any()


def test_random_inputs_judge_nothing(judged, tmp_path, capsys):
    network, _ = saved(tmp_path)
    table, _ = judged(network)
    assert {*table["sample_source"]} == {"random"} and {*table["format_verdict"]} == {"not judged"}
    assert "--samples takes your own" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_bound_that_the_format_misses_breaks_the_model(judged, tmp_path):
    network, archive = saved(tmp_path, outlier=1000.0)
    table, _ = judged(network, "--samples", archive)
    verdicts = table.set_index(["number_format", "quantization_scheme"])["format_verdict"]
    assert verdicts["int8", "per tensor, min-max"] == "breaks"
    assert verdicts["bf16", "operands"] in ("survives", "undecided")
    table, _ = judged(network, "--samples", archive, "--min-sqnr-db", "500")
    is_judged = (table["quantization_scheme"] != "as given") & table["format_problem"].isna()
    assert {*table["format_verdict"][is_judged]} == {"breaks"}


@pytest.mark.slow
def test_a_mixture_keeps_to_the_bound_and_is_what_is_written(judged, tmp_path):
    network, archive = saved(tmp_path, 200)
    judged(
        network, "--samples", archive, "--precision", "int4", "--mixed", "--min-sqnr-db", "18", "--min-agreement", "0.5"
    )
    table = pd.read_csv(tmp_path / "out" / "precision_mixtures.csv")
    written = table[table["is_written_model"]].iloc[0]
    assert written["sqnr_db"] >= 18 and written["converted_node_count"] == 1
    assert written["format_macs_share"] == table["format_macs_share"][table["is_within_bounds"]].max()
    operators = [node.op_type for node in onnx.load(tmp_path / "out/quantized.onnx").graph.node]
    assert operators.count("QuantizeLinear") == 1


@pytest.mark.slow
def test_where_no_mixture_meets_the_bounds_the_tables_stay_and_the_exit_code_says_so(tmp_path, capsys):
    network, archive = saved(tmp_path, 200)
    flags = ("--samples", str(archive), "--precision", "int4", "--mixed", "--min-sqnr-db", "300", "--threads", "1")
    assert STAGE.main(["--model", str(network), "--out", str(tmp_path / "out"), *flags]) == 4
    assert "no mixture of layers meets the bounds" in capsys.readouterr().err
    assert "no mixture of layers meets the bounds" in (tmp_path / "out/precision_mixtures.meta.json").read_text()
    table = pd.read_csv(tmp_path / "out" / "precision_mixtures.csv")
    assert len(table) and not table["is_within_bounds"].any() and not table["is_written_model"].any()
    whole = pd.read_csv(tmp_path / "out" / "precision.csv")
    assert whole["is_written_model"].sum() == 1


def test_an_old_opset_gets_what_the_formats_need(judged, tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["map"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["map", "least", "most"], ["bounded"], "relu6"),
        helper.make_node("Conv", ["bounded", "v"], ["y"], "again"),
    ]
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((4, 4, 3, 3)).astype(np.float32) for name in ("w", "v")}
    weights |= {"b": np.ones(4, np.float32), "least": np.float32(0), "most": np.float32(6)}
    onnx.save(model(nodes, {"x": [1, 4, 9, 9]}, {"y": [1, 4, 7, 7]}, weights, opset=12), tmp_path / "old.onnx")
    table, layers = judged(tmp_path / "old.onnx", "--random", 4)
    made = table[table["format_problem"].isna()].groupby("number_format")["converted_node_count"].max()
    assert made.drop("fp32").to_dict() == dict.fromkeys(("fp16", "bf16", "int16", "int8", "int4"), 2)
    assert {*layers["source_node"]} == {"conv", "again"}


def test_an_old_model_whose_weights_are_no_inputs_is_converted(judged, tmp_path):
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")]
    weights = {"w": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    proto = model(nodes, {"x": [1, 5]}, {"y": [1, 4]}, weights, opset=7)
    proto.ir_version = 3
    onnx.save(proto, tmp_path / "old.onnx")
    table, _ = judged(tmp_path / "old.onnx", "--random", 4)
    made = table[table["format_problem"].isna()].groupby("number_format")["converted_node_count"].max()
    assert made.drop("fp32").to_dict() == dict.fromkeys(("fp16", "bf16", "int16", "int8", "int4"), 1)


def test_a_single_sample_has_wide_limits(judged, tmp_path, capsys):
    network, archive = saved(tmp_path, 1)
    table, _ = judged(network, "--samples", archive, "--all-notes")
    written = table[table["is_written_model"]].iloc[0]
    assert written["top1_agreement_high_share"] - written["top1_agreement_low_share"] > 0.7
    said = capsys.readouterr().err
    assert "1 samples judge" in said and "the samples that judge are those that calibrated" in said


@pytest.mark.slow
def test_layers_beyond_the_budget_are_named(judged, tmp_path, capsys):
    network, archive = saved(tmp_path, 40)
    _, layers = judged(network, "--samples", archive, "--budget", "1ms", "--all-notes")
    assert [*layers["layer_problem"].fillna("")] == ["", "not tried: the budget was spent"]
    assert "1 of 2 layers not tried within --budget: second" in capsys.readouterr().err


def archive_of(folder, **arrays):
    np.savez(folder / "bad.npz", **arrays)
    return folder / "bad.npz"


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x": np.zeros((4, 3), np.float32)}, r"x has shape \[4, 3\], the model takes"),
        ({"x": np.zeros(4, np.float32)}, r"x has shape \[4\], the model takes"),
        ({"x": np.zeros((4, FEATURES))}, "x is float64, the model takes float32"),
        ({"x": np.zeros((0, FEATURES), np.float32)}, "x has 0 samples"),
        ({"y": np.zeros((4, FEATURES), np.float32)}, "the model has no input y"),
        (
            {"x": np.zeros((4, FEATURES), np.float32), "labels": np.zeros(3, int)},
            r"int64 of shape \[3\], and there are 4 samples",
        ),
        ({"x": np.full((4, FEATURES), np.nan, np.float32)}, "output scores in float is NaN or infinite"),
        ({"labels": np.zeros(3, int)}, "holds no samples"),
        ({"x": np.zeros((4, FEATURES), np.float32), "labels": np.full(4, -1)}, f"class -1, but there are {CLASSES}"),
        (
            {"x": np.zeros((4, FEATURES), np.float32), "labels": np.full(4, CLASSES)},
            f"class {CLASSES}, but there are {CLASSES}; give 0 to {CLASSES - 1}",
        ),
    ],
)
def test_samples_that_do_not_fit_are_refused(judged, tmp_path, arrays, problem):
    network, _ = saved(tmp_path)
    with pytest.raises(PipelineError, match=problem):
        judged(network, "--samples", archive_of(tmp_path, **arrays))
    assert not (tmp_path / "out" / "precision.csv").exists()


def test_a_file_that_is_no_archive_is_refused(judged, tmp_path):
    network, _ = saved(tmp_path)
    with pytest.raises(PipelineError, match="cannot be read"):
        judged(network, "--samples", network)
    with pytest.raises(PipelineError, match="is no file"):
        judged(network, "--samples", tmp_path / "absent.npz")
    np.save(tmp_path / "one.npy", np.zeros((4, FEATURES), np.float32))
    with pytest.raises(PipelineError, match="holds one array; give it with"):
        judged(network, "--samples", tmp_path / "one.npy")
    with zipfile.ZipFile(tmp_path / "more.npz", "w") as archive:
        archive.write(tmp_path / "one.npy", "x.npy")
        archive.writestr("readme.txt", "hello")
    with pytest.raises(PipelineError, match=r"more\.npz: readme\.txt is no array"):
        judged(network, "--samples", tmp_path / "more.npz")


def test_an_error_names_the_model_that_was_given(judged, tmp_path):
    network, _ = saved(tmp_path)
    archive = archive_of(tmp_path, x=np.full((4, FEATURES), np.nan, np.float32))
    with pytest.raises(PipelineError, match=rf"^{network}: output scores in float is NaN"):
        judged(network, "--samples", archive)


@pytest.mark.parametrize("place", [3, 4, 5])
def test_a_sample_that_the_model_cannot_take_is_named_by_its_place_in_the_file(judged, tmp_path, place):
    """Of six samples, the three that calibrate are looked at, too: an operator that finds a range passes over NaN."""
    network, _ = saved(tmp_path)
    x = np.zeros((6, FEATURES), np.float32)
    x[place, 2] = np.nan
    with pytest.raises(PipelineError, match=rf"is NaN or infinite \(first in sample {place}\)"):
        judged(network, "--samples", archive_of(tmp_path, x=x))


def test_an_axis_without_samples_is_refused(judged, tmp_path):
    network, archive = saved(tmp_path, 4)
    with pytest.raises(PipelineError, match="the first axis of x is 0"):
        judged(network, "--samples", archive, "--dim", "N=0")


def test_an_endless_number_of_random_samples_is_refused(judged, tmp_path):
    network, _ = saved(tmp_path, 4)
    with pytest.raises(PipelineError, match="give at most 100000"):
        judged(network, "--random", 10**12)


def test_activations_that_no_host_can_hold_are_refused(judged, tmp_path):
    onnx.save(doubled(41), path := tmp_path / "m.onnx")
    problem = rf"^{path}: its activations take 1.35e\+07 GB at n40, and .* GB are free; give smaller sizes"
    with pytest.raises(PipelineError, match=problem):
        judged(path)


def test_an_input_that_is_given_twice_is_refused(judged, tmp_path):
    network, archive = saved(tmp_path, 4)
    np.save(tmp_path / "x.npy", np.zeros((4, FEATURES), np.float32))
    with pytest.raises(PipelineError, match="x is in --samples, too"):
        judged(network, "--samples", archive, "--input", f"x={tmp_path / 'x.npy'}")


def test_labels_without_samples_are_refused(judged, tmp_path):
    network, _ = saved(tmp_path, 4)
    np.save(tmp_path / "labels.npy", np.zeros(4, int))
    with pytest.raises(PipelineError, match="are of samples, and none are given"):
        judged(network, "--labels", tmp_path / "labels.npy")


def test_labels_of_a_file_come_before_those_of_the_archive(judged, tmp_path):
    network, archive = saved(tmp_path, 20)
    np.save(tmp_path / "labels.npy", np.zeros(20, int))
    table, _ = judged(network, "--samples", archive, "--labels", tmp_path / "labels.npy")
    points, _ = clouds(20, seed=2)
    scores = onnxruntime.InferenceSession(network).run(None, {"x": points})[0]
    _, judging = divided(Samples([{"x": points[one : one + 1]} for one in range(20)], 1, "given", scores.argmax(1)), 0)
    given = table[table["quantization_scheme"] == "as given"].iloc[0]
    assert given["accuracy_share"] == pytest.approx((judging.labels == 0).mean())


def test_a_file_of_labels_that_cannot_be_read_is_named_as_labels(judged, tmp_path):
    network, archive = saved(tmp_path, 4)
    np.save(tmp_path / "labels.npy", np.array([None] * 4, object), allow_pickle=True)
    with pytest.raises(PipelineError, match=r"^--labels: .*labels\.npy: holds Python objects"):
        judged(network, "--samples", archive, "--labels", tmp_path / "labels.npy")


def test_inputs_may_take_different_numbers_of_samples_a_run(judged, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "first"),
        helper.make_node("MatMul", ["z", "w"], ["q"], "second"),
        helper.make_node("Identity", ["text"], ["again"], "pass"),
    ]
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((5, 4)).astype(np.float32)}
    inputs = {"x": [1, 5], "z": [4, 5], "text": Typed(TensorProto.STRING, [1])}
    outputs = {"y": [1, 4], "q": [4, 4], "again": Typed(TensorProto.STRING, [1])}
    onnx.save(model(nodes, inputs, outputs, weights), tmp_path / "two.onnx")
    x, z = (random.standard_normal((count, 5)).astype(np.float32) for count in (6, 24))
    table, _ = judged(tmp_path / "two.onnx", "--samples", archive_of(tmp_path, x=x, z=z, text=np.array(["a"] * 6)))
    assert {*table["judged_sample_count"]} == {12}
    with pytest.raises(PipelineError, match="inputs have different numbers of samples: x 6, z 20"):
        judged(tmp_path / "two.onnx", "--samples", archive_of(tmp_path, x=x, z=z[:20]))


def test_an_input_without_axes_takes_a_number_for_each_sample(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "first"),
        helper.make_node("Mul", ["product", "scale"], ["y"], "scaled"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32)}
    onnx.save(model(nodes, {"x": ["N", 4], "scale": []}, {"y": ["N", 4]}, weights), tmp_path / "scale.onnx")
    archive = archive_of(tmp_path, x=np.ones((6, 4), np.float32), scale=np.arange(6, dtype=np.float32))
    _, samples = loaded_samples(tmp_path / "scale.onnx", {}, {}, SampleFiles({}, archive), 1, 0)
    assert [(feeds["scale"].shape, float(feeds["scale"])) for feeds in samples.feeds] == [((), one) for one in range(6)]


def test_a_format_that_overflows_breaks_the_model(judged, tmp_path, capsys):
    """Hidden states have no class that could agree, but infinity is no state."""
    nodes = [
        helper.make_node("Mul", ["x", "large"], ["grown"], "grow"),
        helper.make_node("MatMul", ["grown", "w"], ["y"], "product"),
    ]
    weights = {"w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), "large": np.float32(1e6)}
    onnx.save(model(nodes, {"x": ["N", 3, 4]}, {"y": ["N", 3, 4]}, weights), tmp_path / "large.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((40, 3, 4)).astype(np.float32))
    table, _ = judged(tmp_path / "large.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--precision", "fp16")
    operands = table[(table["number_format"] == "fp16") & (table["quantization_scheme"] == "operands")].iloc[0]
    assert operands["format_verdict"] == "breaks" and np.isnan(operands["sqnr_db"])
    assert "fp16: outputs are NaN or infinite on 20 samples" in capsys.readouterr().out


def test_a_full_disk_is_no_problem_of_a_format(judged, tmp_path, monkeypatch):
    """ONNX's shape inference writes less than it has to, and the quantizer then finds no model."""
    network, archive = saved(tmp_path, 4)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("onnx.load_model_from_string", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("common.precision.conversion.schemes.onnx.save", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("common.precision.conversion.quiet_runs.shutil.disk_usage", lambda _: usage._replace(free=0))
    with pytest.raises(PipelineError, match="the disk is full"):
        judged(network, "--samples", archive)


@pytest.mark.parametrize("raised", [MemoryError(), ImportError("no such module", name="calibrate")])
def test_missing_memory_or_a_missing_package_is_no_problem_of_a_format(judged, tmp_path, monkeypatch, raised):
    def fail(*_, **__):
        raise raised

    network, archive = saved(tmp_path, 4)
    monkeypatch.setattr("onnxruntime.quantization.create_calibrator", fail)
    with pytest.raises(type(raised)):
        judged(network, "--samples", archive)


def test_a_layer_with_infinite_activations_stays_in_float(judged, tmp_path, capsys):
    """A mask of minus infinity in front of a Softmax is nothing unusual; only a product that reads it cannot round."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"], "first"),
        helper.make_node("Log", ["zero"], ["endless"], "log"),
        helper.make_node("Add", ["first", "endless"], ["masked"], "mask"),
        helper.make_node("MatMul", ["masked", "v"], ["second"], "second"),
        helper.make_node("IsInf", ["second"], ["found"], "is_inf"),
        helper.make_node("Where", ["found", "first", "second"], ["y"], "where"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32), "v": np.eye(4, dtype=np.float32) + 1, "zero": np.zeros(4, np.float32)}
    onnx.save(model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights), tmp_path / "inf.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((8, 4), np.float32))
    table, layers = judged(tmp_path / "inf.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--all-notes")
    assert [*layers["source_node"]] == ["first"]
    assert table[table["is_written_model"]]["float_nodes"].iloc[0] == '["second"]'
    assert "left in float, because a value there is NaN or infinite: second" in capsys.readouterr().err


def test_an_operator_that_no_quantizer_knows_is_named(judged, tmp_path, capsys):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"], "first"),
        helper.make_node("Einsum", ["first", "w"], ["y"], "sum", equation="ij,jk->ik"),
    ]
    weights = {"w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    onnx.save(model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights), tmp_path / "einsum.onnx")
    table, _ = judged(tmp_path / "einsum.onnx", "--all-notes")
    assert table[table["is_written_model"]]["float_nodes"].iloc[0] == '["sum"]'
    assert "left in float, because no tool converts them: sum" in capsys.readouterr().err


def test_a_product_of_integers_stays_as_it_is(judged, tmp_path):
    """It would be cast to floats, and its result has another type then: no format could be made."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "first"),
        helper.make_node("MatMul", ["i", "j"], ["k"], "whole"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32) + 1, "j": np.eye(4, dtype=np.int32)}
    inputs = {"x": ["N", 4], "i": Typed(TensorProto.INT32, ["N", 4])}
    onnx.save(
        model(nodes, inputs, {"y": ["N", 4], "k": Typed(TensorProto.INT32, ["N", 4])}, weights), tmp_path / "i.onnx"
    )
    table, layers = judged(tmp_path / "i.onnx", "--precision", "bf16", "--random", 4)
    assert [*layers["source_node"]] == ["first"]
    assert table[table["is_written_model"]]["float_nodes"].iloc[0] == '["whole"]'


def test_an_input_called_labels_is_one(judged, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "first"),
        helper.make_node("Add", ["product", "labels"], ["y"], "add"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32)}
    onnx.save(model(nodes, {"x": ["N", 4], "labels": ["N", 1]}, {"y": ["N", 4]}, weights), tmp_path / "l.onnx")
    archive = archive_of(tmp_path, x=np.ones((6, 4), np.float32), labels=np.ones((6, 1), np.float32))
    table, _ = judged(tmp_path / "l.onnx", "--samples", archive)
    assert table["accuracy_share"].isna().all() and {*table["judged_sample_count"]} == {3}


def test_a_model_without_products_is_refused(judged, tmp_path):
    onnx.save(
        model([helper.make_node("Relu", ["x"], ["y"], "relu")], {"x": [2, 4]}, {"y": [2, 4]}), tmp_path / "r.onnx"
    )
    with pytest.raises(
        PipelineError, match=r"int8 cannot be made \(the model has no contraction that a tool converts\)"
    ):
        judged(tmp_path / "r.onnx")


def test_a_model_without_float_outputs_is_refused(judged, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"], "first"),
        helper.make_node("ArgMax", ["first"], ["y"], "argmax", axis=1, keepdims=0),
    ]
    proto = model(nodes, {"x": ["N", 4]}, {"y": Typed(TensorProto.INT64, ["N"])}, {"w": np.eye(4, dtype=np.float32)})
    onnx.save(proto, tmp_path / "int.onnx")
    with pytest.raises(PipelineError, match="no output is of floats"):
        judged(tmp_path / "int.onnx")


def test_images_are_samples(judged, tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for place in range(6):
        Image.fromarray(random.integers(0, 255, (20, 24, 3), np.uint8)).save(tmp_path / f"photos/{place}.png")
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["map"], "conv"),
        helper.make_node("GlobalAveragePool", ["map"], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["scores"], "flatten"),
    ]
    weights = {"w": random.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    proto = model(nodes, {"image": ["N", 3, 16, 16]}, {"scores": ["N", 4]}, weights)
    onnx.save(proto, tmp_path / "conv.onnx")
    table, layers = judged(tmp_path / "conv.onnx", "--images", tmp_path / "photos", "--normalize", "unit")
    assert {*table["judged_sample_count"]} == {3} and {*table["sample_source"]} == {"given"}
    assert [*layers["source_node"]] == ["conv"]
    archive = archive_of(tmp_path, image=np.zeros((6, 3, 16, 16), np.float32))
    with pytest.raises(PipelineError, match="image is in --samples or --input, too"):
        judged(tmp_path / "conv.onnx", "--images", tmp_path / "photos", "--samples", archive)


def residual_network(folder):
    """A float network with what the engine computes: windows, a residual, a pool and a product."""
    random = np.random.default_rng(3)
    kernels = {
        "first": random.standard_normal((8, 3, 3, 3)) / 5,
        "second": random.standard_normal((8, 8, 3, 3)) / 8,
        "last": random.standard_normal((5, 8)) / 3,
    }
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["a"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "second"], ["c"], "conv2", pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["d"], "add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "pool"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "last"], ["scores"], "product", transB=1),
    ]
    weights = {name: values.astype(np.float32) for name, values in kernels.items()}
    onnx.save(model(nodes, {"image": ["N", 3, 12, 12]}, {"scores": ["N", 5]}, weights), folder / "net.onnx")
    images = random.standard_normal((40, 3, 12, 12)).astype(np.float32)
    return folder / "net.onnx", images


def test_for_the_engine_every_tensor_is_int8_and_the_judgement_is_that_of_its_integers(judged, tmp_path):
    """A second program computes the integers of the written model: that of the simulated networks."""
    network, images = residual_network(tmp_path)
    table, _ = judged(network, "--samples", archive_of(tmp_path, image=images), "--for-engine")
    (row,) = table[table["is_written_model"]].to_dict("records")
    assert row["quantization_scheme"] == "whole network, on the engine"
    quantized = onnx.load(tmp_path / "out/quantized.onnx")
    _, judging = divided(Samples([{"image": images[one : one + 1]} for one in range(40)], 1, "given"), 0)
    session = onnxruntime.InferenceSession(network)
    exact = np.concatenate([session.run(None, feeds)[0] for feeds in judging.feeds])
    whole = [integer_reference.outputs(quantized, feeds)[quantized.graph.output[0].name] for feeds in judging.feeds]
    found = np.concatenate([(each.values - each.zero) * each.scale for each in whole])
    noise = ((exact - found) ** 2).sum()
    assert row["sqnr_db"] == pytest.approx(10 * np.log10((exact**2).sum() / noise), abs=1e-3) and row["sqnr_db"] > 20


def test_a_network_that_the_engine_does_not_compute_is_refused_for_it(judged, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"], "first"),
        helper.make_node("Cos", ["first"], ["y"], "cosine"),
    ]
    proto = model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"w": np.eye(4, dtype=np.float32)})
    onnx.save(proto, tmp_path / "cosine.onnx")
    problem = r"--for-engine: the engine does not compute it \(Cos cosine: the engine has no such operator\)"
    with pytest.raises(PipelineError, match=problem):
        judged(tmp_path / "cosine.onnx", "--for-engine")
    with pytest.raises(PipelineError, match="leave --mixed out"):
        judged(tmp_path / "cosine.onnx", "--for-engine", "--mixed")
