"""02 through its command line: exact totals of ResNet-50, notes, and every way to use it wrongly."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper

from models.classifiers.resnet import build_resnet50
from models.small.tiny import build_tiny_cnn, build_tiny_transformer
from tests.support.models.onnx_models import model, weight
from tests.support.processes.command_lines import run_stage

SCRIPT = "02_shapes_flops_bytes.py"
stage = importlib.import_module("02_shapes_flops_bytes")


def saved(path: Path, proto: onnx.ModelProto) -> Path:
    onnx.save(proto, path)
    return path


def metrics_of(path: Path, out: Path, *flags: str) -> pd.DataFrame:
    assert stage.main(["--model", str(path), "--out", str(out), *flags]) == 0
    return pd.read_csv(out / "op_metrics.csv", index_col="source_node", keep_default_na=False, na_values=[""])


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    return metrics_of(saved(folder / "resnet50.onnx", build_resnet50()), folder, "--dim", "N=1")


def paper_convolutions():
    """(output side, input channels, kernel, output channels) of each: He et al., table 1, stride in the 3×3."""
    yield 112, 3, 7, 64
    inputs, side = 64, 56
    for blocks, width, output_side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            yield side, inputs, 1, width
            yield output_side, width, 3, width
            yield output_side, width, 1, 4 * width
            if block == 0:
                yield output_side, inputs, 1, 4 * width
            inputs, side = 4 * width, output_side


@pytest.mark.slow
def test_resnet50_macs_layer_by_layer(resnet):
    expected = sorted(
        side * side * channels * kernel * kernel * filters for side, channels, kernel, filters in paper_convolutions()
    )
    convolutions = resnet[resnet["op_type"] == "Conv"]
    assert sorted(convolutions["macs"].astype(int)) == expected
    assert sum(expected) == 4_087_136_256
    gemm = resnet.loc["/fc/Gemm"]
    assert gemm["macs"] == 2048 * 1000
    assert gemm["flops"] == 2 * 2048 * 1000 + 1000
    assert resnet["macs"].sum() == 4_087_136_256 + 2_048_000 == 4_089_184_256


def test_resnet50_flops_and_bytes_by_operator(resnet):
    outputs = sum(side * side * filters for side, _, _, filters in paper_convolutions())
    assert outputs == 11_113_984
    by_type = resnet.groupby("op_type")[["flops", "weight_bytes", "input_bytes", "output_bytes"]].sum().astype(int)
    assert by_type.loc["Conv", "flops"] == 2 * 4_087_136_256
    assert by_type.loc["Conv", "output_bytes"] == 4 * outputs
    assert by_type.loc["BatchNormalization", "flops"] == 2 * outputs
    added = 3 * 256 * 56**2 + 4 * 512 * 28**2 + 6 * 1024 * 14**2 + 3 * 2048 * 7**2
    assert by_type.loc["Add", "flops"] == added
    assert by_type.loc["Add", "input_bytes"] == 2 * 4 * added
    assert by_type.loc["MaxPool", "flops"] == 8 * 64 * 56**2
    assert by_type.loc["GlobalAveragePool", "flops"] == 2048 * 7**2
    assert by_type.loc["Flatten"].sum() == 0
    parameters = 25_557_032 + 53_120
    assert by_type["weight_bytes"].sum() == 4 * parameters


def test_resnet50_windows_and_contractions(resnet):
    stem = resnet.loc["/conv1/Conv"]
    assert (stem["kernel_shape"], stem["strides"], stem["groups"]) == ("[7,7]", "[2,2]", 1)
    assert tuple(stem[["batch_count", "m_count", "k_count", "n_count"]]) == (1, 112 * 112, 3 * 49, 64)
    assert stem["input_shapes"] == "[[1,3,224,224],[64,3,7,7]]"
    assert stem["output_shapes"] == "[[1,64,112,112]]"
    assert stem["dtype"] == "float32"


def test_edges_agree_with_the_bytes_of_the_nodes(tmp_path):
    metrics = metrics_of(saved(tmp_path / "t.onnx", build_tiny_transformer(batch=2)), tmp_path, *transformer_flags())
    edges = pd.read_csv(tmp_path / "op_edges.csv", keep_default_na=False)
    read = edges[edges["consumer"] != ""].groupby("consumer")["read_bytes"].sum()
    for name, row in metrics.iterrows():
        assert read.get(name, 0) == row["weight_bytes"] + row["input_bytes"], name
    outputs = edges[edges["consumer"] == ""]
    assert len(outputs) == 1
    assert metrics["is_counted"].all()


def transformer_flags() -> list[str]:
    dims = build_tiny_transformer(batch=2).graph.input[0].type.tensor_type.shape.dim
    return [text for dim in dims if dim.dim_param for text in ("--dim", f"{dim.dim_param}=5")]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    path = saved(tmp_path / "cnn.onnx", build_tiny_cnn(batch=2))
    for name in ("a", "b"):
        metrics_of(path, tmp_path / name)
    for table in ("op_metrics.csv", "op_edges.csv"):
        assert (tmp_path / "a" / table).read_bytes() == (tmp_path / "b" / table).read_bytes()


def uncounted(path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"], name="product"),
        helper.make_node("Mystery", ["z"], ["y"], name="odd", domain="example"),
    ]
    return saved(path, model(nodes, {"x": (3, 5, 7)}, {"y": None}, {"w": weight(7, 5)}, domains=["example"]))


def test_an_operator_without_a_formula_is_listed_and_left_empty(tmp_path, capsys):
    metrics = metrics_of(uncounted(tmp_path / "odd.onnx"), tmp_path)
    printed = capsys.readouterr()
    assert (
        "note: no formula counts the work of Mystery (1): totals leave them out; 03_merge_profile_metrics.py has their "
        "times, but no rates; a custom operator that is exported as a function of ONNX's operators is counted"
        in printed.err
    )
    assert not metrics.loc["odd", "is_counted"]
    assert np.isnan(metrics.loc["odd", "flops"])
    assert np.isnan(metrics.loc["odd", "macs"])
    assert metrics.loc["product", "macs"] == 3 * 5 * 7 * 5
    row = next(line for line in printed.out.splitlines() if line.startswith("Mystery")).split()
    assert row[:5] == ["Mystery", "1", "–", "–", "–"]


def test_a_model_of_which_nothing_is_counted_has_no_total(tmp_path, capsys):
    node = helper.make_node("Mystery", ["x"], ["y"], name="odd", domain="example")
    proto = model([node], {"x": (3, 5, 5)}, {"y": None}, domains=["example"])
    metrics_of(saved(tmp_path / "odd.onnx", proto), tmp_path)
    *_, total, left_out = capsys.readouterr().out.splitlines()
    assert total.split()[:5] == ["total", "1", "–", "–", "–"]
    assert left_out == "totals leave out 1 of 1 nodes, whose work is unknown"


def test_a_shape_that_depends_on_data_is_noted(tmp_path, capsys):
    nodes = [helper.make_node("NonZero", ["x"], ["z"], name="f"), helper.make_node("Abs", ["z"], ["y"], name="a")]
    proto = model(nodes, {"x": (5, 7)}, {"y": None})
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    metrics_of(saved(tmp_path / "m.onnx", proto), tmp_path)
    assert "note: shapes depend on data in Abs (1): totals leave them out" in capsys.readouterr().err


def test_the_command_line_works_and_its_table_fits(tmp_path):
    done = run_stage(
        SCRIPT, "--model", saved(tmp_path / "c.onnx", build_tiny_cnn()), "--dim", "batch=3", "--out", tmp_path
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["op_type", "nodes", "MACs", "FLOPs", "share", "weights", "bytes"]
    assert max(map(len, lines)) <= 80
    assert f"wrote {tmp_path / 'op_metrics.csv'} (" in done.stderr


def test_help_shows_an_example():
    done = run_stage(SCRIPT, "--help-all")
    assert done.returncode == 0
    assert "EXAMPLE" in done.stdout
    assert "/fc/Gemm,Gemm,1,2048,1000,2048000,4097000,8196000,8192,4000" in done.stdout


@pytest.mark.parametrize(
    ("kind", "flags", "code", "wanted"),
    [
        ("absent", [], 1, "no such model file"),
        ("text", [], 1, "is not an ONNX model"),
        ("empty", [], 1, "is empty"),
        ("cut", [], 1, "is not an ONNX model, or is truncated"),
        ("good", ["--dim", "rows=3"], 2, "no dynamic dimension 'rows'; it has batch"),
        ("good", ["--dim", "batch=-1"], 2, "argument --dim: '-1' is not a whole number of at least 0"),
        ("good", ["--dim", "batch"], 2, "batch"),
        ("good", ["--nonsense"], 2, "--nonsense"),
    ],
)
def test_bad_use_is_one_line_and_writes_nothing(tmp_path, kind, flags, code, wanted):
    path, content = tmp_path / "model.onnx", build_tiny_cnn().SerializeToString()
    contents = {"text": b"no model at all\n" * 20, "empty": b"", "cut": content[: len(content) // 2], "good": content}
    if kind in contents:
        path.write_bytes(contents[kind])
    done = run_stage(SCRIPT, "--model", path, "--out", tmp_path / "out", *flags)
    assert done.returncode == code
    assert wanted in done.stderr
    assert done.stderr.startswith(f"{SCRIPT}: error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list(tmp_path.glob("out/*.csv"))
