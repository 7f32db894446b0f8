"""The vision transformer and BERT: parameters, multiply-accumulates, and what a small one computes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.transformers.bert import build_bert, build_tiny_bert
from models.transformers.vit import build_tiny_vit, build_vit

erf = np.vectorize(math.erf)
SIZE = 3, 5  # batch and words


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def parameters(model: onnx.ModelProto) -> int:
    return sum(math.prod(t.dims) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}


def product_macs(model: onnx.ModelProto) -> int:
    """Of Conv, MatMul and Gemm, from the shapes that onnx infers through the Shape chains."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    inner = {
        "MatMul": lambda node: shape[node.input[0]][-1],
        "Gemm": lambda node: shape[node.input[0]][-1],
        "Conv": lambda node: math.prod(shape[node.input[1]][1:]),
    }
    products = [node for node in graph.node if node.op_type in inner]
    return sum(math.prod(shape[node.output[0]]) * inner[node.op_type](node) for node in products)


def bert_feeds(batch: int, seq: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    mask = np.ones((batch, seq), np.int64)
    mask[0, 3:] = 0
    ids, segments = random.integers(0, 97, (batch, seq)), random.integers(0, 2, (batch, seq))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


class Reference:
    """The layers in float64, from the weights and the papers' formulas."""

    def __init__(self, model: onnx.ModelProto, epsilon: float) -> None:
        self.weight, self.epsilon = weights_of(model), epsilon

    def linear(self, x: np.ndarray, path: str) -> np.ndarray:
        return x @ self.weight[f"{path}.weight"] + self.weight[f"{path}.bias"]

    def norm(self, x: np.ndarray, path: str) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        return scaled * self.weight[f"{path}.weight"] + self.weight[f"{path}.bias"]

    def mlp(self, x: np.ndarray, up: str, down: str) -> np.ndarray:
        wide = self.linear(x, up)
        return self.linear(wide * (1 + erf(wide / math.sqrt(2))) / 2, down)

    @staticmethod
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """Three heads of seven, one at a time; ``allowed`` (batch, words) says what may be looked at."""
        parts = []
        for head in range(3):
            columns = slice(7 * head, 7 * head + 7)
            scores = np.einsum("bqd,bkd->bqk", query[..., columns], key[..., columns]) / math.sqrt(7)
            scores = np.where(allowed[:, None, :] > 0, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            parts.append(weights / weights.sum(-1, keepdims=True) @ value[..., columns])
        return np.concatenate(parts, -1)


# --- the vision transformer -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_vit_b16_has_the_parameters_and_the_products_of_the_paper() -> None:
    model = build_vit(batch=1)
    layer = 2 * 2 * 768 + (768 + 1) * 3 * 768 + (768 + 1) * 768 + (768 + 1) * 3072 + (3072 + 1) * 768
    embedding = 768 * 3 * 16 * 16 + 768 + 768 + 197 * 768
    assert parameters(model) == embedding + 12 * layer + 2 * 768 + 769 * 1000 == 86_567_656
    del model.graph.initializer[:]
    assert Counter(node.op_type for node in model.graph.node)["MatMul"] == 12 * 6
    assert [node.op_type for node in model.graph.node].count("Softmax") == 12


def test_vit_products_by_arithmetic() -> None:
    """25 patches and the class token; both products of attention are over 26 × 26 pairs."""
    layer = 26 * (21 * 63 + 21 * 21 + 2 * 21 * 37) + 2 * 26 * 26 * 21
    assert product_macs(build_tiny_vit(batch=2)) == 2 * (25 * 21 * 3 * 49 + 2 * layer + 21 * 11)


def test_the_small_vit_computes_what_its_layers_are_called() -> None:
    model = build_tiny_vit(seed=1)
    reference = Reference(model, 1e-6)
    weight = reference.weight
    image = np.random.default_rng(3).standard_normal((2, 3, 35, 35)).astype(np.float32)
    patches = image.reshape(2, 3, 5, 7, 5, 7).transpose(0, 2, 4, 1, 3, 5).reshape(2, 25, 147)
    x = patches @ weight["patch_embed.proj.weight"].reshape(21, 147).T + weight["patch_embed.proj.bias"]
    x = np.concatenate([np.repeat(weight["cls_token"], 2, 0), x], 1) + weight["pos_embed"]
    for path in ("blocks.0", "blocks.1"):
        packed = reference.linear(reference.norm(x, f"{path}.norm1"), f"{path}.attn.qkv")
        y = reference.attention(*np.split(packed, 3, -1), np.ones((2, 26)))
        x = x + reference.linear(y, f"{path}.attn.proj")
        x = x + reference.mlp(reference.norm(x, f"{path}.norm2"), f"{path}.mlp.fc1", f"{path}.mlp.fc2")
    expected = reference.norm(x, "norm")[:, 0] @ weight["head.weight"].T + weight["head.bias"]
    np.testing.assert_allclose(run(model, {"input": image}), expected, rtol=1e-3, atol=1e-4)


# --- BERT -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bert_base_has_the_parameters_of_the_paper_without_the_pooler() -> None:
    model = build_bert()
    layer = 4 * 769 * 768 + 2 * 2 * 768 + 769 * 3072 + 3073 * 768
    assert parameters(model) == (30522 + 512 + 2) * 768 + 2 * 768 + 12 * layer == 108_891_648
    found = Counter(node.op_type for node in model.graph.node)
    assert (found["MatMul"], found["LayerNormalization"], found["Erf"]) == (12 * 8, 1 + 12 * 2, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "seq"), [(2, 7), (3, 11)])
def test_bert_products_are_its_closed_form(batch: int, seq: int) -> None:
    """Base widths in two layers of the twelve: a sixth of the closed form. Few words keep the table small.

    Not for a batch of one: onnx loses it where the sliced positions, whose size it does not know, are added.
    """
    model = build_bert(batch=batch, seq=seq, layers=2, vocabulary=7, positions=13)
    assert 6 * product_macs(model) == 84_934_656 * batch * seq + 18_432 * batch * seq**2


def test_the_small_bert_computes_what_its_layers_are_called() -> None:
    model = build_tiny_bert(seed=1)
    reference, feeds = Reference(model, 1e-12), bert_feeds(*SIZE)
    table = {
        name: reference.weight[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position")
    }
    x = table["word"][feeds["input_ids"]] + table["token_type"][feeds["token_type_ids"]] + table["position"][: SIZE[1]]
    x = reference.norm(x, "embeddings.LayerNorm")
    for path in ("encoder.layer.0", "encoder.layer.1"):
        parts = (reference.linear(x, f"{path}.attention.self.{name}") for name in ("query", "key", "value"))
        y = reference.linear(reference.attention(*parts, feeds["attention_mask"]), f"{path}.attention.output.dense")
        x = reference.norm(x + y, f"{path}.attention.output.LayerNorm")
        y = reference.mlp(x, f"{path}.intermediate.dense", f"{path}.output.dense")
        x = reference.norm(x + y, f"{path}.output.LayerNorm")
    np.testing.assert_allclose(run(model, feeds), x, rtol=1e-3, atol=1e-4)


def test_bert_computes_its_shapes_where_it_runs() -> None:
    """Any batch and length, and no Reshape whose shape is a constant."""
    model = build_tiny_bert()
    constants = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    reshapes = [node.input[1] for node in model.graph.node if node.op_type == "Reshape"]
    assert len(reshapes) == 2 * 4
    assert not constants & set(reshapes)
    for batch, seq in ((1, 31), (2, 7)):
        assert run(model, bert_feeds(batch, seq)).shape == (batch, seq, 21)


@pytest.mark.parametrize("build", [build_tiny_vit, build_tiny_bert])
def test_they_are_valid_named_and_seeded(build) -> None:
    model = build(seed=2)
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    assert build(seed=2).SerializeToString() == model.SerializeToString() != build(seed=3).SerializeToString()
