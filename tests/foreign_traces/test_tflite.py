"""Logs of TensorFlow Lite's benchmark_model: both forms, and what can be wrong with them."""

import re

import onnx
import pytest

from common.foreign_traces.programs import recognised
from common.foreign_traces.readers.tflite import read_tflite_profile
from common.measurements.imported_profile import RecordedSession, imported_layers
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from models.small.tiny import build_tiny_cnn
from tests.support.profiles.tflite_logs import tflite_log

ROWS = (
    ("CONV_2D", "[stem/Relu;stem/BatchNormalization;stem/Conv]:0", 0.4, 1),
    ("CONV_2D", "[block/Relu;block/Add;block/BatchNormalization;block/Conv]:1", 0.3, 1),
    ("MAX_POOL_2D", "[pool/MaxPool]:2", 0.2, 1),
    ("MEAN", "[head/GlobalAveragePool]:3", 0.05, 1),
    ("FULLY_CONNECTED", "[head/Gemm]:4", 0.025, 2),
)
STAMP = "2018-09-10 13:35:21.430305: I tensorflow/core/util/stat_summarizer.cc:85] "


def written(tmp_path, text):
    path = tmp_path / "benchmark.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("has_start", [False, True])
@pytest.mark.parametrize("stamp", ["", STAMP, "\tINFO: ", "[   12.345] "])
def test_times_of_a_run_are_those_of_its_calls(has_start, stamp, tmp_path):
    path = written(tmp_path, tflite_log(ROWS, has_start=has_start, stamp=stamp))
    assert recognised(path) == "TensorFlow Lite"
    profile = read_tflite_profile(path)
    assert [layer.mean_us for layer in profile.layers] == pytest.approx([400, 300, 200, 50, 50])
    assert [layer.layer_type for layer in profile.layers] == [row[0] for row in ROWS]
    assert profile.run_count == 67
    assert [name for name, _ in profile.layers[0].sources] == ["stem/Relu", "stem/BatchNormalization", "stem/Conv"]


def test_the_tensors_of_a_log_name_the_nodes_of_the_model(tmp_path):
    onnx.save(build_tiny_cnn(), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx", {"batch": 1}).graph
    session = RecordedSession(written(tmp_path, tflite_log(ROWS)), None, 4, None)
    imported = imported_layers(session, "TensorFlow Lite", model)
    assert imported.latency_summary["matched_time_share"] == 1.0
    assert imported.latency_summary["matched_contraction_share"] == 1.0
    assert [row["raw_mean_us"] for row in imported.op_latency] == pytest.approx([400, 300, 200, 50, 50])
    assert imported.latency_summary["threads"] == 4


def test_an_operator_that_ran_in_the_first_run_alone_has_its_share_of_a_run(tmp_path):
    """Rows of a log of benchmark_model in LiteRT (Arm on KleidiAI, 2025), whose mean is 411.071 us."""
    heading = "[node type] [first] [avg ms] [%] [cdf%] [mem KB] [times called] [Name]".replace("] ", "]\t")
    rows = (
        "LiteRT::Run[buffer registration] | 0.020 | 0.014 | 3.309% | 3.309% | 0.000 | 1 | LiteRT::Run/0",
        "AllocateTensors | 0.291 | 0.291 | 0.022% | 3.331% | 452.000 | 0 | AllocateTensors/0",
        "Static Reshape (NC) | 0.085 | 0.003 | 0.739% | 4.070% | 0.000 | 1 | Delegate/Static Reshape (NC):0",
        "Fully Connected (NC, PF32) GEMM | 0.538 | 0.382 | 92.948% | 97.018% | 0.000 | 1 | Delegate/GEMM:1",
        "LiteRT::Run[Buffer sync] | 0.013 | 0.012 | 2.982% | 100.000% | 0.000 | 1 | LiteRT::Run/0",
    )
    log = "\n".join(["=== Run Order ===", f"\t{heading}", *("\t" + row.replace(" | ", "\t") for row in rows), ""])
    profile = read_tflite_profile(written(tmp_path, log))
    assert profile.layers[1].mean_us == pytest.approx(411.071 * 0.022 / 100, rel=0.01)
    assert sum(layer.mean_us for layer in profile.layers) == pytest.approx(411.071, rel=0.005)
    assert profile.layers[3].dtype == "float32"


def test_a_log_of_android_has_a_time_before_empty_lines_too(tmp_path):
    """As ``adb logcat`` prints what the benchmark's app logs."""
    lines = tflite_log(ROWS).split("\n")
    log = "\n".join(f"11-27 17:00:01.234  1234  1240 I tflite  : {line}" for line in lines)
    assert read_tflite_profile(written(tmp_path, log)) == read_tflite_profile(written(tmp_path, tflite_log(ROWS)))


def test_where_no_call_is_counted_each_operator_ran_once(tmp_path):
    path = written(tmp_path, re.sub(r"\t +\d\t\[", "\t        0\t[", tflite_log(ROWS)))
    assert [layer.mean_us for layer in read_tflite_profile(path).layers] == pytest.approx([400, 300, 200, 50, 25])


def test_a_log_that_was_copied_from_a_terminal_has_spaces_for_tabs(tmp_path):
    profile, copied = (
        read_tflite_profile(written(tmp_path, text)) for text in (tflite_log(ROWS), tflite_log(ROWS).expandtabs(24))
    )
    assert copied == profile


def test_operators_of_a_delegate_name_no_node_and_are_refused(tmp_path):
    onnx.save(build_tiny_cnn(), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx", {"batch": 1}).graph
    kinds = [f"Convolution (NHWC, {kind}) GEMM" for kind in ("F32", "PQS8, QS8, QC8W", "QU8")]
    path = written(tmp_path, tflite_log([(kind, f"Delegate/{kind}:{n}", 0.1, 1) for n, kind in enumerate(kinds)]))
    assert [layer.dtype for layer in read_tflite_profile(path).layers] == ["float32", "int8", "uint8"]
    with pytest.raises(PipelineError, match="names no node of the model"):
        imported_layers(RecordedSession(path, None, 4, None), "TensorFlow Lite", model)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("Run Order", "Order"), "has no part 'Run Order'"),
        (lambda text: text.replace("[avg ms]", "[ms]"), "is no heading of operators"),
        (lambda text: text.replace("    0.300\t", "    x\t"), "as figures"),
        (lambda text: text.replace("\t[pool/MaxPool]:2", ""), "is no row of an operator"),
        (lambda text: "\n".join(line for line in text.split("\n") if "pool/MaxPool" not in line), "add up to 80.0 %"),
        (lambda text: text.replace("0.400", "-0.400"), "as figures"),
    ],
)
def test_a_log_that_is_no_whole_one_is_refused_in_a_line(change, problem, tmp_path):
    with pytest.raises(PipelineError, match=problem):
        read_tflite_profile(written(tmp_path, change(tflite_log(ROWS))))
