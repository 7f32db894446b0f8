"""The quantized forms of the small models: what the quantizer put in, and that it runs close to the original."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.__main__ import BUILDERS
from tests.support.models.quantized_models import FORMS, feeds_of, graphs_of, quantize, strip_names

NAMES = ("tiny-cnn", "tiny-mlp", "tiny-densenet", "tiny-vit", "tiny-bert", "tiny-lstm")
# What each form puts where the source has float products (an LSTM has them inside).
MARKS = {
    "qdq": {"QuantizeLinear", "DequantizeLinear"},
    "qoperator": {"QLinearConv", "QLinearMatMul", "QGemm"},
    "dynamic": {"ConvInteger", "MatMulInteger", "DynamicQuantizeLSTM"},
}


def run(model: onnx.ModelProto) -> np.ndarray:
    feeds = feeds_of(model, {})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_quantized_model_runs_and_is_close(name: str, form: str, tmp_path: Path) -> None:
    source = BUILDERS[name](batch=3)
    onnx.save(source, tmp_path / "m.onnx")
    quantized = onnx.load(quantize(tmp_path / "m.onnx", form, tmp_path / "q.onnx"))
    found = Counter(node.op_type for node in quantized.graph.node)
    assert found.keys() & MARKS[form]
    if form != "qdq":
        assert not found.keys() & {"Conv", "Gemm"}
    expected, actual = run(source), run(quantized)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    # Eight bits of a random net: the bound holds against a wrong graph, not against a coarse scale.
    assert np.abs(actual - expected).mean() < 0.5 * expected.std()


def test_preprocessing_folds_the_norms(tmp_path: Path) -> None:
    onnx.save(BUILDERS["tiny-cnn"](batch=3), tmp_path / "m.onnx")
    plain = onnx.load(quantize(tmp_path / "m.onnx", "qoperator", tmp_path / "plain.onnx"))
    folded = onnx.load(quantize(tmp_path / "m.onnx", "qoperator", tmp_path / "folded.onnx", preprocess=True))
    counts = [sum(node.op_type == "BatchNormalization" for node in model.graph.node) for model in (plain, folded)]
    assert counts == [2, 0]


@pytest.mark.parametrize("name", ["tiny-if-loop", "tiny-functions", "tiny-scan"])
def test_names_are_stripped_in_bodies_and_functions_and_the_model_still_runs(name: str) -> None:
    named = BUILDERS[name](batch=3)
    before = run(named)
    nodes = [node for graph in graphs_of(named.graph) for node in graph.node]
    nodes += [node for function in named.functions for node in function.node]
    assert len(nodes) > len(named.graph.node)
    assert all(node.name for node in nodes)
    assert strip_names(named) is named
    assert {node.name for node in nodes} == {""}
    np.testing.assert_array_equal(run(named), before)
