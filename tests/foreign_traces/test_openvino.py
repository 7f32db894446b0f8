"""Reports of OpenVINO's counters: real ones, and what can be wrong with them."""

import csv
from pathlib import Path

import pytest

from common.foreign_traces.readers.openvino import read_openvino_counters
from common.messages.errors import PipelineError

DATA = Path(__file__).parent / "data" / "openvino"
HEADER = "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"
REPORT = f"""{HEADER}
x;Status.NOT_RUN;Parameter;unknown_f32;0.000;0.000
fold;Status.EXECUTED;Convolution;brgconv_avx512_bf16;0.017;0.017
/a/Relu;Status.NOT_RUN;Relu;undef;0.000;0.000
fold_ab_ba_/b/Conv/WithoutBiases;Status.EXECUTED;Reorder;jit_uni_f32;0.002;0.002
/b/Conv/WithoutBiases;Status.EXECUTED;Convolution;brgconv_avx512_f32;0.011;0.011
y;Status.NOT_RUN;Result;unknown_f32;0.000;0.000
Total;;;;0.030;0.030
"""


def written(tmp_path, text, name="report.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_times_are_the_means_of_the_requests_in_a_real_report():
    with (DATA / "detailed.csv").open() as file:
        rows = [row for row in csv.reader(file, delimiter=";") if row and row[1].endswith(".EXECUTED")]
    names = dict.fromkeys(row[0] for row in rows)
    expected = {name: [float(row[4]) for row in rows if row[0] == name] for name in names}
    profile = read_openvino_counters(DATA / "detailed.csv", None)
    assert {layer.name: layer.mean_us for layer in profile.layers} == {
        name: pytest.approx(1000 * sum(times) / 2) for name, times in expected.items()
    }
    assert all(len(times) == 2 for times in expected.values())
    assert profile.run_count is None
    assert {layer.dtype for layer in profile.layers} <= {"int8", "float32"}


def test_the_executed_graph_names_the_nodes_of_each_layer():
    layers = read_openvino_counters(DATA / "average.csv", DATA / "executed.xml").layers
    sources = {layer.name: [name for readings in layer.sources for name in readings] for layer in layers}
    assert {"/stem/BatchNormalization", "/stem/Relu"} <= {*sources["Multiply_3954"]}
    assert "/block/BatchNormalization" in sources["Multiply_3961"]


def test_names_tell_what_a_layer_computes_and_what_a_change_of_layout_serves(tmp_path):
    fold, reorder, conv = read_openvino_counters(written(tmp_path, REPORT), None).layers
    assert fold.ends_with == ("/a/Relu",)
    assert (fold.mean_us, fold.dtype) == (17.0, "bfloat16")
    assert (reorder.serves, reorder.sources) == (("/b/Conv/WithoutBiases",), ())
    assert conv.sources == (("/b/Conv/WithoutBiases", "/b/Conv", "/b"),)


@pytest.mark.parametrize(
    "text",
    [
        REPORT.replace("Status.", "").replace("\n", ";\n"),  # as C++ writes it
        REPORT.replace("\n", "\r\n"),
        REPORT.replace("0.0", "0,0"),
        "\ufeff" + REPORT,
    ],
)
def test_other_spellings_of_a_report(tmp_path, text):
    assert [layer.mean_us for layer in read_openvino_counters(written(tmp_path, text), None).layers] == [17, 2, 11]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends within a request"),
        (HEADER, "ends within a request"),
        (REPORT[: REPORT.index("Total")], "ends within a request: its row 'Total' is missing"),
        (REPORT.replace("0.011;0.011", "0.019;0.019"), "the total in line 8 is 0.030 ms, but the layers above it"),
        (
            REPORT.replace("fold;Status", "/b/Conv/WithoutBiases;Status"),
            "line 6: '/b/Conv/WithoutBiases' is listed twice",
        ),
        (REPORT.replace("0.017;0.017", "fast;0.017"), "line 3 is no row of counters"),
        (REPORT.replace("0.017;0.017", "-1;0.017"), "line 3 is no row of counters"),
        (REPORT + REPORT.replace("fold;", "folds;"), "requests with different layers"),
        (REPORT.replace("0.017", "0").replace("0.002", "0").replace("0.011", "0").replace("0.030", "0"), "no layer"),
        ("\ufffe" + REPORT, "line 1 is no row of counters"),
        ("a;b\x00c\n", "line 1 is no row of counters"),
    ],
)
def test_reports_that_cannot_be_used(tmp_path, text, problem):
    with pytest.raises(PipelineError, match=problem) as caught:
        read_openvino_counters(written(tmp_path, text), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<net", "is no XML that can be read"),
        ("<net><layers/></net>", "lacks the layer 'fold' of the report"),
        ('<!DOCTYPE a [<!ENTITY e "x">]><net name="&e;"/>', "lacks the layer"),
        (
            "<!DOCTYPE a [<!ENTITY a '" + "x" * 10**4 + "'>"
            + "".join(f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefg", "bcdefgh", strict=True))
            + "]><net>&h;</net>",
            "is no XML that can be read",
        ),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_used(tmp_path, text, problem):
    with pytest.raises(PipelineError, match=problem) as caught:
        read_openvino_counters(written(tmp_path, REPORT), written(tmp_path, text, "graph.xml"))
    assert "\n" not in str(caught.value)
