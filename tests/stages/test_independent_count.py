"""Another library's count of MACs: onnx-tool on ResNet-50, node by node."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest

from models.classifiers.resnet import build_resnet50

CLASSES = 1000


@pytest.mark.slow
def test_onnx_tool_counts_the_same_macs_on_resnet50(tmp_path: Path) -> None:
    onnx_tool = pytest.importorskip("onnx_tool", reason="comes with requirements-dev.txt")
    path = tmp_path / "resnet50.onnx"
    onnx.save(build_resnet50(batch=1), path)
    assert importlib.import_module("02_shapes_flops_bytes").main(["--model", str(path), "--out", str(tmp_path)]) == 0
    ours = pd.read_csv(tmp_path / "op_metrics.csv", index_col="source_node")["macs"]

    graph = onnx_tool.Model(str(path)).graph
    graph.shape_infer({"input": np.zeros((1, 3, 224, 224), np.float32)})
    graph.profile()
    theirs = {name: int(node.macs[0]) for name, node in graph.nodemap.items() if node.op_type in ("Conv", "Gemm")}
    theirs["/fc/Gemm"] -= CLASSES  # onnx-tool counts the addition of the bias as a MAC

    assert len(theirs) == 53 + 1
    assert {name: int(ours[name]) for name in theirs} == theirs
    assert sum(theirs.values()) == 4_089_184_256
