"""What formats do to networks whose answer is known: closed forms, and rounding by numpy, which shares no code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from common.precision.conversion.float_model import described
from common.precision.conversion.schemes import ON_ENGINE, SCHEMES
from common.precision.conversion.smoothing import smoothed
from common.precision.judgement.evaluation import OutputJudgement
from common.precision.judgement.samples import Samples
from common.precision.rows import kernel_note
from common.precision.study import SchemeResult, layer_judgements, scheme_results, studied
from common.runtime.provider_matrix import OutputDistance
from common.runtime.sessions.session import SessionSettings
from tests.support.models.onnx_models import model
from tests.support.models.trained_perceptron import clouds, perceptron, trained_weights

SETTINGS = SessionSettings(1)
WAYS = {(scheme.number_format, scheme.name): scheme for scheme in SCHEMES}
MIN_MAX = WAYS["int8", "per channel, min-max"]
PER_TENSOR = WAYS["int8", "per tensor, min-max"]


def silent(done, total):
    pass


@pytest.fixture
def study(tmp_path):
    """Return the study of a model on arrays, all of which calibrate and judge."""

    def make(proto, x):
        onnx.save(proto, tmp_path / "given.onnx")
        samples = Samples([{"x": x}], len(x), "given")
        return studied(tmp_path / "given.onnx", tmp_path, samples, samples, SETTINGS, None)

    return make


def linear(weights):
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return model([product], {"x": ["N", len(weights)]}, {"y": ["N", weights.shape[1]]}, {"w": weights})


@pytest.mark.parametrize(("number_format", "of_x", "of_weights"), [("int8", 255, 254), ("int4", 15, 15)])
def test_the_noise_of_a_linear_layer_is_the_closed_form(study, tmp_path, number_format, of_x, of_weights):
    """Rounding errors are uniform and independent: each has a twelfth of its squared step (Widrow and Kollar 2008).

    The steps of an operand divide its range by 255, those of weights from -127 to 127. In 4 bits, both have 15.
    """
    random = np.random.default_rng(0)
    weights, x = random.uniform(-1, 1, (64, 40)), random.uniform(-2, 2, (200, 64))
    known = study(linear(weights.astype(np.float32)), x.astype(np.float32))
    scheme = WAYS[number_format, "per channel, min-max"]
    found = known.convert_and_judge(scheme, known.nodes, tmp_path / "q.onnx")["y"].sqnr_db
    w, v = (2 * np.abs(weights).max(0) / of_weights) ** 2 / 12, ((x.max() - x.min()) / of_x) ** 2 / 12
    noise = (64 * np.mean(x**2) * w + (weights**2).sum(0) * v + 64 * w * v).mean()
    assert found == pytest.approx(10 * np.log10(np.mean((x @ weights) ** 2) / noise), abs=0.3)


def test_the_written_model_computes_what_integers_do(study, tmp_path):
    """numpy multiplies the integers of the file, without its zero point, and scales the sums."""
    random = np.random.default_rng(0)
    weights, x = (
        random.standard_normal((32, 10)).astype(np.float32),
        random.standard_normal((50, 32)).astype(np.float32),
    )
    known = study(linear(weights), x)
    known.convert_and_judge(MIN_MAX, known.nodes, tmp_path / "q.onnx")
    graph = onnx.load(tmp_path / "q.onnx").graph
    held = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
    to_integers = next(node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "x")
    step, zero = held[to_integers.input[1]], held[to_integers.input[2]]
    (weight,) = (node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in held)
    whole = np.clip(np.rint(x / step) + zero, -128, 127).astype(np.int32) - zero.astype(np.int32)
    sums = whole @ held[weight.input[0]].astype(np.int32)
    expected = sums * (step * held[weight.input[1]])
    options = onnxruntime.SessionOptions()  # the kernels of a processor without VNNI saturate
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    (found,) = onnxruntime.InferenceSession(tmp_path / "q.onnx", options).run(None, {"x": x})
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_an_outlier_channel_breaks_the_tensor_and_not_the_channels(study, tmp_path):
    points, _ = clouds(200, seed=3)
    known = study(perceptron(outlier=1000.0), points)
    one, each = (
        known.convert_and_judge(scheme, known.nodes, tmp_path / "q.onnx")["scores"].top_1.value
        for scheme in (PER_TENSOR, MIN_MAX)
    )
    assert one < 0.6 and each > 0.97


SMOOTHED = WAYS["int8", "per channel, smoothed"]


def test_smoothed_outliers_of_activations_have_the_noise_of_the_closed_form(study, tmp_path):
    """A channel of activations is 20 times the others. Scales by equation 4 of SmoothQuant, and rounding as above."""
    random = np.random.default_rng(0)
    weights, x = random.uniform(-1, 1, (64, 40)), random.uniform(-2, 2, (200, 64))
    x[:, 3] *= 20
    known = study(linear(weights.astype(np.float32)), x.astype(np.float32))
    plain, smooth = (
        known.convert_and_judge(scheme, known.nodes, tmp_path / "q.onnx")["y"].sqnr_db for scheme in (MIN_MAX, SMOOTHED)
    )
    scales = np.sqrt(np.abs(x).max(0) / np.abs(weights).max(1))
    expected = [closed_form_db(x, weights), closed_form_db(x / scales, weights * scales[:, None])]
    assert [plain, smooth] == pytest.approx(expected, abs=0.5)
    assert smooth > plain + 3


def closed_form_db(x, weights):
    """Return the ratio of a linear layer in int8 whose rounding errors are uniform and independent.

    The largest weight of a channel is a whole number of steps, so it has no error.
    """
    v, largest = ((x.max() - x.min()) / 255) ** 2 / 12, np.abs(weights).max(0)
    w = np.where(np.abs(weights) < largest, (2 * largest / 254) ** 2 / 12, 0)
    noise = ((x**2).mean(0) @ w + (weights**2).sum(0) * v + w.sum(0) * v).mean()
    return 10 * np.log10(np.mean((x @ weights) ** 2) / noise)


@pytest.mark.parametrize(("also_read", "op_types"), [(False, 0), (True, 1)])
def test_smoothing_changes_nothing_in_float_and_divides_in_the_normalization_before(tmp_path, also_read, op_types):
    """Two layers share a normalization; a third reader of it keeps its own scale, so a Mul divides."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], "norm", axis=-1),
        helper.make_node("MatMul", ["n", "v"], ["p"], "first"),
        helper.make_node("Gemm", ["n", "w"], ["q"], "second", transB=1),
        helper.make_node("Add", ["p", "q"], ["r"], "sum"),
        helper.make_node("Add" if also_read else "Relu", ["r", "n"] if also_read else ["r"], ["y"], "last"),
    ]
    weights = {
        "scale": random.uniform(1, 20, 8),
        "shift": random.standard_normal(8),
        "v": random.standard_normal((8, 8)),
        "w": random.standard_normal((8, 8)),
    }
    given = model(
        nodes, {"x": ["N", 8]}, {"y": ["N", 8]}, {name: held.astype(np.float32) for name, held in weights.items()}
    )
    x = random.standard_normal((20, 8)).astype(np.float32)
    onnx.save(given, tmp_path / "given.onnx")
    smooth = smoothed(described(tmp_path / "given.onnx"), [{"x": x}], tmp_path / "smooth.onnx")
    found, wanted = (
        onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for path in (smooth.path, tmp_path / "given.onnx")
    )
    assert found == pytest.approx(wanted, abs=1e-4)
    written = smooth.proto().graph
    assert sum(node.op_type == "Mul" for node in written.node) == op_types
    normalized = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * weights["scale"] + weights["shift"]
    scales = np.sqrt(np.abs(normalized).max(0) / np.maximum(np.abs(weights["v"]).max(1), np.abs(weights["w"]).max(0)))
    held = {one.name: numpy_helper.to_array(one) for one in written.initializer}
    first = next(node for node in written.node if node.name == "first")
    assert held[first.input[1]] == pytest.approx(weights["v"] * scales[:, None], rel=1e-3)


