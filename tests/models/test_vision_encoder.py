"""The vision encoder: parameters, multiply-accumulates, what a small one computes, and what stage 02 and fusion see."""

from __future__ import annotations

import importlib
import math
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest

from common.artifacts.folder import Folder
from common.artifacts.frames import records
from common.artifacts.provenance import Provenance
from common.fusion.groups import fuse
from common.graphs.source_graph import from_rows
from common.workload.layer_rows import layers_by_node
from common.workload.task_candidates import task_candidates
from models.transformers.vision_encoder import build_tiny_vision_encoder, build_vision_encoder

stage = importlib.import_module("02_shapes_flops_bytes")


@pytest.fixture(scope="module")
def tiny() -> onnx.ModelProto:
    return build_tiny_vision_encoder(seed=1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, pd.DataFrame]:
    """What 02 writes for the small encoder with a fixed batch of two."""
    folder = tmp_path_factory.mktemp("tiny")
    onnx.save(build_tiny_vision_encoder(batch=2), folder / "tiny.onnx")
    assert stage.main(["--model", str(folder / "tiny.onnx"), "--out", str(folder / "out"), "--quiet"]) == 0
    tables = Folder(folder / "out", Provenance("test", "test"))
    return {name: tables.table(name) for name in ("op_metrics", "op_edges")}


def run(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": image})[0]


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}


def parameters(model: onnx.ModelProto) -> int:
    return sum(math.prod(t.dims) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)


@pytest.mark.slow
def test_the_parameters_by_arithmetic() -> None:
    """One layer of the twelve: the rest is the same again."""
    embedding, norm = 768 * 3 * 16 * 16 + 768 + 1024 * 768, 2 * 768
    layer = 2 * norm + 4 * (768 + 1) * 768 + (768 + 1) * 3072 + (3072 + 1) * 768
    rest = embedding + norm + 12_288 * 960
    assert parameters(build_vision_encoder(depth=1)) == rest + layer
    assert rest + 12 * layer == 98_229_504


@pytest.mark.slow
def test_the_products_of_the_full_size_by_shape_inference() -> None:
    """Two layers at full width: the scores are of 1024 x 1024 pairs in twelve heads, the connector has 64 rows."""
    model = build_vision_encoder(batch=1, depth=2)
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    macs = Counter()
    for node in graph.node:
        if node.op_type == "MatMul":
            macs["MatMul"] += math.prod(shape[node.output[0]]) * shape[node.input[0]][-1]
        elif node.op_type == "Conv":
            macs["Conv"] += math.prod(shape[node.output[0]]) * math.prod(shape[node.input[1]][1:])
    layer = 1024 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 1024**2 * 768
    assert macs == {"Conv": 1024 * 768 * 768, "MatMul": 2 * layer + 64 * 12_288 * 960}
    assert 1024 * 768 * 768 + 12 * layer + 64 * 12_288 * 960 == 107_659_395_072
    assert shape["output"] == [1, 64, 960]


# --- what the small one computes ------------------------------------------------------------------------------------


def linear(x: np.ndarray, weight: dict[str, np.ndarray], path: str) -> np.ndarray:
    return x @ weight[f"{path}.weight"] + weight[f"{path}.bias"]


def norm(x: np.ndarray, weight: dict[str, np.ndarray], path: str) -> np.ndarray:
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return scaled * weight[f"{path}.weight"] + weight[f"{path}.bias"]


def attention(x: np.ndarray, weight: dict[str, np.ndarray], path: str) -> np.ndarray:
    query, key, value = (linear(x, weight, f"{path}.{name}_proj") for name in "qkv")
    parts = []
    for head in range(3):
        columns = slice(7 * head, 7 * head + 7)
        scores = np.einsum("bqd,bkd->bqk", query[..., columns], key[..., columns]) / math.sqrt(7)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        parts.append(shares / shares.sum(-1, keepdims=True) @ value[..., columns])
    return linear(np.concatenate(parts, -1), weight, f"{path}.out_proj")


