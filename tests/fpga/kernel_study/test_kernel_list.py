"""The kernel list of the vision encoder: its table as stated, the corrected one, and their command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pandas as pd
import pytest
import yaml

from common.cli import ROOT
from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.__main__ import PROGRAM, main
from common.fpga.device.board import BoardCeilings
from common.fpga.device.board_files import load_ceilings
from common.fpga.kernel_study.kernel_list import (
    KernelList,
    absent_peaks,
    ceiling_rows,
    corrected_rows,
    correction_of,
    read_kernel_list,
    stated_rows,
)
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError
from common.view.plan.pictures.kernel_roofline_plot import draw_kernels
from models.transformers.vision_encoder import build_vision_encoder
from tests.support.configurations import with_value
from tests.support.processes.command_lines import run_program

FILE = ROOT / "configs/kernels/vision-encoder.yaml"
COLUMNS = "kernel,precision,m,k,n,flops,bytes,arithmetic_intensity_flop_per_byte,weight_bytes"
NAMES = ["PatchEmbed", "Attn_Q", "Attn_K", "Attn_V", "Attn_Out", "MLP_FC1", "MLP_FC2", "Connector"]


def content() -> dict[str, Any]:
    return load_yaml(FILE)


@pytest.fixture(scope="module")
def encoder() -> KernelList:
    return read_kernel_list(Section.of_file(FILE))


def ceilings(name: str) -> BoardCeilings:
    return load_ceilings(name, ROOT / "configs" / "boards")


def small(kernels: list[dict[str, Any]], **others: Any) -> KernelList:
    """A list of these kernels, stated and corrected alike."""
    analysis = {"board": "b", "kernels": kernels}
    found = {"title": "t", "source": "s", "dimensions": {"seven": 7}, "precisions": ["int8", "int4"]}
    found |= {"drawn_precision": "int8", "as_stated": analysis, "corrected": analysis}
    return read_kernel_list(Section(Path("list.yaml"), found | others))


def board(peak: float, bandwidth: float) -> BoardCeilings:
    peaks = {"int8": peak, "int4": 2 * peak}
    return BoardCeilings(
        "b", "B", "b", True, 300, peaks, bandwidth, ThreePoint.exactly(bandwidth), {"fp32": "no reason"}
    )


# --- the table as stated --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "flops", "moved", "intensity", "weights"),
    [
        (NAMES[:5], 1_207_959_552, 2_162_688, "558.55", 589_824),
        (NAMES[5:7], 4_831_838_208, 6_291_456, "768.00", 2_359_296),
        (NAMES[7:], 23_592_960, 11_809_728, "2.00", 11_796_480),
    ],
)
def test_the_int8_table_digit_for_digit(encoder, kernels, flops, moved, intensity, weights) -> None:
    rows = {row["kernel"]: row for row in stated_rows(encoder) if row["precision"] == "int8"}
    for kernel in kernels:
        row = rows[kernel]
        assert (row["flops"], row["bytes"], row["weight_bytes"]) == (flops, moved, weights)
        assert f"{row['arithmetic_intensity_flop_per_byte']:.2f}" == intensity


def test_all_four_formats_by_the_formula_of_the_source(encoder) -> None:
    """FLOPs = 2·M·K·N, bytes = (M·K + K·N + M·N) times 4, 2, 1 and a half."""
    rows = list(stated_rows(encoder))
    assert [(row["precision"], row["kernel"]) for row in rows] == [
        (precision, name) for precision in ("fp32", "bf16", "int8", "int4") for name in NAMES
    ]
    sizes = [(1024, 768, 768)] * 5 + [(1024, 768, 3072), (1024, 3072, 768), (1, 12_288, 960)]
    for row, (m, k, n) in zip(rows, sizes * 4, strict=True):
        width = {"fp32": 4, "bf16": 2, "int8": 1, "int4": 0.5}[row["precision"]]
        assert (row["m"], row["k"], row["n"], row["flops"]) == (m, k, n, 2 * m * k * n)
        assert (row["bytes"], row["weight_bytes"]) == ((m * k + k * n + m * n) * width, k * n * width)
        assert isinstance(row["bytes"], int)
        assert row["arithmetic_intensity_flop_per_byte"] == row["flops"] / row["bytes"]


def test_half_bytes_are_rounded_up_for_each_operand() -> None:
    """1x3 by 3x5: 3, 15 and 5 elements of four bits are 2, 8 and 3 bytes."""
    rows = list(stated_rows(small([{"kernel": "odd", "m": 1, "k": 3, "n": 5}])))
    assert [row["bytes"] for row in rows] == [23, 2 + 8 + 3]


def test_the_stated_ceilings_are_the_sources_and_the_corrected_ones_are_not() -> None:
    stated, real = ceilings("u280-seed003"), ceilings("u280")
    rows = {(row["board"], row["precision"]): row for row in ceiling_rows([stated, real], ("fp32", "bf16", "int8"))}
    assert rows["u280-seed003", "fp32"]["kernel_peak_flop_per_s"] == 5.41e12
    assert rows["u280-seed003", "int8"]["kernel_peak_flop_per_s"] == 18.6e12
    assert rows["u280-seed003", "int8"]["board_memory_bytes_per_s"] == 300e9
    assert rows["u280-seed003", "int8"]["ridge_flop_per_byte"] == pytest.approx(62)
    assert ("u280-seed003", "bf16") not in rows
    # 8,490 DSPs that the shell leaves x 0.8 at which timing closes x 2 MACs x 2 FLOPs x 300 MHz
    assert rows["u280", "int8"]["kernel_peak_flop_per_s"] == pytest.approx(8490 * 0.8 * 2 * 2 * 300e6)
    assert len(absent_peaks([stated, real], ("fp32", "bf16", "int8"))) == 1


# --- the corrected one ----------------------------------------------------------------------------------------------


def test_attention_adds_22_percent(encoder) -> None:
    """Per layer 4·S²·D over 2·S·(4·D² + 2·D·F): S / (2·D + F) = 1024 / 4608."""
    found = correction_of(encoder)
    assert found["attention_flops"] == 12 * 4 * 1024**2 * 768 == 38_654_705_664
    assert found["projection_flops"] == 12 * 2 * 1024 * (4 * 768**2 + 2 * 768 * 3072)
    assert found["attention_flops"] / found["projection_flops"] == pytest.approx(1024 / 4608)
    assert f"{found['attention_flops'] / found['projection_flops']:.0%}" == "22%"


@pytest.mark.slow
def test_the_products_of_the_corrected_list_are_those_of_the_model(encoder) -> None:
    """Against the shapes that onnx infers for one layer of the encoder at full width, the connector included."""
    model = build_vision_encoder(batch=1, depth=1)
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    products = sorted(
        2 * math.prod(shape[node.output[0]]) * shape[node.input[0]][-1]
        for node in graph.node
        if node.op_type == "MatMul"
    )
    listed = [kernel for kernel in encoder.corrected.kernels if kernel.k is not None and kernel.name != "PatchEmbed"]
    assert sorted(kernel.flops for kernel in listed) == products
    rows = {
        op: [math.prod(shape[node.output[0]]) for node in graph.node if node.op_type == op]
        for op in ("Softmax", "LayerNormalization", "Tanh")
    }
    elements = {kernel.name: kernel.operands[-1].elements for kernel in encoder.corrected.kernels}
    assert rows["Softmax"] == [elements["Softmax"]]
    assert rows["LayerNormalization"] == [elements["LayerNorm"]] * 3
    assert rows["Tanh"] == [elements["GELU"]]


def test_calls_and_totals(encoder) -> None:
    """Twelve layers: two norms each and one behind, two residuals each; the connector has 64 rows."""
    rows = {row["kernel"]: row for row in corrected_rows(encoder, ceilings("u280")) if row["precision"] == "int8"}
    assert {name: rows[name]["call_count"] for name in ("PatchEmbed", "LayerNorm", "Attn_QK", "Residual")} == {
        "PatchEmbed": 1,
        "LayerNorm": 25,
        "Attn_QK": 12,
        "Residual": 24,
    }
    assert rows["Connector"]["m"] == 64
    assert rows["Connector"]["flops"] == 2 * 64 * 12_288 * 960
    assert rows["Attn_QK"]["bytes"] == 2 * 1024 * 768 + 12 * 1024 * 1024
    assert rows["Attn_QK"]["fused_bytes"] == 2 * 1024 * 768
    assert rows["Softmax"]["fused_bytes"] == 0
    assert rows["Softmax"]["total_bytes"] == 12 * 2 * 12 * 1024 * 1024
    for row in rows.values():
        assert row["total_flops"] == row["call_count"] * row["flops"]
        assert row["total_fused_bytes"] == row["call_count"] * row["fused_bytes"]
        assert row["fused_bytes"] <= row["bytes"]


def test_time_at_the_roof_by_hand() -> None:
    """2·7·11·13 = 2002 FLOPs, 77 + 143 + 91 = 311 bytes, three calls; 182 elements of one FLOP, read and written."""
    kernels = [
        {"kernel": "product", "m": "seven", "k": 11, "n": 13, "calls": 3, "on_chip": ["result"]},
        {"kernel": "rows", "m": "seven", "n": 13, "batch": 2, "flops_per_element": 1, "reads": 2, "on_chip": ["left"]},
    ]
    product, rows = list(corrected_rows(small(kernels), board(2e9, 1e9)))[:2]
    assert (product["flops"], product["bytes"], product["fused_bytes"]) == (2002, 311, 311 - 91)
    assert (product["bound"], product["roof_us"]) == ("compute", pytest.approx(3 * 2002 / 2e9 * 1e6))
    assert (rows["k"], rows["flops"], rows["bytes"], rows["fused_bytes"]) == (None, 182, 3 * 182, 2 * 182)
    assert (rows["bound"], rows["roof_us"]) == ("memory", pytest.approx(546 / 1e9 * 1e6))
    assert rows["fused_roof_us"] == pytest.approx(364 / 1e9 * 1e6)
    assert rows["attainable_flop_per_s"] == pytest.approx(1e9 * 182 / 546)


def test_a_format_without_a_peak_is_refused_in_one_line() -> None:
    found = small([{"kernel": "a", "m": 2, "k": 3, "n": 5}], precisions=["int8", "fp32"])
    with pytest.raises(ConfigurationError, match="b: has no peak for fp32; it has int8, int4"):
        list(corrected_rows(found, board(1e9, 1e9)))
    assert absent_peaks([board(1e9, 1e9)], found.precisions) == ["b has no fp32 peak: no reason"]


# --- hostile files --------------------------------------------------------------------------------------------------


def broken(path: str, value: Any) -> dict[str, Any]:
    return with_value(content(), path, value)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("title", None, "title is missing"),
        ("surprise", 1, "unknown key 'surprise'"),
        ("precisions", [], "precisions is not a list of at least one entry"),
        ("precisions", ["int8", "int3"], "unknown 'int3'"),
        ("drawn_precision", "int16", "int16, which is not among the precisions"),
        ("dimensions/width", 0, "dimensions.width is 0, which is not a whole number"),
        ("dimensions/width", 7.5, "dimensions.width is 7.5, which is not a whole number"),
        ("dimensions/width", 1e30, "is not a whole number from 1"),
        ("as_stated/board", None, "as_stated.board is missing"),
        ("as_stated/kernels", {}, "kernels is not a list"),
        ("as_stated/kernels/0", 5, r"as_stated.kernels\[0\] is not a mapping"),
        ("as_stated/kernels/0/m", "patch", "'patch', which is not a size; known dimensions: patches"),
        ("as_stated/kernels/0/m", -3, "is -3, which is not a whole number"),
        ("as_stated/kernels/0/m", float("nan"), "is nan, which is not a whole number"),
        ("as_stated/kernels/0/m", float("inf"), "is inf, which is not a whole number"),
        ("as_stated/kernels/0/m", [1], "which is not a size"),
        ("dimensions/width", 10**9, "is larger than a table can count"),
        ("as_stated/kernels/0/speed", 1, r"unknown key 'as_stated.kernels\[0\].speed'"),
        ("as_stated/kernels/1/kernel", "PatchEmbed", "as_stated has more than one kernel PatchEmbed"),
        ("corrected/kernels/5/on_chip", ["top"], "unknown 'top'; it takes left, right, result"),
        ("corrected/kernels/5/weight", "maybe", "it takes true or false"),
        ("corrected/kernels/6/flops_per_element", None, "flops_per_element is missing"),
    ],
)
def test_a_broken_list_is_one_line(path, value, problem) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_kernel_list(Section(FILE, broken(path, value)))
    assert "\n" not in str(caught.value)


# --- pictures -------------------------------------------------------------------------------------------------------


def test_kernels_on_one_place_share_a_number(encoder) -> None:
    kernels = pd.DataFrame(list(stated_rows(encoder)))
    roofs = pd.DataFrame(list(ceiling_rows([ceilings("u280-seed003")], encoder.precisions)))
    figure = draw_kernels("Encoder", kernels, roofs, "int8")
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert [text for text in texts if text.isdigit()] == ["1", "2", "3", "1", "2", "3"]  # at the marks, in the list
    assert any(text.startswith("2.00 OP/byte · memory") for text in texts)
    assert "Encoder: 7 of 8 kernels are compute-bound; memory bounds Connector" in [t.get_text() for t in figure.texts]


def test_fused_kernels_are_drawn_where_fusion_puts_them(encoder) -> None:
    kernels = pd.DataFrame(list(corrected_rows(encoder, ceilings("u280"))))
    roofs = pd.DataFrame(list(ceiling_rows([ceilings("u280")], encoder.precisions)))
    figure = draw_kernels("Encoder", kernels, roofs, "int8")
    marks = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "^"]
    assert 1024 in marks  # QKᵀ with its scores on the chip: 2·1024·1024·768 over 2·1024·768
    assert 12 * 1024 * 1024 * 128 / (2 * 1024 * 768 + 12 * 1024 * 1024) in marks  # and without


# --- the command ----------------------------------------------------------------------------------------------------


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return run_program(PROGRAM, main, *flags)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("seed") / "seed003"
    return out, run("kernels", "--out", str(out))


@pytest.mark.slow
def test_seed003_writes_its_tables_with_provenance(made) -> None:
    out, finished = made
    assert (finished.returncode, finished.stderr.count("Traceback")) == (0, 0)
    text = (out / "kernels.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    table = pd.read_csv(out / "kernels.csv")
    assert len(table) == 4 * 8
    assert set(table["kernel"]) == set(NAMES)
    record = json.loads((out / "kernels.meta.json").read_text())
    assert record["settings"]["list"]["value"].endswith("vision-encoder.yaml")
    assert any("no bf16 peak" in note for note in record["notes"])
    for name in ("kernel_roofline", "kernel_roofline_corrected"):
        assert (out / "plots" / f"{name}.png").stat().st_size > 10_000
        assert (out / "plots" / f"{name}.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_seed003_prints_both_tables_in_80_columns(made) -> None:
    lines = made[1].stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("Attn_QK") for line in lines) == 1
    assert any("22.2 % more" in line for line in lines)
    assert next(line for line in lines if line.startswith("Connector")).split()[-2:] == ["2.00", "11.80"]


@pytest.mark.slow
def test_the_tables_are_the_same_bytes_each_time(made, tmp_path) -> None:
    command = [sys.executable, "-m", "common.fpga", "kernels", "--out", str(tmp_path), "--quiet"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # with another seed of its hashes
    for name in ("kernels.csv", "kernels_corrected.csv", "kernel_ceilings.csv", "plots/kernel_roofline.svg"):
        assert (tmp_path / name).read_bytes() == (made[0] / name).read_bytes()


def test_a_missing_or_broken_list_is_one_line(tmp_path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    for path, problem in (("none.yaml", "cannot be read"), ("list.yaml", "is not a mapping")):
        finished = run("kernels", "--list", str(tmp_path / path), "--out", str(tmp_path / "out"))
        assert finished.returncode == 2
        assert problem in finished.stderr
        assert finished.stderr.startswith("python -m common.fpga: error: ")
        assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "kernels.csv").exists()


def test_a_format_that_no_roof_can_be_drawn_for_is_one_line(tmp_path) -> None:
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(content() | {"drawn_precision": "bf16"}))
    finished = run("kernels", "--list", str(tmp_path / "list.yaml"), "--out", str(tmp_path / "out"))
    assert finished.returncode == 2
    assert finished.stderr.endswith("u280-seed003: has no peak for bf16; it has fp32, int8, int4\n")


def test_describe_names_the_tables() -> None:
    finished = run("kernels", "--describe")
    assert finished.returncode == 0
    assert "## kernels.csv" in finished.stdout
