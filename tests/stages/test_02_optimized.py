"""02 on graphs as ONNX Runtime optimizes them, saved with their weights: the MACs are those of the source."""

from __future__ import annotations

import importlib
from collections import Counter

import onnx
import onnxruntime
import pandas as pd
import pytest
import sympy
from onnx import helper

from models.classifiers.resnet import build_resnet50
from models.small.control_flow import build_tiny_loop, build_tiny_scan
from models.small.tiny import build_tiny_cnn, build_tiny_transformer
from models.transformers.bert import build_tiny_bert
from models.transformers.vit import build_tiny_vit
from tests.support.models.onnx_models import model, weight

stage = importlib.import_module("02_shapes_flops_bytes")


@pytest.fixture
def run(tmp_path, capsys):
    """op_metrics of a model file and what 02 printed."""

    def metrics_of(path, *flags):
        assert stage.main(["--model", str(path), "--out", str(tmp_path / "out"), *map(str, flags)]) == 0
        table = pd.read_csv(tmp_path / "out" / "op_metrics.csv", keep_default_na=False, na_values=[""])
        return table, capsys.readouterr()

    return metrics_of


def total_macs(metrics):
    """Sum of numbers and expressions, as a polynomial."""
    texts = metrics["macs_expression"].dropna()
    return sympy.expand(sum(sympy.sympify(text) for text in texts) + int(metrics["macs"].dropna().sum()))


def optimized(proto, path, level):
    """The graph that ONNX Runtime makes of a model, with its weights, as a file."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    proto.ir_version = min(proto.ir_version, 13)
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path


def whole_blocks():
    """Two convolutions and a shortcut, 32 channels wide: blocks of 8 or 16 channels need no padding."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second"),
        helper.make_node("Add", ["b", "c"], ["d"], name="add"),
        helper.make_node("GlobalAveragePool", ["d"], ["y"], name="pool"),
    ]
    weights = {"w0": weight(32, 32, 3, 3), "w1": weight(32, 32, 1, 1)}
    return model(nodes, {"x": ("batch", 32, 11, 13)}, {"y": None}, weights)


BASIC, EXTENDED, ALL = (
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "level"),
    [
        (whole_blocks, ALL),
        (build_tiny_transformer, ALL),
        (build_tiny_bert, ALL),
        (build_tiny_cnn, EXTENDED),  # its prime numbers of channels would be padded to whole blocks
        (build_tiny_vit, EXTENDED),
        (build_tiny_loop, ALL),
        (build_tiny_scan, BASIC),
    ],
)
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "unbound"])
def test_an_optimized_graph_has_the_macs_of_its_source(run, tmp_path, build, level, is_bound):
    proto = build()
    dims = [dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param]
    sizes = zip(dict.fromkeys(dims), (3, 7), strict=False)
    flags = [text for name, size in sizes for text in ("--dim", f"{name}={size}")] if is_bound else []
    onnx.save(proto, tmp_path / "source.onnx")
    source, _ = run(tmp_path / "source.onnx", *flags)
    fused, printed = run(optimized(proto, tmp_path / "optimized.onnx", level), *flags)
    assert Counter(fused["op_type"]) != Counter(source["op_type"])
    assert total_macs(fused) == total_macs(source) != 0
    assert "no formula" not in printed.err


@pytest.mark.slow
def test_resnet50_has_its_macs_in_blocks_too(run, tmp_path):
    """Of a 64×64 image: every convolution's side is 2/7 of that of 224×224."""
    proto = build_resnet50(image=64)
    fused, _ = run(optimized(proto, tmp_path / "optimized.onnx", ALL), "--dim", "N=1")
    assert fused["macs"].sum() == 4_087_136_256 * 4 // 49 + 2_048_000