def shuffled(x: np.ndarray) -> np.ndarray:
    """2 x 2 neighbours of the 6 x 6 patches side by side, by loops: across the columns first, then the rows."""
    grid = x.reshape(len(x), 6, 6, 21)
    rows = [
        np.concatenate([grid[:, 2 * i + di, 2 * j + dj] for di in range(2) for dj in range(2)], -1)
        for i in range(3)
        for j in range(3)
    ]
    return np.stack(rows, 1)


def test_the_small_one_computes_what_its_layers_are_called(tiny) -> None:
    weight = weights_of(tiny)
    image = np.random.default_rng(3).standard_normal((2, 3, 30, 30)).astype(np.float32)
    patches = image.reshape(2, 3, 6, 5, 6, 5).transpose(0, 2, 4, 1, 3, 5).reshape(2, 36, 75)
    x = patches @ weight["embeddings.patch_embedding.weight"].reshape(21, 75).T
    x = x + weight["embeddings.patch_embedding.bias"] + weight["embeddings.position_embedding.weight"]
    for path in ("encoder.layers.0", "encoder.layers.1"):
        x = x + attention(norm(x, weight, f"{path}.layer_norm1"), weight, f"{path}.self_attn")
        wide = linear(norm(x, weight, f"{path}.layer_norm2"), weight, f"{path}.mlp.fc1")
        active = wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))) / 2
        x = x + linear(active, weight, f"{path}.mlp.fc2")
    expected = shuffled(norm(x, weight, "post_layernorm")) @ weight["connector.proj.weight"]
    found = run(tiny, image)
    assert found.shape == (2, 9, 13)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_it_is_valid_named_and_seeded(tiny) -> None:
    onnx.checker.check_model(tiny, full_check=True)
    names = [node.name for node in tiny.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    again, other = build_tiny_vision_encoder(seed=1), build_tiny_vision_encoder(seed=2)
    assert again.SerializeToString() == tiny.SerializeToString() != other.SerializeToString()


# --- what the pipeline sees -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stage_02_counts_it_exactly(tables) -> None:
    metrics = tables["op_metrics"]
    layer = 36 * (4 * 21 * 21 + 2 * 21 * 37) + 2 * 36 * 36 * 21
    assert metrics["macs"].sum() == 2 * (36 * 21 * 75 + 2 * layer + 9 * 84 * 13)
    assert metrics["flops"].notna().all()
    assert metrics[metrics["op_type"] == "Softmax"]["flops"].tolist() == [5 * 2 * 3 * 36 * 36] * 2
    assert metrics[metrics["op_type"] == "LayerNormalization"]["flops"].tolist() == [7 * 2 * 36 * 21] * 5
    tanh = metrics[metrics["source_node"].str.contains("activation_fn") & (metrics["op_type"] != "Constant")]
    assert tanh["flops"].sum() == 2 * 9 * 2 * 36 * 37  # nine nodes an element, in two layers


def test_fusion_finds_attention_and_what_rides_on_the_products(tables) -> None:
    """Per layer one attention, Q, K and V with their biases, FC1 with the activation, two products with a residual."""
    graph = from_rows(records(tables["op_metrics"]), records(tables["op_edges"]))
    groups = fuse(graph)
    gelu = "MatMul+Add+Mul+Mul+Mul+Add+Mul+Tanh+Add+Mul+Mul"
    attention = "Transpose+Transpose+Transpose+MatMul+Mul+Softmax+MatMul+Transpose"
    found = Counter((group.kind, group.pattern) for group in groups if group.kind in ("conv", "gemm", "attention"))
    assert found == {
        ("conv", "Conv"): 1,
        ("attention", attention): 2,
        ("gemm", "MatMul+Add"): 6,
        ("gemm", gelu): 2,
        ("gemm", "MatMul+Add+Add"): 4,
        ("gemm", "MatMul"): 1,
    }
    layers = layers_by_node(records(tables["op_metrics"]), graph)
    tasks = [one.task for one in task_candidates(graph, groups, layers, "int8") if one.task and len(one.covers) == 1]
    assert sum(task.macs for task in tasks) == tables["op_metrics"]["macs"].sum()
