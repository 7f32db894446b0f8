from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.small import tiny
from tests.support.paths import ROOT

BUILDERS = {
    "tiny-cnn": tiny.build_tiny_cnn,
    "tiny-mlp": tiny.build_tiny_mlp,
    "tiny-transformer": tiny.build_tiny_transformer,
    "tiny-two-inputs": tiny.build_tiny_two_inputs,
    "tiny-unnamed": tiny.build_tiny_unnamed,
}
BATCH, SEQ = 5, 23


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    sizes = {"batch": BATCH, "seq": SEQ}
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in tensor.shape.dim]
        is_float = tensor.elem_type == onnx.TensorProto.FLOAT
        feeds[value.name] = (
            random.standard_normal(shape).astype(np.float32) if is_float else random.integers(0, 97, shape)
        )
    return feeds


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("tiny-cnn", (BATCH, 11)),
        ("tiny-mlp", (BATCH, 11)),
        ("tiny-unnamed", (BATCH, 11)),
        ("tiny-two-inputs", (BATCH, 5)),
        ("tiny-transformer", (BATCH, SEQ, 21)),
    ],
)
def test_every_model_is_valid_and_runs_with_bound_dimensions(name: str, shape: tuple[int, ...]) -> None:
    model = BUILDERS[name]()
    onnx.checker.check_model(model, full_check=True)
    output = run(model, feeds_of(model))
    assert output.shape == shape
    assert np.isfinite(output).all()
    assert output.std() > 0


@pytest.mark.parametrize("name", BUILDERS)
def test_the_seed_decides_the_weights(name: str) -> None:
    build = BUILDERS[name]
    assert build(seed=2).SerializeToString() == build(seed=2).SerializeToString()
    assert build(seed=2).SerializeToString() != build(seed=3).SerializeToString()


@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"tiny-unnamed"}))
def test_nodes_have_names_of_their_own(name: str) -> None:
    names = [node.name for node in BUILDERS[name]().graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


def test_the_unnamed_model_is_the_mlp_without_names() -> None:
    unnamed, named = tiny.build_tiny_unnamed(), tiny.build_tiny_mlp()
    assert {node.name for node in unnamed.graph.node} == {""}
    assert [node.op_type for node in unnamed.graph.node] == [node.op_type for node in named.graph.node]


def test_a_fixed_batch_leaves_no_dynamic_dimension_in_the_cnn() -> None:
    model = tiny.build_tiny_cnn(batch=2)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 3, 13, 17]


def test_opset_and_ir_version_go_together() -> None:
    versions = {name: (build().opset_import[0].version, build().ir_version) for name, build in BUILDERS.items()}
    assert versions.pop("tiny-transformer") == (17, 8)
    assert set(versions.values()) == {(12, 7)}


def test_attention_gelu_and_norms_compute_what_they_are_called() -> None:
    model = tiny.build_tiny_transformer(seed=1)
    weight = weights_of(model)
    x = feeds_of(model)["input"].astype(np.float64)

    def linear(y: np.ndarray, path: str) -> np.ndarray:
        return y @ weight[f"{path}.weight"] + weight[f"{path}.bias"]

    def norm(y: np.ndarray, path: str) -> np.ndarray:
        centred = y - y.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * weight[f"{path}.norm.weight"] + weight[f"{path}.norm.bias"]

    query, key, value = (
        linear(x, f"attention/{name}").reshape(BATCH, SEQ, 3, 7).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = np.exp(query @ key.transpose(0, 1, 3, 2) / math.sqrt(7))
    context = (scores / scores.sum(-1, keepdims=True)) @ value
    y = norm(linear(context.transpose(0, 2, 1, 3).reshape(BATCH, SEQ, 21), "attention/output") + x, "attention")
    wide = linear(y, "mlp/up")
    gelu = wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2
    expected = norm(linear(gelu, "mlp/down") + y, "mlp")
    np.testing.assert_allclose(run(model, feeds_of(model)), expected, rtol=1e-3, atol=1e-4)


def test_a_masked_word_does_not_count() -> None:
    model = tiny.build_tiny_two_inputs()
    feeds = feeds_of(model)
    feeds["mask"][:, 7] = 0
    before = run(model, feeds)
    feeds["ids"][:, 7] = 96 - feeds["ids"][:, 7]
    np.testing.assert_array_equal(run(model, feeds), before)
    feeds["mask"][:, 7] = 1
    assert (run(model, feeds) != before).any()


# --- python -m models -------------------------------------------------------------------------------------------------


def build(*flags: str) -> int:
    return importlib.import_module("models.__main__").main(list(flags))


@pytest.mark.parametrize("name", BUILDERS)
def test_the_command_writes_the_model_it_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "model.onnx"
    assert build(name, str(path), "--seed", "5") == 0
    assert path.read_bytes() == BUILDERS[name](seed=5).SerializeToString()
    assert list(path.parent.iterdir()) == [path]
    captured = capsys.readouterr()
    assert captured.err == f"wrote {path} ({path.stat().st_size:,} bytes)\n"
    assert captured.out == ""


def test_the_command_fixes_the_batch(tmp_path: Path) -> None:
    assert build("tiny-mlp", str(tmp_path / "m.onnx"), "--batch", "3") == 0
    dims = onnx.load(tmp_path / "m.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [3, 13]


def test_the_command_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--list") == 0
    names = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert names == list(importlib.import_module("models.__main__").BUILDERS)
    assert {"resnet50", *BUILDERS} <= set(names)


@pytest.mark.parametrize(
    "flags",
    [(), ("tiny-cnn",), ("resnet51", "x.onnx"), ("tiny-cnn", "x.onnx", "--batch", "0"), ("tiny-cnn", "x", "--seed=-1")],
)
def test_a_bad_command_line_exits_with_2(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        build(*flags)
    assert stopped.value.code == 2
    assert "python -m models: error: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "model.onnx"
    command = [sys.executable, "-m", "models", "tiny-mlp", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"python -m models: error: {path}: cannot be written (")
    assert done.stderr.count("\n") == 1