def rounded_by_numpy(x, weights):
    """Round an operand with a zero point, and weights by channel, as the method says."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = (high - low) / 255
    zero = np.rint(-128 - low / step)
    steps = 2 * np.abs(weights).max(0) / 254
    return (np.clip(np.rint(x / step) + zero, -128, 127) - zero) * step, np.rint(weights / steps) * steps


def test_the_order_of_layers_is_that_of_brute_force(study):
    points, _ = clouds(200, seed=3)
    first, bias, second, offset = map(np.float64, trained_weights())
    known = study(perceptron(), points)
    layers = layer_judgements(known, MIN_MAX, known.nodes, 60.0, silent)
    hidden = np.maximum(points @ first + bias, 0)
    exact = hidden @ second + offset
    x, rounded = rounded_by_numpy(points, first)
    inner, last = rounded_by_numpy(hidden, second)
    errors = {
        "first": np.maximum(x @ rounded + bias, 0) @ second + offset - exact,
        "second": inner @ last + offset - exact,
    }
    expected = {name: 10 * np.log10((exact**2).sum() / (error**2).sum()) for name, error in errors.items()}
    found = {layer.node: layer.judgement.sqnr_db for layer in layers}
    assert found == pytest.approx(expected, abs=0.1)
    assert sorted(found, key=found.get) == sorted(expected, key=expected.get)


@pytest.mark.parametrize(("number_format", "dtype"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])
def test_short_floats_round_the_operands(study, tmp_path, number_format, dtype):
    random = np.random.default_rng(0)
    weights, x = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 10), (50, 32)))
    known = study(linear(weights), x)
    found = known.convert_and_judge(WAYS[number_format, "operands"], known.nodes, tmp_path / "q.onnx")["y"]
    short = [array.astype(dtype).astype(np.float64) for array in (x, weights)]
    error = short[0] @ short[1] - x @ weights
    assert found.sqnr_db == pytest.approx(10 * np.log10(((x @ weights) ** 2).sum() / (error**2).sum()), abs=0.01)


@pytest.mark.slow
def test_every_way_is_made_and_converts_the_products(study):
    points, _ = clouds(60, seed=3)
    known = study(perceptron(), points)
    for one in scheme_results(known, "int8", silent):
        if one.scheme.name == ON_ENGINE:  # it divides by one number only
            continue
        assert one.problem == ""
        assert [*one.nodes] == ["first", "second"]


def test_a_note_says_what_the_kernels_of_this_processor_lose():
    """A format of 40 dB whose kernels reach 30 dB, and one whose kernels lose nothing."""
    of_format, of_kernels = (
        OutputJudgement(OutputDistance("y", 1.0, 1.0, 0.1, is_equal_shape=True), ratio_db) for ratio_db in (40.0, 30.0)
    )
    lossy = SchemeResult(MIN_MAX, outputs={"y": of_format}, kernels={"y": of_kernels})
    exact = SchemeResult(MIN_MAX, outputs={"y": of_format}, kernels={"y": of_format})
    assert (lossy.kernel_loss_db("y"), exact.kernel_loss_db("y"), lossy.kernel_loss_db("z")) == (10.0, 0.0, 0.0)
    assert "lose 10.0 dB more than the format (int8, per channel, min-max)" in kernel_note([lossy, exact], "y")
    assert kernel_note([exact], "y") is None
